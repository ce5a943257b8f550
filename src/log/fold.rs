//! The fold: what the records of a thread amount to. Nobody else interprets records.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::question::{Question, QuestionKind};
use super::record::{Arrival, Due, Forked, Input, Opened, Record, RunOutcome, RunStarted, Source, Stepped, TaskDone, TaskRef};
use crate::error::Failure;
use crate::id::{BranchId, EffectId, NodeName, Path, Position, QuestionId, StepNumber, TaskId};
use crate::state::{Change, Schema, StateCell, StateError, resolve};

/// A record that cannot follow what came before it: a damaged log, or a bug.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The record speaks of something that is not there.
    #[error("record {position} ({what}) does not follow from the records before it", position = .position.0)]
    Misplaced {
        /// Which record.
        position: Position,
        /// What it is.
        what: &'static str,
    },
    /// A change cannot be applied to the state.
    #[error(transparent)]
    State(#[from] StateError),
}

/// How a task of the current step stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStatus {
    /// It has no result yet.
    Open,
    /// Its result is pending.
    Done(Arc<TaskDone>),
    /// Its last attempt failed for good in the last run.
    Failed(Failure),
}

/// A task of the current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) due: Due,
    pub(crate) status: TaskStatus,
    /// Attempts that ended.
    pub(crate) attempts: u32,
    /// Attempts that ended before the task failed for good the last time: the policy counts from there.
    #[serde(default)]
    pub(crate) spent: u32,
    /// What the node's error handler has to deal with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handling: Option<Failure>,
}

/// How an effect of an open task stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EffectStatus {
    /// Started, without a certain outcome.
    Started,
    /// Performed, with this result.
    Done(Value),
}

/// What a node that runs again must not do again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) effects: Vec<(Arc<str>, u32, EffectStatus)>,
    pub(crate) answers: Vec<(Arc<str>, u32, Value)>,
}

impl Journal {
    pub(crate) fn effect(&self, key: &str, occurrence: u32) -> Option<&EffectStatus> {
        self.effects.iter().find(|(k, n, _)| &**k == key && *n == occurrence).map(|(_, _, status)| status)
    }

    pub(crate) fn answer(&self, key: &str, occurrence: u32) -> Option<&Value> {
        self.answers.iter().find(|(k, n, _)| &**k == key && *n == occurrence).map(|(_, _, value)| value)
    }

    fn set_effect(&mut self, effect: &EffectId, status: Option<EffectStatus>) {
        self.effects.retain(|(key, n, _)| (key, n) != (&effect.key, &effect.occurrence));
        if let Some(status) = status {
            self.effects.push((effect.key.clone(), effect.occurrence, status));
        }
    }
}

/// The run that is going on, or the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunHead {
    pub(crate) started: RunStarted,
    pub(crate) steps: u64,
    pub(crate) ended: Option<RunOutcome>,
}

/// Where the newest checkpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) position: Position,
    pub(crate) step: StepNumber,
    pub(crate) source: Source,
}

/// Everything that the fold of a thread yields, but for its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Position of the next record.
    pub(crate) next: Position,
    pub(crate) opened: Option<Opened>,
    pub(crate) branch: BranchId,
    pub(crate) head: Option<Head>,
    /// An input that is not applied yet.
    pub(crate) input: Option<Vec<Change>>,
    /// The tasks of the current step: those due by edges, then the sent ones.
    pub(crate) tasks: Vec<Task>,
    pub(crate) edge_tasks: usize,
    pub(crate) arrivals: Vec<Arrival>,
    #[serde(default)]
    pub(crate) deferred: Vec<NodeName>,
    pub(crate) questions: Vec<Arc<Question>>,
    /// Effects and answers of tasks that are not merged yet.
    #[serde(with = "journal_list")]
    pub(crate) journals: HashMap<TaskId, Journal>,
    pub(crate) run: Option<RunHead>,
    pub(crate) steps_total: u64,
    /// How often the thread was forked.
    #[serde(default)]
    pub(crate) forks: u32,
    /// The nodes that ran last, or that an edit stood for.
    #[serde(default)]
    pub(crate) last: Vec<NodeName>,
}

impl Facts {
    /// Identity of the task at that place of the current step.
    pub(crate) fn task_id(&self, index: usize) -> TaskId {
        TaskId {
            branch: self.branch,
            path: Path::ROOT,
            step: self.step_due(),
            node: self.tasks[index].due.node.clone(),
            send: self.send_of(index),
        }
    }

    pub(crate) fn send_of(&self, index: usize) -> Option<u32> {
        index.checked_sub(self.edge_tasks).and_then(|send| u32::try_from(send).ok())
    }

    /// Place of a task in the current step, if it belongs to it.
    pub(crate) fn index_of(&self, task: &TaskId) -> Option<usize> {
        if task.branch != self.branch || task.step != self.step_due() || !task.path.is_root() {
            return None;
        }
        let index = match task.send {
            Some(send) => self.edge_tasks + send as usize,
            None => self.tasks[..self.edge_tasks].iter().position(|t| t.due.node == task.node)?,
        };
        (self.tasks.get(index)?.due.node == task.node).then_some(index)
    }

    /// What the idempotency keys of the thread's effects are made from.
    pub(crate) fn id(&self) -> Uuid {
        self.opened.as_ref().map_or(Uuid::nil(), |opened| opened.id)
    }

    /// The number that the next checkpoint will get.
    pub(crate) fn step_due(&self) -> StepNumber {
        self.head.map_or(StepNumber(-1), |head| head.step.next())
    }

    /// Whether a task waits for a person.
    pub(crate) fn waits(&self, task: &TaskId) -> bool {
        self.questions.iter().any(|q| q.task == *task)
    }

    pub(crate) fn question(&self, id: QuestionId) -> Option<&Arc<Question>> {
        self.questions.iter().find(|q| q.id == id)
    }

    /// Effects of a task that were started and have no certain outcome, other than those a question is open about.
    pub(crate) fn doubtful(&self, task: &TaskId) -> Vec<EffectId> {
        let Some(journal) = self.journals.get(task) else { return Vec::new() };
        let started = journal.effects.iter().filter(|(_, _, status)| *status == EffectStatus::Started);
        started
            .map(|(key, occurrence, _)| EffectId { task: task.clone(), key: key.clone(), occurrence: *occurrence })
            .filter(|effect| !self.questions.iter().any(|q| q.kind == QuestionKind::Doubt(effect.clone())))
            .collect()
    }
}

/// A thread as its log tells it: the state, and everything needed to go on.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) schema: Arc<Schema>,
    pub(crate) state: StateCell,
    pub(crate) facts: Facts,
    /// The changes in the order in which they were applied, if somebody wants to know.
    pub(crate) applied: Option<Vec<Change>>,
}

impl Folded {
    /// A thread without records.
    pub(crate) fn new(schema: Arc<Schema>, state: StateCell) -> Self {
        Self { schema, state, facts: Facts::default(), applied: None }
    }

    /// Takes in the next record.
    pub(crate) fn fold(&mut self, record: &Record) -> Result<(), FoldError> {
        let facts = &mut self.facts;
        match record {
            Record::Opened(opened) => facts.opened = Some((**opened).clone()),
            Record::RunStarted(started) => self.start_run(started),
            Record::Input(input) => facts.take_input(input),
            Record::TaskDone(done) => {
                let task = facts.task_mut(&done.task, "task_done")?;
                task.status = TaskStatus::Done(Arc::clone(done));
                task.attempts = done.attempt;
            }
            Record::AttemptFailed(failed) => facts.task_mut(&failed.task, "attempt_failed")?.attempts = failed.attempt,
            Record::TaskFailed(failed) => {
                let task = facts.task_mut(&failed.task, "task_failed")?;
                if failed.handled {
                    task.handling = Some(failed.failure.clone());
                } else {
                    task.status = TaskStatus::Failed(failed.failure.clone());
                }
                (task.attempts, task.spent) = (failed.attempt, failed.attempt);
            }
            Record::Asked(question) => facts.questions.push(Arc::clone(question)),
            Record::Answered(answered) => facts.answer(answered.question, &answered.value)?,
            Record::Closed(closed) => facts.questions.retain(|q| !closed.questions.contains(&q.id)),
            Record::EffectStarted(started) => facts.set_effect(&started.effect, Some(EffectStatus::Started)),
            Record::EffectDone(done) => facts.set_effect(&done.effect, Some(EffectStatus::Done(done.result.clone()))),
            Record::EffectFailed(failed) => facts.set_effect(&failed.effect, None),
            Record::EffectDoubted(doubted) => facts.set_effect(&doubted.effect, Some(EffectStatus::Started)),
            Record::Stepped(stepped) => {
                if stepped.as_node.is_some() {
                    self.give_up();
                }
                self.merge(&stepped.merged, &stepped.resolved)?;
                self.schedule(stepped);
                return Ok(());
            }
            Record::Forked(forked) => facts.fork(forked),
            Record::RunEnded(ended) => {
                if let Some(run) = &mut facts.run {
                    run.ended = Some(ended.outcome.clone());
                }
            }
        }
        self.facts.next.0 += 1;
        Ok(())
    }

    fn start_run(&mut self, started: &RunStarted) {
        self.facts.run = Some(RunHead { started: started.clone(), steps: 0, ended: None });
        for task in &mut self.facts.tasks {
            if matches!(task.status, TaskStatus::Failed(_)) {
                task.status = TaskStatus::Open;
                task.handling = None;
            }
        }
    }

    /// An edit takes the place of an input that is not applied, and of everything that was due.
    pub(crate) fn give_up(&mut self) {
        self.facts.input = None;
        self.facts.drop_open_work();
        self.facts.end_run();
    }

    /// Applies what the tasks of the step wrote, in merge order, then what stands instead. The first half of a `stepped`.
    pub(crate) fn merge(&mut self, merged: &[TaskRef], resolved: &[Change]) -> Result<(), FoldError> {
        if let Some(input) = self.facts.input.take() {
            self.apply_unless(&input, resolved)?;
        }
        for task in merged {
            let id = TaskId {
                branch: self.facts.branch,
                path: Path::ROOT,
                step: self.facts.step_due(),
                node: task.node.clone(),
                send: task.send,
            };
            let index = self.facts.index_of(&id);
            let Some(TaskStatus::Done(done)) = index.map(|index| &self.facts.tasks[index].status) else {
                return Err(FoldError::Misplaced { position: self.facts.next, what: "stepped" });
            };
            self.apply_unless(&Arc::clone(done).changes, resolved)?;
        }
        self.apply_unless(resolved, &[])
    }

    /// Applies changes, but for those of fields whose outcome is resolved.
    fn apply_unless(&mut self, changes: &[Change], resolved: &[Change]) -> Result<(), FoldError> {
        if resolved.is_empty() {
            self.state.apply(changes)?;
            self.applied.iter_mut().for_each(|applied| applied.extend_from_slice(changes));
            return Ok(());
        }
        let kept: Vec<Change> = changes.iter().filter(|c| resolved.iter().all(|r| r.field != c.field)).cloned().collect();
        self.apply_unless(&kept, &[])
    }

    /// The state with the results that are pending in the open step. Results that are in conflict are left out.
    pub(crate) fn live(&self) -> Result<StateCell, FoldError> {
        let done: Vec<&Arc<TaskDone>> = self
            .facts
            .tasks
            .iter()
            .filter_map(|task| match &task.status {
                TaskStatus::Done(done) => Some(done),
                _ => None,
            })
            .collect();
        let writes: Vec<_> = done.iter().map(|done| (&done.task, &*done.changes)).collect();
        let Ok(resolved) = resolve(&self.schema, self.state.object(), &writes) else { return Ok(self.state.clone()) };
        let merged: Vec<_> = done.iter().map(|d| TaskRef { node: d.task.node.clone(), send: d.task.send }).collect();
        let mut live = self.clone();
        live.merge(&merged, &resolved)?;
        Ok(live.state)
    }

    /// What comes next. The second half of a `stepped`.
    pub(crate) fn schedule(&mut self, stepped: &Stepped) {
        self.facts.schedule(stepped);
        self.facts.next.0 += 1;
    }
}

impl Facts {
    /// What was pending in the line that is left stays behind.
    fn fork(&mut self, forked: &Forked) {
        self.end_run();
        self.branch = forked.branch;
        self.forks = self.forks.max(forked.branch.0);
        self.drop_open_work();
    }

    /// A run of the line that is left, or that was edited, is no run that goes on.
    fn end_run(&mut self) {
        if let Some(run) = &mut self.run {
            run.ended.get_or_insert(RunOutcome::Suspended);
        }
    }

    /// Forgets results, questions and effects of tasks that will never be merged.
    pub(crate) fn drop_open_work(&mut self) {
        for task in &mut self.tasks {
            *task = Task { due: task.due.clone(), status: TaskStatus::Open, attempts: 0, spent: 0, handling: None };
        }
        self.questions.clear();
        self.journals.clear();
    }

    fn take_input(&mut self, input: &Input) {
        self.head = Some(Head { position: self.next, step: input.step, source: Source::Input });
        self.input = Some(input.changes.clone());
        self.tasks.clear();
        self.edge_tasks = 0;
        self.arrivals.clear();
        self.deferred.clear();
        self.questions.clear();
        self.journals.clear();
        self.last.clear();
    }

    fn schedule(&mut self, stepped: &Stepped) {
        self.head = Some(Head { position: self.next, step: stepped.step, source: stepped.source });
        if !self.journals.is_empty() {
            let StepNumber(merged) = stepped.step;
            self.journals.retain(|task, _| task.step.0 > merged);
        }
        if let Some(squashed) = &stepped.squashed {
            self.last.clone_from(&squashed.last);
            self.steps_total += squashed.steps;
        }
        match &stepped.as_node {
            Some(node) => {
                self.last = vec![node.clone()];
                self.questions.clear();
            }
            None if stepped.merged.is_empty() => {}
            None => self.last = stepped.merged.iter().map(|task| task.node.clone()).collect(),
        }
        self.tasks.clear();
        self.tasks.extend(stepped.due.iter().map(|due| Task {
            due: due.clone(),
            status: TaskStatus::Open,
            attempts: 0,
            spent: 0,
            handling: None,
        }));
        self.edge_tasks = self.tasks.iter().filter(|t| t.due.payload.is_none()).count();
        self.arrivals.clone_from(&stepped.arrivals);
        self.deferred.clone_from(&stepped.deferred);
        if !stepped.merged.is_empty() {
            self.steps_total += 1;
            if let Some(run) = &mut self.run {
                run.steps += 1;
            }
        }
    }

    fn task_mut(&mut self, task: &TaskId, what: &'static str) -> Result<&mut Task, FoldError> {
        match self.index_of(task) {
            Some(index) => Ok(&mut self.tasks[index]),
            None => Err(FoldError::Misplaced { position: self.next, what }),
        }
    }

    fn set_effect(&mut self, effect: &EffectId, status: Option<EffectStatus>) {
        self.journals.entry(effect.task.clone()).or_default().set_effect(effect, status);
    }

    fn answer(&mut self, id: QuestionId, value: &Value) -> Result<(), FoldError> {
        let Some(index) = self.questions.iter().position(|q| q.id == id) else {
            return Err(FoldError::Misplaced { position: self.next, what: "answered" });
        };
        let question = self.questions.remove(index);
        match &question.kind {
            QuestionKind::Doubt(effect) => {
                let performed = value.get("performed").and_then(Value::as_bool).unwrap_or(false);
                let result = value.get("result").cloned().unwrap_or(Value::Null);
                self.set_effect(effect, performed.then_some(EffectStatus::Done(result)));
            }
            _ => {
                let journal = self.journals.entry(question.task.clone()).or_default();
                journal.answers.push((question.key.clone(), question.occurrence, value.clone()));
            }
        }
        Ok(())
    }
}

/// Maps whose keys are no texts are stored as lists of pairs.
mod journal_list {
    use super::{HashMap, Journal, TaskId};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(map: &HashMap<TaskId, Journal>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pairs: Vec<_> = map.iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        serializer.collect_seq(pairs)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HashMap<TaskId, Journal>, D::Error> {
        Ok(Vec::<(TaskId, Journal)>::deserialize(deserializer)?.into_iter().collect())
    }
}
