//! How far a thread has come with what it is doing.

use super::fold::Folded;
use super::journal::EffectStatus;
use super::scope::{Scope, TaskStatus};
use crate::error::Failure;
use crate::id::{EffectId, TaskId};

/// How far a thread has come: with the tasks of the steps that are open, those of the graphs inside among them, and with what it did outside.
///
/// Tasks of steps that were merged are in the thread's history.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Tasks that have a result.
    pub done: Vec<TaskId>,
    /// Of these, those whose result is a fallback.
    pub degraded: Vec<TaskId>,
    /// Tasks that failed for good in the last run, and of what.
    pub failed: Vec<(TaskId, Failure)>,
    /// Tasks that still have to run, or wait for an answer.
    pub remaining: Vec<TaskId>,
    /// Effects of tasks without a result that were performed, and are not performed again.
    pub performed: Vec<EffectId>,
    /// Effects of which nobody knows whether they were performed.
    pub in_doubt: Vec<EffectId>,
    /// Effects that can be compensated, or that still are to be, the next one first.
    pub to_compensate: Vec<EffectId>,
    /// Effects that were compensated since the last input.
    pub compensated: Vec<EffectId>,
}

impl Folded {
    pub(crate) fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        // A graph that keeps its state keeps it also when nobody waits for it any more.
        let at_work = |scope: &&Scope| scope.facts.caller.as_ref().is_none_or(|caller| self.find(caller).is_some());
        for scope in self.scopes().filter(at_work) {
            for (index, task) in scope.facts.tasks.iter().enumerate() {
                let id = scope.task_id(index);
                match &task.status {
                    TaskStatus::Done(done) => {
                        progress.degraded.extend(done.degraded.then(|| id.clone()));
                        progress.done.push(id);
                    }
                    TaskStatus::Failed(failure) => progress.failed.push((id, failure.clone())),
                    TaskStatus::Open => progress.remaining.push(id),
                }
            }
        }
        for (task, journal) in &self.facts.journals {
            for effect in &journal.effects {
                match effect.status {
                    EffectStatus::Done(_) => progress.performed.push(effect.id(task)),
                    EffectStatus::Started => progress.in_doubt.push(effect.id(task)),
                }
            }
        }
        // Journals stand in no order; the effects of a task do, and a stable sort keeps it.
        progress.performed.sort_by(|a, b| a.task.cmp(&b.task));
        progress.in_doubt.sort_by(|a, b| a.task.cmp(&b.task));
        let effects = |todo: Vec<super::Compensable>| todo.into_iter().map(|known| known.effect).collect();
        match &self.facts.rollback {
            Some(rollback) => {
                progress.to_compensate = effects(rollback.todo.clone());
                progress.compensated.clone_from(&rollback.done);
            }
            None => progress.to_compensate = effects(self.compensable().into_iter().rev().collect()),
        }
        progress
    }
}
