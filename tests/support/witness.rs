//! Knows from the ledger alone what was acknowledged, finished, performed and answered, and holds everything that follows against it.

use std::collections::{BTreeMap, HashMap, HashSet};

use ferrata::log::Entry;

use crate::line::{Line, Written, written};

/// What the lines so far say, and what was wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    threads: BTreeMap<String, Seen>,
    /// Effects that must not happen twice, by their keys.
    keys: HashSet<String>,
    /// What they did, by thread.
    deeds: HashSet<(String, String)>,
    pub(crate) faults: Vec<String>,
    pub(crate) count: Count,
}

#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) acknowledged: usize,
    pub(crate) starts: usize,
    pub(crate) performed: usize,
    pub(crate) repeatable: usize,
    pub(crate) told: usize,
    /// Lines that a kill tore.
    pub(crate) torn: usize,
    /// Appends that were under way at a kill, and were found by the next process.
    pub(crate) kept_unheard: usize,
    /// Appends that were under way at a kill, and are gone.
    pub(crate) gone_unheard: usize,
}

/// One thread.
#[derive(Debug, Default)]
struct Seen {
    /// The records that are in the store for certain, by their positions.
    stored: Vec<Written>,
    /// What they are about.
    known: HashSet<(String, String)>,
    /// An append that was given and not acknowledged.
    given: Option<(u64, Vec<Written>)>,
    /// The last round that its caller was told the end of, and the state that came with it.
    last: Option<(u64, u64)>,
}

impl Seen {
    fn knows(&self, kind: &str, about: &str) -> bool {
        self.known.contains(&(kind.to_owned(), about.to_owned()))
    }

    fn store(&mut self, records: Vec<Written>) {
        self.known.extend(records.iter().map(|record| (record.kind.clone(), record.about.clone())));
        self.stored.extend(records);
    }
}

impl Witness {
    /// Hears what one process has written. Gives whether it had opened the store, and how many appends were under way when it died.
    pub(crate) fn hear(&mut self, text: &str, state: &mut dyn FnMut(&str, u64) -> u64) -> (bool, usize) {
        let mut had_opened = false;
        for line in text.lines().filter(|line| !line.is_empty()) {
            let Ok(line) = serde_json::from_str(line) else {
                self.count.torn += 1;
                continue;
            };
            had_opened |= matches!(line, Line::Found { .. });
            if let Some(fault) = self.take(line, state) {
                self.faults.push(fault);
            }
        }
        (had_opened, self.threads.values().filter(|seen| seen.given.is_some()).count())
    }

    fn take(&mut self, line: Line, state: &mut dyn FnMut(&str, u64) -> u64) -> Option<String> {
        match line {
            Line::Found { threads } => self.found(&threads),
            Line::Starts { thread, task } => {
                self.count.starts += 1;
                let again = self.seen(&thread).knows("task_done", &task);
                again.then(|| format!("{thread}: {task} was finished and ran again"))
            }
            Line::Performs { thread, effect, key, result, repeatable } => self.performs(thread, &effect, key, result, repeatable),
            Line::Gives { thread, position, records } => {
                self.seen(&thread).given = Some((position, records));
                None
            }
            Line::Keeps { thread, position } => self.keeps(&thread, position),
            Line::Waits { thread, questions } => {
                self.count.told += 1;
                let seen = self.seen(&thread);
                let wrong = questions.iter().find(|id| seen.knows("answered", id) || !seen.knows("asked", id))?;
                Some(format!("{thread}: question {wrong} was answered and told again, or told before it was stored"))
            }
            Line::Done { thread, round, state: told } => {
                self.count.told += 1;
                let expected = state(&thread, round);
                let seen = self.seen(&thread);
                let last = seen.last.replace((round, told));
                let has_ended = seen.stored.last().is_some_and(|record| record.kind == "run_ended");
                let goes_on = last.is_none_or(|(before, _)| before == round || before + 1 == round);
                let right = told == expected && has_ended && goes_on;
                (!right).then(|| {
                    format!(
                        "{thread}: told that round {round} is done, last one {last:?}, stored: {has_ended}, state right: {}",
                        told == expected
                    )
                })
            }
        }
    }

    fn seen(&mut self, thread: &str) -> &mut Seen {
        self.threads.entry(thread.to_owned()).or_default()
    }

    fn performs(&mut self, thread: String, effect: &str, key: String, result: String, repeatable: bool) -> Option<String> {
        let seen = self.seen(&thread);
        if seen.knows("effect_done", effect) {
            return Some(format!("{thread}: the result of {effect} was stored, and it was performed again"));
        }
        if repeatable {
            self.count.repeatable += 1;
            return None;
        }
        let has_started = seen.knows("effect_started", effect);
        self.count.performed += 1;
        if !self.keys.insert(key) || !self.deeds.insert((thread.clone(), result)) {
            return Some(format!("{thread}: {effect} was performed twice"));
        }
        (!has_started).then(|| format!("{thread}: {effect} was performed before its start was stored"))
    }

    fn keeps(&mut self, thread: &str, position: u64) -> Option<String> {
        let seen = self.seen(thread);
        let end = seen.stored.len() as u64;
        let Some((_, records)) = seen.given.take().filter(|(given, _)| *given == position && position == end) else {
            return Some(format!("{thread}: an append at {position} was acknowledged; the log ended at {end}"));
        };
        let count = records.len();
        seen.store(records);
        self.count.acknowledged += count;
        None
    }

    /// What a process finds is what was acknowledged, and whole appends that were under way when the one before it died.
    fn found(&mut self, threads: &BTreeMap<String, u64>) -> Option<String> {
        let mut faults = Vec::new();
        for thread in threads.keys().filter(|thread| !self.threads.contains_key(*thread)) {
            faults.push(format!("{thread}: nobody wrote to it"));
        }
        for (thread, seen) in &mut self.threads {
            let (found, end) = (threads.get(thread).copied().unwrap_or(0), seen.stored.len() as u64);
            match seen.given.take() {
                Some((position, records)) if position == end && found == end + records.len() as u64 => {
                    self.count.kept_unheard += 1;
                    seen.store(records);
                }
                given if found == end => self.count.gone_unheard += usize::from(given.is_some()),
                given => faults.push(format!("{thread}: {end} records were stored, {found} are there; under way: {given:?}")),
            }
        }
        (!faults.is_empty()).then(|| faults.join("\n"))
    }

    /// Holds a log against what was acknowledged of it. `found`: how many records the store says there are.
    pub(crate) fn compare(&mut self, thread: &str, entries: &[Entry]) {
        let Some(seen) = self.threads.get(thread) else {
            self.faults.push(format!("{thread}: nobody wrote to it"));
            return;
        };
        for (position, stored) in seen.stored.iter().enumerate() {
            let found = entries.get(position).map(|entry| (entry.position.0, written(&entry.record)));
            if found.as_ref() != Some(&(position as u64, stored.clone())) {
                self.faults.push(format!("{thread}: {stored:?} was acknowledged for {position}; there is {found:?}"));
                return;
            }
        }
        let more: Vec<Written> = entries[seen.stored.len()..].iter().map(|entry| written(&entry.record)).collect();
        if !more.is_empty() && seen.given.as_ref().is_none_or(|(_, given)| *given != more) {
            self.faults.push(format!("{thread}: there is what nobody gave, or half of it: {more:?}"));
        }
    }

    pub(crate) fn threads(&self) -> Vec<String> {
        self.threads.keys().cloned().collect()
    }

    /// The last round of each thread.
    pub(crate) fn rounds(&self) -> HashMap<String, u64> {
        self.threads.iter().map(|(thread, seen)| (thread.clone(), seen.last.map_or(0, |(round, _)| round))).collect()
    }

    /// How many effects of that name were performed in that thread.
    pub(crate) fn deeds(&self, thread: &str, what: &str) -> usize {
        self.deeds.iter().filter(|(by, deed)| by == thread && deed.split(' ').next() == Some(what)).count()
    }

    /// How many records of a kind are stored.
    pub(crate) fn stored(&self, kind: &str) -> usize {
        self.threads.values().flat_map(|seen| &seen.stored).filter(|record| record.kind == kind).count()
    }

    pub(crate) fn assert_well(&self, when: &str) {
        assert!(self.faults.is_empty(), "{when}:\n{}", self.faults.join("\n"));
    }
}
