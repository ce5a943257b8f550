//! What repeats at a node: its rounds, its failures and what it did, as far as guards want to know.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::fold::Folded;
use super::journal::Journal;
use super::parts::{TaskRef, is_default};
use super::record::Stepped;
use super::scope::Scope;
use super::texts::SecretTexts;
use crate::error::{Failure, shortened};
use crate::id::{NodeName, Path};
use crate::state::fingerprint;

/// How many of the things that were tried last are kept for people.
const TRIED_MAX: usize = 8;

/// How many different failures, and how many different actions, of one round are counted.
const DIFFERENT_MAX: usize = 64;

/// The rounds of a node in one graph at work, since the graph's last input or since somebody let it begin anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// Steps in which it ran, and runs in which it failed for good.
    pub rounds: u64,
    /// The failures of the last round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Repeated>,
    /// What it did in the last round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Repeated>,
    /// What was tried last, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// Whether another way was taken already.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rerouted: bool,
    /// Whether its guard stopped it since its last round, and its error handler took over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stopped: bool,
}

/// Something that a node did, or failed of, in so many rounds in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// The same for what counts as the same.
    pub fingerprint: String,
    /// What it was the last time.
    pub shown: String,
    /// In how many rounds in a row.
    pub in_a_row: u32,
}

/// What a node failed of and did in one round: by fingerprint, each once.
#[derive(Debug, Default)]
pub(super) struct Round {
    failures: Vec<(String, String)>,
    actions: Vec<(String, String)>,
    /// Whether it is to be made again: what it did so far counts when that is done.
    is_cut: bool,
    /// Whether its guard stopped the node before it ran, which is no round.
    is_stop: bool,
}

impl Round {
    fn stop() -> Self {
        Self { is_stop: true, ..Self::default() }
    }

    pub(super) fn cut() -> Self {
        Self { is_cut: true, ..Self::default() }
    }

    /// Counts the text as it is stored, so that it is the same after a restart.
    pub(super) fn failed(&mut self, failure: &Failure, texts: &SecretTexts) {
        let same = json!([failure.class, failure.origin, normalised(&texts.blotted(&failure.message))]);
        note(&mut self.failures, fingerprint(&same), shortened(&texts.blotted(&failure.to_string())));
    }

    /// What the journal of a task says that it did.
    pub(super) fn did(&mut self, journal: &Journal) {
        for effect in &journal.effects {
            let Some(arguments) = &effect.terms.arguments else { continue };
            let shown = format!("{} {}", effect.key, arguments.shown);
            note(&mut self.actions, fingerprint(&json!([effect.key, arguments.fingerprint])), shown);
        }
    }
}

fn note(seen: &mut Vec<(String, String)>, fingerprint: String, shown: String) {
    if seen.len() < DIFFERENT_MAX && !seen.iter().any(|(known, _)| *known == fingerprint) {
        seen.push((fingerprint, shown));
    }
}

impl Rounds {
    /// Another round is over.
    pub(super) fn add(&mut self, round: Round) {
        self.stopped = round.is_stop;
        if round.is_stop {
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        if round.failures.is_empty() && round.actions.is_empty() && self.failures.is_empty() && self.actions.is_empty() {
            return;
        }
        let did = round.actions.iter().map(|(_, shown)| shown.as_str());
        let said = did.chain(round.failures.iter().map(|(_, shown)| shown.as_str())).collect::<Vec<_>>().join("; ");
        if !said.is_empty() {
            self.tried.push(shortened(&said));
            let too_many = self.tried.len().saturating_sub(TRIED_MAX);
            self.tried.drain(..too_many);
        }
        self.failures = again(&self.failures, round.failures);
        if !round.is_cut {
            self.actions = again(&self.actions, round.actions);
        }
    }

    /// The longest rows of the same failure, and of the same action. `earlier`: what is known of the node by other names, under which they began.
    pub(crate) fn rows(&self, earlier: &[&Self]) -> (u32, u32) {
        let longest = |of: fn(&Self) -> &[Repeated]| {
            let before = |row: &Repeated| {
                let rows = earlier.iter().flat_map(|rounds| of(rounds)).filter(|known| known.fingerprint == row.fingerprint);
                let is_whole = u64::from(row.in_a_row) == self.rounds;
                rows.filter(|_| is_whole).map(|known| known.in_a_row).max().unwrap_or_default()
            };
            of(self).iter().map(|row| row.in_a_row.saturating_add(before(row))).max().unwrap_or_default()
        };
        (longest(|rounds| &rounds.failures), longest(|rounds| &rounds.actions))
    }
}

impl Folded {
    /// What the tasks of a step failed of and did, by node.
    pub(super) fn rounds_of(&self, path: &Path, merged: &[TaskRef]) -> BTreeMap<NodeName, Round> {
        let mut rounds: BTreeMap<NodeName, Round> = BTreeMap::new();
        let Some(scope) = self.scope(path) else { return rounds };
        let texts = OnceCell::new();
        for (nth, task) in merged.iter().enumerate() {
            let Some(index) = scope.place_of_merged(nth, task) else { continue };
            let known = &scope.facts.tasks[index];
            if known.stopped {
                rounds.entry(task.node.clone()).or_insert_with(Round::stop);
                continue;
            }
            let round = rounds.entry(task.node.clone()).or_default();
            round.is_stop = false;
            let noted = known.result().into_iter().flat_map(|done| &done.failures);
            let failed = known.handling.iter().chain(noted);
            failed.for_each(|failure| round.failed(failure, texts.get_or_init(|| SecretTexts::of(self))));
            if !self.facts.journals.is_empty() {
                self.facts.journals.get(&scope.task_id(index)).into_iter().for_each(|journal| round.did(journal));
            }
        }
        rounds
    }

    /// The rounds of a graph's nodes, with those that end when its step is merged.
    pub(crate) fn rounds_after(&self, path: &Path) -> BTreeMap<NodeName, Rounds> {
        let Some(scope) = self.scope(path) else { return BTreeMap::new() };
        let merged: Vec<TaskRef> =
            scope.results().iter().map(|d| TaskRef { node: d.task.node.clone(), send: d.task.send }).collect();
        let mut after = scope.facts.rounds.clone().unwrap_or_default();
        add_all(&mut after, self.rounds_of(path, &merged));
        after
    }
}

impl Scope {
    /// What repeats at its nodes, as far as it is known.
    pub(crate) fn rounds(&self) -> &BTreeMap<NodeName, Rounds> {
        static NONE: BTreeMap<NodeName, Rounds> = BTreeMap::new();
        self.facts.rounds.as_ref().unwrap_or(&NONE)
    }

    pub(super) fn add_rounds(&mut self, rounds: BTreeMap<NodeName, Round>) {
        if let Some(known) = &mut self.facts.rounds {
            add_all(known, rounds);
        }
    }

    /// Rounds are over, and a step says what becomes of the counts.
    pub(super) fn count(&mut self, rounds: BTreeMap<NodeName, Round>, stepped: &Stepped) {
        if let Some(squashed) = &stepped.squashed {
            if let Some(known) = &mut self.facts.rounds {
                known.clone_from(&squashed.rounds);
            }
            return;
        }
        self.add_rounds(rounds);
        let Some(known) = &mut self.facts.rounds else { return };
        for node in stepped.rerouted.iter().flat_map(|rerouted| &rerouted.anew) {
            known.insert(node.clone(), Rounds { rerouted: true, ..Rounds::default() });
        }
        stepped.anew.iter().for_each(|node| _ = known.remove(node));
        if self.applied.is_some() {
            self.counted.clone_from(known);
        }
    }

    /// A person lets nodes go on. That another way was taken stays known.
    pub(super) fn begin_anew(&mut self, nodes: &[NodeName]) {
        for node in nodes {
            if let Some(rounds) = self.facts.rounds.as_mut().and_then(|known| known.get_mut(node)) {
                *rounds = Rounds { rerouted: rounds.rerouted, ..Rounds::default() };
            }
        }
    }
}

fn add_all(known: &mut BTreeMap<NodeName, Rounds>, rounds: BTreeMap<NodeName, Round>) {
    for (node, round) in rounds {
        match known.get_mut(&node) {
            Some(known) => known.add(round),
            None => known.entry(node).or_default().add(round),
        }
    }
}

fn again(before: &[Repeated], now: Vec<(String, String)>) -> Vec<Repeated> {
    let so_far =
        |fingerprint: &String| before.iter().find(|known| known.fingerprint == *fingerprint).map_or(0, |known| known.in_a_row);
    now.into_iter()
        .map(|(fingerprint, shown)| Repeated { in_a_row: so_far(&fingerprint).saturating_add(1), fingerprint, shown })
        .collect()
}

/// A text without what differs from one time to the next: digits, identifiers of hexadecimal digits, letters' case, spaces.
fn normalised(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        let mut plain = String::new();
        for part in word.split_inclusive(|letter: char| !letter.is_alphanumeric() && letter != '-') {
            let name = part.trim_end_matches(|letter: char| !letter.is_alphanumeric());
            let after = &part[name.len()..];
            // Of an identifier in several parts each may be without a digit, as long as one has any.
            if is_id(name) {
                plain.push('#');
            } else {
                let parts = name.split('-').map(|name| if is_id(name) { "#".to_owned() } else { name.to_lowercase() });
                plain.push_str(&parts.collect::<Vec<_>>().join("-"));
            }
            plain.push_str(after);
        }
        let mut without = String::new();
        for letter in plain.chars() {
            match letter {
                '0'..='9' if without.ends_with('#') => {}
                '0'..='9' => without.push('#'),
                letter => without.push(letter),
            }
        }
        words.push(without);
    }
    words.join(" ")
}

fn is_id(name: &str) -> bool {
    let is_hex = |part: &str| part.len() >= 4 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.split('-').all(is_hex) && name.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;

    #[test]
    fn texts_are_the_same_but_for_numbers_identifiers_case_and_spaces() {
        let same = [
            ("Line 12: no such key", "line 7:  no such key"),
            ("request 018f3a2b77aa failed", "request deadbeef0123 failed"),
            ("job 6b1e9f10-17aa-4d0e-a3f0-0e8c33a0d0aa died", "job 00000000-0000-0000-0000-000000000001 died"),
            ("job 6b1e9f10-dead-4d0e-beef-0e8c33a0d0aa: died", "job 00000000-0000-0000-0000-000000000001: died"),
            ("timeout after 12.5s", "timeout after 3.25s"),
            ("-17 is less", "-4 is less"),
        ];
        for (a, b) in same {
            assert_eq!(normalised(a), normalised(b), "{a} / {b}");
        }
        let other = [("no such key", "no such value"), ("defaced", "deadend"), ("face-beef", "dead-cafe"), ("größe", "grösse")];
        for (a, b) in other {
            assert_ne!(normalised(a), normalised(b));
        }
    }

    #[test]
    fn rows_count_what_comes_in_each_round_and_begin_anew_with_a_gap() {
        let failure = |text: &str| NodeError::new(text).failure();
        let mut rounds = Rounds::default();
        for texts in [&["a", "b"][..], &["a"], &["a", "a", "b"], &[], &["a"]] {
            let mut round = Round::default();
            texts.iter().for_each(|text| round.failed(&failure(text), &SecretTexts::default()));
            rounds.add(round);
            if texts.len() == 3 {
                assert_eq!(rounds.failures.iter().map(|row| row.in_a_row).collect::<Vec<_>>(), [3, 1]);
            }
        }
        assert_eq!((rounds.rounds, rounds.rows(&[])), (5, (1, 0)));
        for _ in 0..20 {
            let mut round = Round::default();
            round.failed(&failure("a"), &SecretTexts::default());
            rounds.add(round);
        }
        assert_eq!((rounds.rows(&[]), rounds.tried.len()), ((21, 0), TRIED_MAX));
    }
}
