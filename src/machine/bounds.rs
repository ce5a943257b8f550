//! What must not grow without end: states, updates, tasks and questions.

use super::{Machine, RunFailure, TaskEnd, step::Scheduled};
use crate::error::{Failure, TooLarge};
use crate::id::StepNumber;
use crate::log::Scope;
use crate::state::{Change, changes_bytes, state_bytes, value_bytes};

/// How large things may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Tasks that are due in one step.
    pub(crate) step_tasks: usize,
    /// Bytes of what is written or stored at once.
    pub(crate) update_bytes: u64,
    /// Bytes of the state of each graph.
    pub(crate) state_bytes: u64,
    /// Open questions of the thread.
    pub(crate) questions: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { step_tasks: 100_000, update_bytes: 16 << 20, state_bytes: 256 << 20, questions: 10_000 }
    }
}

impl Bounds {
    /// The limit that lets nothing through, by the name it is set with.
    pub(crate) fn zero(&self) -> Option<&'static str> {
        let Self { step_tasks, update_bytes, state_bytes, questions } = *self;
        let limits = [
            ("step_tasks_max", step_tasks == 0),
            ("update_bytes_max", update_bytes == 0),
            ("state_bytes_max", state_bytes == 0),
            ("questions_max", questions == 0),
        ];
        limits.into_iter().find_map(|(name, is_zero)| is_zero.then_some(name))
    }

    /// Whether changes may be that large.
    pub(super) fn changes(&self, what: impl FnOnce() -> String, changes: &[Change]) -> Result<(), RunFailure> {
        TooLarge::check(what, changes_bytes(changes), self.update_bytes).map_err(RunFailure::UpdateLimit)
    }

    /// Whether a state may be as large as a step has made it. It is measured where it is not known how large it was, and where it may have become
    /// too large by all that was written since.
    pub(super) fn state(&self, scope: &mut Scope, step: StepNumber) -> Result<(), RunFailure> {
        if scope.bytes.is_some_and(|bytes| bytes <= self.state_bytes) {
            return Ok(());
        }
        let measured = state_bytes(&scope.kind.schema, &scope.state);
        let bytes = measured.map_err(|source| RunFailure::Merge { step, source })?;
        scope.bytes = Some(bytes);
        let limit = self.state_bytes;
        if bytes <= limit { Ok(()) } else { Err(RunFailure::StateLimit { step, bytes, limit }) }
    }

    /// Whether so much may be due.
    pub(super) fn due(&self, next: Scheduled, step: StepNumber) -> Result<Scheduled, RunFailure> {
        let (tasks, limit) = (next.due.len(), self.step_tasks);
        if tasks > limit {
            return Err(RunFailure::TaskLimit { step, tasks, limit });
        }
        for due in &next.due {
            let bytes = due.payload.as_ref().map_or(0, |payload| value_bytes(payload));
            let what = || format!("what step {} sends to \"{}\"", step.0, due.node);
            TooLarge::check(what, bytes, self.update_bytes).map_err(RunFailure::UpdateLimit)?;
        }
        Ok(next)
    }
}

impl Machine {
    /// How large things may be.
    pub(crate) fn bounded(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// A task that asks for more answers than the thread may wait for fails of that. Where it is also not known what came of an effect, that comes
    /// first: it asks again when it runs again.
    pub(super) fn asking(&self, end: TaskEnd) -> TaskEnd {
        let TaskEnd::Paused { questions, doubts } = end else { return end };
        let (open, limit) = (self.folded.facts.questions.len(), self.bounds.questions);
        if open.saturating_add(questions.len()) <= limit || questions.is_empty() {
            return TaskEnd::Paused { questions, doubts };
        }
        if !doubts.is_empty() {
            return TaskEnd::Paused { questions: Vec::new(), doubts };
        }
        let failure = Failure::too_many_questions(open, questions.len(), limit);
        TaskEnd::Failed { failure, retry_after: None, timed_out: false, result: None }
    }
}
