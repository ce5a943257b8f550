//! What comes without a caller: signals, alarms that ring, and conditions that hold a node back.

use std::sync::Arc;

use serde_json::Value;

use super::answer::fits;
use super::{Env, Live, Machine, Step, TaskEnd};
use crate::error::{Class, Failure, Origin, TooLarge};
use crate::id::{QuestionId, TaskId};
use crate::log::{
    Delivered, Durability, Question, QuestionKind, QuestionSpec, Record, Reminded, RunOutcome, Signalled, Suspension,
};
use crate::state::{DEPTH_MAX, is_within_depth, value_bytes};

/// How many signals a thread keeps that nothing has waited for.
pub(crate) const SIGNALS_MAX: usize = 1_000;

/// A signal that is about to be recorded.
#[derive(Clone, Debug)]
pub(crate) struct GivenSignal {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) value: Value,
    pub(crate) by: Option<String>,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// What waited for it goes on.
    Delivered,
    /// Nothing waits for it yet.
    Kept,
    /// The thread had it already.
    Known,
}

/// Why a signal is not accepted. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignalRefusal {
    #[error("the graph knows no signal \"{name}\"; declared with `.signal::<T>(..)` are: {known}")]
    Unknown { name: String, known: String },
    #[error("the signal \"{name}\" does not say what the graph declares: {what}; nothing was recorded")]
    Misfit { name: String, what: String },
    #[error("{0}; nothing was recorded")]
    TooLarge(TooLarge),
    #[error("the thread is finished, and nothing in it will wait for the signal \"{0}\"")]
    Finished(String),
    #[error("the thread has {SIGNALS_MAX} signals that nothing has waited for, and takes no more; nothing was recorded")]
    TooMany,
}

impl SignalRefusal {
    /// The word for it that stays the same.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => Origin::Signal.code(),
            Self::Misfit { .. } => "signal-misfit",
            Self::TooLarge(_) => Origin::UpdateLimit.code(),
            Self::Finished(_) => "thread-finished",
            Self::TooMany => "signal-limit",
        }
    }
}

impl Machine {
    /// Takes in a signal. `None`: this run cannot take any.
    pub(crate) fn signal(&mut self, given: GivenSignal, env: &Env<'_>) -> Step<Option<Result<Taken, SignalRefusal>>> {
        // What such a run has asked is stored only when it ends.
        let cannot = self.ended || self.stopping || self.durability == Durability::Exit;
        if cannot && self.is_in_motion() {
            return Ok(None);
        }
        // Whatever has become of the thread since: who sends it again must hear that it came.
        if given.id.as_ref().is_some_and(|id| self.folded.facts.signal_ids.contains(id)) {
            return Ok(Some(Ok(Taken::Known)));
        }
        if let Err(refusal) = self.check_signal(&given) {
            return Ok(Some(Err(refusal)));
        }
        let GivenSignal { id, name, value, by } = given;
        let id = id.unwrap_or_else(|| (env.new_id)().to_string());
        self.record(Record::Signalled(Box::new(Signalled { id: id.clone(), name: name.clone(), value, by, at: env.now })))?;
        let waits =
            |question: &&Arc<Question>| question.kind == QuestionKind::Signal(name.clone()) && !question.is_overdue(env.now);
        let Some(question) = self.folded.facts.questions.iter().find(waits).cloned() else { return Ok(Some(Ok(Taken::Kept))) };
        self.deliver(id, &question, env)?;
        if self.is_in_motion() {
            self.wake(&question, env)?;
        }
        Ok(Some(Ok(Taken::Delivered)))
    }

    /// Whether a run goes on.
    fn is_in_motion(&self) -> bool {
        self.folded.facts.run.as_ref().is_some_and(|run| run.ended.is_none()) && self.serial > 0
    }

    fn check_signal(&self, given: &GivenSignal) -> Result<(), SignalRefusal> {
        let name = given.name.clone();
        let Some(signal) = self.root.shape.signal(&name) else {
            return Err(SignalRefusal::Unknown { name, known: self.root.shape.signal_names() });
        };
        if !is_within_depth(&given.value) {
            return Err(SignalRefusal::Misfit { name, what: format!("it is nested deeper than {DEPTH_MAX} levels") });
        }
        let what = || format!("the signal \"{name}\"");
        TooLarge::check(what, value_bytes(&given.value), self.bounds.update_bytes).map_err(SignalRefusal::TooLarge)?;
        fits(&QuestionKind::Signal(name.clone()), &signal.schema, &given.value)
            .map_err(|what| SignalRefusal::Misfit { name: name.clone(), what })?;
        if self.folded.root.is_finished() {
            return Err(SignalRefusal::Finished(name));
        }
        if self.folded.facts.signals.len() >= SIGNALS_MAX {
            return Err(SignalRefusal::TooMany);
        }
        Ok(())
    }

    fn deliver(&mut self, signal: String, question: &Question, env: &Env<'_>) -> Step {
        self.record(Record::Delivered(Box::new(Delivered { signal, question: question.id, at: env.now })))
    }

    /// A question is asked. What it waits for may be there already: true then.
    pub(super) fn ask(&mut self, mut spec: QuestionSpec, task: &TaskId, env: &Env<'_>) -> Step<bool> {
        if let QuestionKind::Signal(name) = &spec.kind
            && let Some(signal) = self.root.shape.signal(name)
        {
            spec.schema = signal.schema.clone();
        }
        let question = Arc::new(spec.ask(QuestionId((env.new_id)()), task.clone(), env.now, env.terms));
        self.record(Record::Asked(Arc::clone(&question)))?;
        let QuestionKind::Signal(name) = &question.kind else { return Ok(false) };
        let came = self.folded.facts.signals.iter().find(|signal| signal.name == *name).map(|signal| signal.id.clone());
        let Some(came) = came else { return Ok(false) };
        self.deliver(came, &question, env)?;
        Ok(true)
    }

    /// A task that waits for a signal which the graph does not know would wait for ever: it fails.
    pub(super) fn waiting_for_known(&self, end: TaskEnd) -> TaskEnd {
        let TaskEnd::Paused { questions, .. } = &end else { return end };
        let unknown = questions.iter().find_map(|spec| match &spec.kind {
            QuestionKind::Signal(name) if self.root.shape.signal(name).is_none() => Some(name),
            _ => None,
        });
        let Some(name) = unknown else { return end };
        let message = SignalRefusal::Unknown { name: name.clone(), known: self.root.shape.signal_names() }.to_string();
        let failure = Failure { origin: Origin::Signal, class: Class::Deterministic, message, causes: Vec::new(), tried: false };
        TaskEnd::Failed { failure, retry_after: None, timed_out: false, result: None }
    }

    /// Notes that somebody is told or reminded of the questions for which it is time.
    pub(crate) fn remind(&mut self, env: &Env<'_>) -> Step {
        let is_due = |question: &&Arc<Question>| !question.is_overdue(env.now) && question.calls_by(env.now) > question.reminded;
        let due: Vec<_> = self.folded.facts.questions.iter().filter(is_due).cloned().collect();
        for question in due {
            let reminders = question.calls_by(env.now);
            self.record(Record::Reminded(Box::new(Reminded { question: question.id, reminders, at: env.now })))?;
        }
        Ok(())
    }

    /// What is due rings while the run goes on: reminders, and deadlines, after which who asked goes on or the run ends. `None`: this run cannot do that.
    pub(crate) fn ring(&mut self, env: &Env<'_>) -> Step<Option<()>> {
        if self.ended || self.stopping || self.durability == Durability::Exit {
            return Ok(None);
        }
        self.remind(env)?;
        let is_overdue = |question: &&Arc<Question>| question.is_overdue(env.now);
        let expired: Vec<_> = self.folded.facts.questions.iter().filter(is_overdue).cloned().collect();
        if self.expire(env)? {
            self.stop(Suspension::Expired, env)?;
        } else {
            expired.iter().try_for_each(|question| self.wake(question, env))?;
        }
        Ok(Some(()))
    }

    /// Whether a task that is about to begin is held back by the condition of its node. Nobody is asked; the thread waits outside.
    pub(super) fn is_held_back(&mut self, index: usize, node: usize, task: &TaskId, env: &Env<'_>) -> Step<bool> {
        let (Some(scope), Some(motion)) = (self.folded.scope(&task.path), self.motion(&task.path)) else { return Ok(false) };
        let shape = &motion.shape.nodes[node];
        let Some(when) = shape.when.as_ref().filter(|_| scope.facts.tasks[index].attempts == 0) else { return Ok(false) };
        if when.holds(scope.state.object()) {
            return Ok(false);
        }
        let spec = when.spec(shape.name.as_str());
        self.ask(spec, task, env)?;
        self.motion_mut(&task.path).into_iter().for_each(|motion| motion.tasks[index] = Live::Paused);
        Ok(true)
    }

    /// The process died again and again while the thread ran: its run ends, and somebody has to look at it.
    pub(crate) fn give_to_a_person(&mut self, env: &Env<'_>) -> Step {
        self.record_end(RunOutcome::Suspended, Some(Suspension::Dying), env)
    }
}
