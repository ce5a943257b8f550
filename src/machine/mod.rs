//! What happens next: a state machine without async, clock or store.
//!
//! It is told what happened (a run begins, a task ended, an effect starts), answers with the records that say so and the
//! commands that follow from them, and folds these records at once. The runner must append the records before it carries
//! out a command; if that fails it drops the machine, and the log is the truth again.

mod answer;
mod begin;
mod edit;
mod effect;
mod step;
mod task;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::Failure;
use crate::graph::{Pauses, Shape};
use crate::id::{NodeName, StepNumber, TaskId, ThreadName};
use crate::log::{Durability, Fault, FoldError, Folded, Journal, Question, Record, RunEnded, RunOutcome, TaskStatus};
use crate::state::StateError;

pub(crate) use answer::{AnswerRefusal, GivenAnswer};
pub(crate) use begin::{Begin, Refusal};
pub(crate) use edit::EditRefusal;
pub(crate) use effect::EffectOutcome;
pub(crate) use step::panic_text;
pub(crate) use task::TaskEnd;

/// Time, chance and new identifiers, as the caller hands them in.
pub(crate) struct Env<'a> {
    pub(crate) now: Timestamp,
    pub(crate) new_id: &'a dyn Fn() -> Uuid,
    pub(crate) jitter: &'a dyn Fn() -> f64,
}

/// What the runner has to do once the records are appended.
#[derive(Debug)]
pub(crate) enum Command {
    Start(Start),
    /// Report `delay_over` after that time.
    Wait {
        index: usize,
        step: StepNumber,
        ms: u64,
    },
    End(Ending),
}

/// A task to start.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) index: usize,
    pub(crate) node: usize,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) payload: Option<Arc<Value>>,
    pub(crate) journal: Journal,
    /// What the node's error handler has to deal with, if that is what runs.
    pub(crate) handling: Option<Failure>,
    /// What the idempotency keys of its effects are made from.
    pub(crate) thread_id: Uuid,
}

/// How a run ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Done,
    Waiting(Vec<Arc<Question>>),
    Suspended,
    /// At a breakpoint.
    Paused,
    Failed(RunFailure),
}

/// What a run can fail of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunFailure {
    #[error("node \"{node}\" failed in attempt {attempt}: {failure}")]
    Node { node: NodeName, attempt: u32, failure: Failure },
    #[error(
        "the limit of {limit} steps for one run is used up; what is done is kept: resume the thread, with a higher limit if need be"
    )]
    StepLimit { limit: u64 },
    #[error("step {step} cannot be merged: {source}", step = .step.0)]
    Merge { step: StepNumber, source: StateError },
    #[error("the conditional edge after \"{node}\" {what}; it may lead to: {allowed}")]
    Route { node: NodeName, what: String, allowed: String },
}

impl RunFailure {
    /// The word for it that stays the same.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Node { failure, .. } => failure.origin.code(),
            Self::StepLimit { .. } => "step-limit",
            Self::Merge { source: StateError::UnknownMessage { .. }, .. } => "unknown-message",
            Self::Merge { source: StateError::Function { .. }, .. } => "merge-function",
            Self::Merge { .. } => "merge-conflict",
            Self::Route { .. } => "route",
        }
    }

    fn fault(&self) -> Fault {
        let node = match self {
            Self::Node { node, .. } | Self::Route { node, .. } => Some(node.clone()),
            Self::StepLimit { .. } | Self::Merge { .. } => None,
        };
        Fault { code: self.code().to_owned(), node, text: self.to_string() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    /// Not started in this run.
    Idle,
    Running {
        attempt: u32,
    },
    /// Waits for its next attempt.
    Delayed,
}

/// A thread in motion.
#[derive(Debug)]
pub(crate) struct Machine {
    shape: Arc<Shape>,
    thread: ThreadName,
    folded: Folded,
    /// What this process does for each task of the step.
    live: Vec<Live>,
    running: usize,
    running_by_node: HashMap<usize, usize>,
    /// Whether a look at the tasks may find one to start. Without it, each end of a wide step would look at all of them.
    look: bool,
    tasks_max: usize,
    durability: Durability,
    /// Nodes before and after which this run stops.
    pauses: Pauses,
    /// The nodes of the step that was merged last.
    merged: Vec<NodeName>,
    stopping: bool,
    /// Whether the run has ended: nothing that is reported later counts.
    ended: bool,
    records: Vec<Record>,
    commands: Vec<Command>,
}

/// A record that does not follow, or a state that cannot take a change: the log is damaged, or this is a bug.
pub(crate) type Step<T = ()> = Result<T, FoldError>;

impl Machine {
    pub(crate) fn new(shape: Arc<Shape>, thread: ThreadName, folded: Folded, tasks_max: usize, pauses: Pauses) -> Self {
        let live = vec![Live::Idle; folded.facts.tasks.len()];
        Self {
            shape,
            thread,
            folded,
            live,
            running: 0,
            running_by_node: HashMap::new(),
            look: true,
            tasks_max: tasks_max.max(1),
            durability: Durability::Step,
            pauses,
            merged: Vec::new(),
            stopping: false,
            ended: false,
            records: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// When the steps of the run are stored.
    pub(crate) fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        if durability == Durability::Exit {
            self.folded.applied = Some(Vec::new());
        }
        self
    }

    /// The changes that were applied in a run whose steps are stored as one.
    pub(crate) fn take_applied(&mut self) -> Vec<crate::state::Change> {
        self.folded.applied.take().unwrap_or_default()
    }

    pub(crate) fn folded(&self) -> &Folded {
        &self.folded
    }

    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    pub(crate) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Starts nothing new; the run ends as suspended when what is running has ended.
    pub(crate) fn stop(&mut self, env: &Env<'_>) -> Step {
        self.stopping = true;
        self.go_on(env)
    }

    /// The wait before a task's next attempt is over.
    pub(crate) fn delay_over(&mut self, index: usize, step: StepNumber, env: &Env<'_>) -> Step {
        if step == self.folded.facts.step_due() && self.live.get(index) == Some(&Live::Delayed) {
            self.live[index] = Live::Idle;
            self.look = true;
            return self.go_on(env);
        }
        Ok(())
    }

    fn record(&mut self, record: Record) -> Step {
        self.folded.fold(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// Starts what can start; when nothing is left to wait for, merges the step or ends the run.
    fn go_on(&mut self, env: &Env<'_>) -> Step {
        while !self.ended {
            if !self.stopping && self.look {
                self.look = self.start_ready();
            }
            let busy = self.running > 0 || (!self.stopping && self.live.contains(&Live::Delayed));
            if busy {
                return Ok(());
            }
            match self.verdict() {
                None if self.stopping => return self.end(Ending::Suspended, env),
                None => {
                    if let Err(failure) = self.merge_step()? {
                        return self.end(Ending::Failed(failure), env);
                    }
                    if self.stops_here() {
                        return self.end(Ending::Paused, env);
                    }
                }
                Some(ending) => return self.end(ending, env),
            }
        }
        Ok(())
    }

    /// Whether there is a breakpoint between the step that was merged and the one that is due.
    fn stops_here(&self) -> bool {
        let due = &self.folded.facts.tasks;
        let before = || due.iter().any(|task| self.pauses.before.contains(&task.due.node));
        let after = || self.merged.iter().any(|node| self.pauses.after.contains(node));
        before() || after()
    }

    /// How the run ends if nothing runs; `None` if there is a step to merge or to begin.
    fn verdict(&self) -> Option<Ending> {
        let facts = &self.folded.facts;
        if facts.tasks.is_empty() {
            return Some(Ending::Done);
        }
        for (index, task) in facts.tasks.iter().enumerate() {
            if let TaskStatus::Failed(failure) = &task.status {
                let (node, attempt) = (task.due.node.clone(), task.attempts);
                return Some(Ending::Failed(RunFailure::Node { node, attempt, failure: failure.clone() }));
            }
            if self.stopping && !matches!(task.status, TaskStatus::Done(_)) && !facts.waits(&facts.task_id(index)) {
                return Some(Ending::Suspended);
            }
        }
        if !facts.questions.is_empty() {
            return Some(Ending::Waiting(facts.questions.clone()));
        }
        if self.limit_reached() {
            let limit = facts.run.as_ref().map_or(0, |run| run.started.steps_max);
            return Some(Ending::Failed(RunFailure::StepLimit { limit }));
        }
        let all_done = facts.tasks.iter().all(|task| matches!(task.status, TaskStatus::Done(_)));
        (!all_done).then_some(Ending::Suspended)
    }

    /// Whether the run has made all the steps it may, and would have to begin another one.
    fn limit_reached(&self) -> bool {
        let facts = &self.folded.facts;
        let begun = facts.tasks.iter().any(|task| !matches!(task.status, TaskStatus::Open));
        !begun && facts.run.as_ref().is_some_and(|run| run.steps >= run.started.steps_max)
    }

    /// Starts what may start. True: a cap holds something back, so that the next end makes room for it.
    fn start_ready(&mut self) -> bool {
        let mut held_back = false;
        if self.limit_reached() {
            return false;
        }
        for index in 0..self.live.len() {
            if self.running >= self.tasks_max {
                return true;
            }
            let facts = &self.folded.facts;
            if self.live[index] != Live::Idle || facts.tasks[index].status != TaskStatus::Open {
                continue;
            }
            let task = facts.task_id(index);
            let Some(node) = self.shape.index(&task.node) else { continue };
            let running = self.running_by_node.get(&node).copied().unwrap_or(0);
            if facts.waits(&task) {
                continue;
            }
            if self.shape.nodes[node].policy.concurrency.is_some_and(|max| running >= max) {
                held_back = true;
                continue;
            }
            self.start(index, node, task);
        }
        held_back
    }

    fn start(&mut self, index: usize, node: usize, task: TaskId) {
        let facts = &self.folded.facts;
        let attempt = facts.tasks[index].attempts + 1;
        let journal = facts.journals.get(&task).cloned().unwrap_or_default();
        let payload = facts.tasks[index].due.payload.clone();
        let handling = facts.tasks[index].handling.clone();
        let thread_id = facts.id();
        self.live[index] = Live::Running { attempt };
        self.running += 1;
        if self.shape.nodes[node].policy.concurrency.is_some() {
            *self.running_by_node.entry(node).or_default() += 1;
        }
        self.commands.push(Command::Start(Start { index, node, task, attempt, payload, journal, handling, thread_id }));
    }

    fn end(&mut self, ending: Ending, env: &Env<'_>) -> Step {
        self.ended = true;
        let outcome = match &ending {
            Ending::Done => RunOutcome::Done,
            Ending::Waiting(_) => RunOutcome::Waiting,
            Ending::Suspended | Ending::Paused => RunOutcome::Suspended,
            Ending::Failed(failure) => RunOutcome::Failed(failure.fault()),
        };
        if let Some(run) = self.folded.facts.run.as_ref().map(|run| run.started.run) {
            self.record(Record::RunEnded(RunEnded { run, outcome, at: env.now }))?;
        }
        self.commands.push(Command::End(ending));
        Ok(())
    }
}
