//! Texts for people in records and snapshots: errors and questions, which may quote a secret value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::effect::{Compensating, Doubt, EffectDoubted, EffectFailed};
use super::fold::{Facts, Folded, RunHead};
use super::question::Question;
use super::record::{AttemptFailed, Fault, Record, RunEnded, RunOutcome, TaskDone, TaskFailed};
use super::rounds::Rounds;
use super::scope::{Task, TaskStatus};
use super::snapshot::Snapshot;
use super::terms::{Arguments, EffectTerms};
use crate::error::Failure;
use crate::id::NodeName;

/// A shorter text is found in too much that has nothing to do with it.
const SECRET_BYTES_MIN: usize = 8;

/// What stands in a text instead of a secret value.
const BLOT: &str = "[secret]";

/// Secret texts that are known at the moment.
#[derive(Default)]
pub(crate) struct SecretTexts(Vec<String>);

impl SecretTexts {
    /// The texts of the states, and of the results that are pending.
    pub(crate) fn learn_from(&mut self, folded: &Folded) {
        for scope in folded.scopes().filter(|scope| scope.kind.has_secrets()) {
            let schema = &scope.kind.schema;
            for field in schema.fields().iter().filter(|field| field.secret) {
                // What cannot be read cannot be stored either.
                scope.state.object().read(&field.name).into_iter().flatten().for_each(|value| self.learn(&value));
            }
            let results = scope.results();
            let changes = results.iter().flat_map(|done| &done.changes).chain(scope.facts.input.iter().flatten());
            changes.filter(|change| schema.is_secret(&change.field)).for_each(|change| {
                change.op.units().for_each(|unit| self.learn(unit));
            });
        }
    }

    /// The texts of a thread at work; none without secrets.
    pub(crate) fn of(folded: &Folded) -> Self {
        let mut texts = Self::default();
        texts.learn_from(folded);
        texts
    }

    /// The text as it is stored.
    pub(crate) fn blotted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        if self.is_in(&text) {
            self.blot(text.to_mut());
        }
        text
    }

    /// The texts in a value.
    pub(crate) fn learn(&mut self, value: &Value) {
        match value {
            // The longest first: a text may hold another one, which would take a part out of its middle.
            Value::String(text) if text.len() >= SECRET_BYTES_MIN => {
                let place = self.0.partition_point(|known| (known.len(), known) > (text.len(), text));
                if self.0.get(place) != Some(text) {
                    self.0.insert(place, text.clone());
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.learn(field)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn is_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.as_str()))
    }

    fn blot(&self, text: &mut String) {
        if self.is_in(text) {
            *text = self.0.iter().fold(std::mem::take(text), |text, secret| text.replace(secret.as_str(), BLOT));
        }
    }

    fn blot_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.blot(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.blot_value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.blot_value(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn blot_failure(&self, failure: &mut Failure) {
        let Failure { origin: _, class: _, message, causes, tried: _ } = failure;
        self.blot(message);
        causes.iter_mut().for_each(|cause| self.blot(cause));
    }

    fn blot_fault(&self, fault: &mut Fault) {
        let Fault { code: _, node: _, text, failure } = fault;
        self.blot(text);
        failure.iter_mut().for_each(|failure| self.blot_failure(failure));
    }

    fn blot_outcome(&self, outcome: &mut RunOutcome) {
        match outcome {
            RunOutcome::Failed(fault) => self.blot_fault(fault),
            RunOutcome::Done | RunOutcome::Waiting | RunOutcome::Suspended => {}
        }
    }

    /// What an effect is compensated with is for nodes, and stays as it is.
    fn blot_terms(&self, terms: &mut EffectTerms) {
        let EffectTerms { arguments, in_doubt: _, compensation: _ } = terms;
        self.blot_arguments(arguments.as_mut());
    }

    fn blot_arguments(&self, arguments: Option<&mut Arguments>) {
        arguments.into_iter().for_each(|arguments| self.blot(&mut arguments.shown));
    }

    fn blot_question(&self, question: &mut Arc<Question>) {
        let Question { text, show, .. } = Arc::make_mut(question);
        self.blot(text);
        show.iter_mut().for_each(|show| self.blot_value(show));
    }

    /// Blots the secrets out of what a record says to people. What it says to nodes stays as it is.
    pub(crate) fn blot_record(&self, record: &mut Record) {
        match record {
            Record::AttemptFailed(failed) => {
                let AttemptFailed { task: _, attempt: _, failure, next_at: _, began: _, cost: _ } = &mut **failed;
                self.blot_failure(failure);
            }
            Record::TaskFailed(failed) => {
                let TaskFailed { task: _, attempt: _, failure, handled: _, cost: _ } = &mut **failed;
                self.blot_failure(failure);
            }
            Record::Asked(question) => self.blot_question(question),
            Record::TaskDone(done) => self.blot_done(done),
            Record::Stepped(stepped) => {
                stepped.squashed.iter_mut().for_each(|squashed| self.blot_rounds(&mut squashed.rounds));
            }
            Record::Input(input) => self.blot_arguments(input.arguments.as_mut()),
            Record::EffectStarted(started) => self.blot_terms(&mut started.terms),
            Record::EffectDone(done) => done.terms.iter_mut().for_each(|terms| self.blot_terms(terms)),
            Record::EffectFailed(failed) => {
                let EffectFailed { effect: _, failure } = &mut **failed;
                self.blot_failure(failure);
            }
            Record::EffectDoubted(doubted) => {
                let EffectDoubted { effect: _, why, at: _ } = &mut **doubted;
                match why {
                    Doubt::Failed(failure) => self.blot_failure(failure),
                    Doubt::Interrupted | Doubt::TimedOut | Doubt::Dropped | Doubt::Cancelled => {}
                }
            }
            Record::Compensating(compensating) => {
                let Compensating { effects: _, why, at: _ } = &mut **compensating;
                why.iter_mut().for_each(|fault| self.blot_fault(fault));
            }
            Record::RunEnded(ended) => {
                let RunEnded { run: _, outcome, why: _, at: _ } = &mut **ended;
                self.blot_outcome(outcome);
            }
            // No texts for people: state, which is sealed, and values that nodes work with.
            Record::Opened(_)
            | Record::RunStarted(_)
            | Record::Answered(_)
            | Record::Closed(_)
            | Record::Expired(_)
            | Record::Reminded(_)
            | Record::Signalled(_)
            | Record::Delivered(_)
            | Record::Marked(_)
            | Record::Upgraded(_)
            | Record::Forked(_) => {}
        }
    }

    /// As [`blot_record`](Self::blot_record), for what a snapshot keeps of these texts.
    pub(crate) fn blot_snapshot(&self, snapshot: &mut Snapshot) {
        let Snapshot { facts, graph, inner } = snapshot;
        let Facts { questions, journals, run, rollback, .. } = facts;
        journals.values_mut().flat_map(|journal| &mut journal.effects).for_each(|effect| self.blot_terms(&mut effect.terms));
        let faults = rollback.iter_mut().filter_map(|rollback| rollback.why.as_mut());
        faults.for_each(|fault| self.blot_fault(fault));
        questions.iter_mut().for_each(|question| self.blot_question(question));
        if let Some(RunHead { started: _, ended: Some(outcome), why: _ }) = run {
            self.blot_outcome(outcome);
        }
        inner.iter_mut().for_each(|(_, scope)| self.blot_arguments(scope.facts.arguments.as_mut()));
        let scopes = std::iter::once(graph).chain(inner.iter_mut().map(|(_, scope)| scope));
        for facts in scopes.map(|scope| &mut scope.facts) {
            facts.rounds.iter_mut().for_each(|rounds| self.blot_rounds(rounds));
            facts.tasks.iter_mut().for_each(|task| self.blot_task(task));
        }
    }

    /// What a node told of, and went on without.
    fn blot_done(&self, done: &mut Arc<TaskDone>) {
        if !done.failures.is_empty() {
            Arc::make_mut(done).failures.iter_mut().for_each(|failure| self.blot_failure(failure));
        }
    }

    fn blot_rounds(&self, rounds: &mut BTreeMap<NodeName, Rounds>) {
        for Rounds { rounds: _, failures, actions, tried, rerouted: _, stopped: _ } in rounds.values_mut() {
            failures.iter_mut().chain(actions).for_each(|repeated| self.blot(&mut repeated.shown));
            tried.iter_mut().for_each(|tried| self.blot(tried));
        }
    }

    fn blot_task(&self, task: &mut Task) {
        let Task {
            due: _,
            status,
            attempts: _,
            spent: _,
            handling,
            again: _,
            feedback,
            rounds: _,
            judged: _,
            taken: _,
            refused,
            stopped: _,
            once: _,
            stalls: _,
        } = task;
        refused.iter_mut().for_each(|refused| self.blot(refused));
        feedback.iter_mut().for_each(|failure| self.blot_failure(failure));
        handling.iter_mut().for_each(|failure| self.blot_failure(failure));
        match status {
            TaskStatus::Failed(failure) => self.blot_failure(failure),
            TaskStatus::Done(done) => self.blot_done(done),
            TaskStatus::Open => {}
        }
    }
}

/// Whether a record says something to people.
pub(crate) fn tells(record: &Record) -> bool {
    match record {
        Record::TaskDone(done) => !done.failures.is_empty(),
        Record::Stepped(stepped) => stepped.squashed.as_ref().is_some_and(|squashed| !squashed.rounds.is_empty()),
        Record::Input(input) => input.arguments.is_some(),
        Record::AttemptFailed(_)
        | Record::TaskFailed(_)
        | Record::Asked(_)
        | Record::EffectStarted(_)
        | Record::EffectDone(_)
        | Record::EffectFailed(_)
        | Record::EffectDoubted(_)
        | Record::Compensating(_)
        | Record::RunEnded(_) => true,
        _ => false,
    }
}
