//! Who waits for what: which tasks and graphs can do nothing before something is answered.

use super::fold::Folded;
use super::scope::{Scope, Task, TaskStatus};
use crate::id::{Path, TaskId};

impl Folded {
    /// Whether a task can do nothing before a person has answered: it asked, or all that is left of the graphs it called did.
    pub(crate) fn waits(&self, task: &TaskId) -> bool {
        let questions = &self.facts.questions;
        if questions.is_empty() {
            return false;
        }
        if questions.iter().any(|question| self.stops(question, task)) {
            return true;
        }
        let mut asked = questions.iter().filter(|question| self.works_for(&question.task.path, task)).peekable();
        let depth = task.path.frames().len() + 1;
        let called = |scope: &Scope| scope.facts.caller.as_ref() == Some(task);
        let can_go_on = |scope: &Scope| called(scope) && !scope.is_finished() && !self.is_stuck(scope);
        // Without a record of the graph it begins anew, which makes no sense before all of it is answered.
        asked.peek().is_some()
            && asked.all(|question| {
                let inner = question.task.path.to_depth(depth);
                self.is_ahead(&inner, &question.task) || self.scope(&inner).is_none_or(|scope| self.is_stuck(scope))
            })
            && !self.inner.values().any(can_go_on)
    }

    /// Whether the graph at `path` is at work for a task, however deep. Of one that keeps its state the path does not tell for which.
    pub(crate) fn works_for(&self, path: &Path, task: &TaskId) -> bool {
        let called = path.to_depth(task.path.frames().len() + 1);
        path.is_inside(task) && self.scope(&called).is_none_or(|scope| scope.facts.caller.as_ref() == Some(task))
    }

    /// Whether a task inside the graph at `path` belongs to steps that are not recorded: what is known of it still counts when they are
    /// made again. Only a call is made again; an input of the thread's own is recorded before its steps.
    pub(crate) fn is_ahead(&self, path: &Path, task: &TaskId) -> bool {
        if path.is_root() {
            return false;
        }
        let Some(scope) = self.scope(path) else { return true };
        match task.step_in(path) {
            Some(step) => step > scope.step_due(),
            // It is in a graph that keeps its state, whose own steps tell.
            None => self.is_ahead(&task.path.to_depth(path.frames().len() + 1), task),
        }
    }

    /// Whether nothing in a graph can go on.
    pub(crate) fn is_stuck(&self, scope: &Scope) -> bool {
        let mut tasks = scope.facts.tasks.iter().enumerate().peekable();
        let waits = |(index, task): (usize, &Task)| match task.status {
            TaskStatus::Done(_) => true,
            TaskStatus::Open => self.waits(&scope.task_id(index)),
            TaskStatus::Failed(_) => false,
        };
        scope.facts.input.is_none() && tasks.peek().is_some() && tasks.all(waits) && self.asks_within(&scope.path)
    }

    /// Whether a question is open in the graph at `path`, or deeper.
    pub(crate) fn asks_within(&self, path: &Path) -> bool {
        self.facts.questions.iter().any(|question| question.task.path.is_within(path))
    }
}
