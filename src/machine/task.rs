//! How an attempt of a task ends, and what follows.

use std::sync::Arc;

use super::{Command, Env, Live, Machine, Step};
use crate::error::{Class, Failure};
use crate::id::{EffectId, QuestionId, StepNumber, TaskId};
use crate::log::{AttemptFailed, Cost, Doubt, QuestionSpec, Record, Target, TaskDone, TaskFailed};
use crate::state::{Change, check, give_ids};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum TaskEnd {
    /// The node returned.
    Done { changes: Vec<Change>, label: Option<&'static str> },
    /// The node failed, or took too long.
    Failed { failure: Failure, retry_after: Option<std::time::Duration>, timed_out: bool },
    /// The node waits for a person: questions it asked, and effects that failed without telling whether they happened.
    Paused { questions: Vec<QuestionSpec>, doubts: Vec<(EffectId, Failure)> },
}

impl Machine {
    /// Takes in the end of an attempt. A late one, of a task that has moved on, changes nothing.
    pub(crate) fn task_ended(
        &mut self,
        (index, step): (usize, StepNumber),
        attempt: u32,
        end: TaskEnd,
        cost: Cost,
        env: &Env<'_>,
    ) -> Step {
        if step != self.folded.facts.step_due() || self.live.get(index) != Some(&Live::Running { attempt }) {
            return Ok(());
        }
        self.live[index] = Live::Idle;
        self.running -= 1;
        let task = self.folded.facts.task_id(index);
        if let Some(running) = self.shape.index(&task.node).and_then(|node| self.running_by_node.get_mut(&node)) {
            *running -= 1;
        }
        self.settle(index, task, attempt, end, cost, env)?;
        self.go_on(env)
    }

    fn settle(&mut self, index: usize, task: TaskId, attempt: u32, end: TaskEnd, cost: Cost, env: &Env<'_>) -> Step {
        let why = match &end {
            TaskEnd::Failed { timed_out: true, .. } => Doubt::TimedOut,
            _ => Doubt::Dropped,
        };
        match end {
            TaskEnd::Paused { questions, doubts } => {
                for (effect, failure) in doubts {
                    self.doubt_one(&effect, &Doubt::Failed(failure), env)?;
                }
                for spec in questions {
                    let question = spec.ask(QuestionId((env.new_id)()), task.clone(), env.now);
                    self.record(Record::Asked(Arc::new(question)))?;
                }
                self.doubt(&task, &why, env)?;
                Ok(())
            }
            // An effect that was started and has no outcome goes before whatever the node says.
            _ if self.doubt(&task, &why, env)? => Ok(()),
            TaskEnd::Done { changes, label } => self.finish(task, attempt, changes, label, cost),
            TaskEnd::Failed { failure, retry_after, .. } => {
                self.retry_or_fail(index, task, attempt, failure, retry_after, cost, env)
            }
        }
    }

    fn finish(&mut self, task: TaskId, attempt: u32, mut changes: Vec<Change>, label: Option<&'static str>, cost: Cost) -> Step {
        if let Err(error) = check(&self.shape.schema, &changes) {
            let failure =
                Failure { class: Class::Deterministic, message: format!("its update is refused: {error}"), causes: Vec::new() };
            return self.record(Record::TaskFailed(TaskFailed { task, attempt, failure, cost }));
        }
        let thread = &self.thread;
        give_ids(&self.shape.schema, &mut changes, || format!("{thread}:{task}"));
        let goto = label.map(|label| self.labelled(&task, label));
        self.record(Record::TaskDone(Arc::new(TaskDone { task, attempt, changes, goto, cost })))
    }

    /// The targets of a node's labelled edges.
    fn labelled(&self, task: &TaskId, label: &str) -> Vec<Target> {
        let exits = self.shape.index(&task.node).map(|node| &self.shape.nodes[node].exits);
        let labels = exits.into_iter().flat_map(|exits| &exits.labels).filter(|(name, _)| *name == label);
        labels.flat_map(|(_, targets)| targets).map(|target| Target::Node(self.shape.nodes[*target].name.clone())).collect()
    }

    #[allow(clippy::too_many_arguments, reason = "all of them go into the record")]
    fn retry_or_fail(
        &mut self,
        index: usize,
        task: TaskId,
        attempt: u32,
        failure: Failure,
        retry_after: Option<std::time::Duration>,
        cost: Cost,
        env: &Env<'_>,
    ) -> Step {
        let retry = self.shape.index(&task.node).map(|node| self.shape.nodes[node].policy.retry).unwrap_or_default();
        match retry.next_delay(attempt, failure.class, retry_after, (env.jitter)()) {
            None => self.record(Record::TaskFailed(TaskFailed { task, attempt, failure, cost })),
            Some(delay) => {
                let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let step = task.step;
                self.record(Record::AttemptFailed(AttemptFailed { task, attempt, failure, next_at: env.now.plus_ms(ms), cost }))?;
                self.live[index] = Live::Delayed;
                self.commands.push(Command::Wait { index, step, ms });
                Ok(())
            }
        }
    }
}
