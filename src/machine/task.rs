//! How an attempt of a task ends, and what follows.

use std::sync::Arc;

use super::{Command, Env, Live, Machine, Step};
use crate::error::{Class, Failure, Origin};
use crate::graph::NodeShape;
use crate::id::{EffectId, NodeName, QuestionId, StepNumber, TaskId};
use crate::log::{AttemptFailed, Cost, Doubt, QuestionSpec, Record, Target, TaskDone, TaskFailed, TaskStatus};
use crate::state::{Change, DEPTH_MAX, check, give_ids, is_within_depth};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum TaskEnd {
    /// The node returned.
    Done { changes: Vec<Change>, label: Option<&'static str>, goto: Option<Vec<Target>> },
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
        // Its error handler may have to start.
        self.look |= self.folded.facts.tasks[index].status == TaskStatus::Open;
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
            TaskEnd::Done { changes, label, goto } => {
                let handled = self.folded.facts.tasks[index].handling.is_some();
                let goto = label.map(|label| self.labelled(&task, label)).or(goto);
                self.finish(TaskDone { task, attempt, changes, goto, handled, cost })
            }
            TaskEnd::Failed { failure, retry_after, .. } => {
                self.retry_or_fail(index, task, attempt, failure, retry_after, cost, env)
            }
        }
    }

    fn finish(&mut self, mut done: TaskDone) -> Step {
        let refused = check(&self.shape.schema, &done.changes).err().map(|error| format!("its update is refused: {error}"));
        let refused = refused.map(|message| (Origin::Update, message));
        if let Some((origin, message)) = refused.or_else(|| self.refused_goto(&done).map(|message| (Origin::Goto, message))) {
            let TaskDone { task, attempt, cost, .. } = done;
            let failure = Failure { origin, class: Class::Deterministic, message, causes: Vec::new() };
            return self.record(Record::TaskFailed(TaskFailed { task, attempt, failure, handled: false, cost }));
        }
        let (thread, task) = (&self.thread, done.task.clone());
        give_ids(&self.shape.schema, &mut done.changes, || format!("{thread}:{task}"));
        self.record(Record::TaskDone(Arc::new(done)))
    }

    /// A node that says itself where to go keeps to what it declared.
    fn refused_goto(&self, done: &TaskDone) -> Option<String> {
        let node = self.shape.index(&done.task.node)?;
        let NodeShape { leads_to, on_error_leads_to, exits, .. } = &self.shape.nodes[node];
        let leads_to = if done.handled { on_error_leads_to } else { leads_to };
        let labelled = |name: &NodeName| exits.labels.iter().flat_map(|(_, to)| to).any(|to| self.shape.nodes[*to].name == *name);
        let deep =
            done.goto.iter().flatten().any(|target| matches!(target, Target::Send { payload, .. } if !is_within_depth(payload)));
        if deep {
            return Some(format!("it sends a payload nested deeper than {DEPTH_MAX} levels"));
        }
        let wrong = done.goto.iter().flatten().find_map(|target| {
            let (Target::Node(name) | Target::Past(name) | Target::Send { node: name, .. }) = target;
            (!leads_to.contains(name) && !labelled(name)).then_some(name)
        })?;
        let allowed = leads_to.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
        Some(format!("it goes to \"{wrong}\"; declared with `leads_to` are: {allowed}"))
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
        let (handling, spent) = (self.folded.facts.tasks[index].handling.is_some(), self.folded.facts.tasks[index].spent);
        let retries = self.shape.index(&task.node).map(|node| &self.shape.nodes[node].policy.retries).filter(|_| !handling);
        let retry = retries.into_iter().flatten().find(|retry| retry.is_for(failure.class)).copied();
        match retry.unwrap_or_default().next_delay(attempt - spent, failure.class, retry_after, (env.jitter)()) {
            None => {
                let first = self.folded.facts.tasks[index].handling.is_none();
                let handled = first && self.shape.index(&task.node).is_some_and(|node| self.shape.nodes[node].policy.handled);
                self.record(Record::TaskFailed(TaskFailed { task, attempt, failure, handled, cost }))
            }
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
