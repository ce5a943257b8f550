//! One graph at work, as its records tell: the outermost one of a thread, or one inside a task.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fold::FoldError;
use super::lacks::{SecretFields, is_lost};
use super::parts::{Arrival, Due, Source, TaskRef, is_default};
use super::record::{Input, Stepped, TaskDone};
use super::rounds::{Round, Rounds};
use super::terms::Arguments;
use super::texts::SecretTexts;
use crate::clock::Timestamp;
use crate::error::Failure;
use crate::id::{BranchId, NodeName, Path, Position, StepNumber, TaskId};
use crate::state::{AnyState, Change, FieldName, Op, Rule, StateCell, StateError, StateKind, changes_bytes, resolve};

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
    /// When the next attempt is due, and when the first one began, if one has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) again: Option<Again>,
    /// What was wrong with its results that broke a rule, the last one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) feedback: Vec<Failure>,
    /// How many of its results broke a rule since it failed for good or a person said something: the policy counts these for themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) rounds: u32,
    /// How often a person has said something of its results.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) judged: u32,
    /// The fingerprint of the result that a person takes as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<String>,
    /// Why a person does not let it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// Whether its guard stopped it before its round began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) stopped: bool,
    /// Whether it has one more round, whatever its guard says.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) once: bool,
    /// How many of its attempts hung since a person said something of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) stalls: u32,
}

/// See [`Task::again`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Again {
    pub(crate) next_at: Timestamp,
    pub(crate) began: Option<Timestamp>,
}

impl Task {
    fn new(due: Due) -> Self {
        Self {
            due,
            status: TaskStatus::Open,
            attempts: 0,
            spent: 0,
            handling: None,
            again: None,
            feedback: Vec::new(),
            rounds: 0,
            judged: 0,
            taken: None,
            refused: None,
            stopped: false,
            once: false,
            stalls: 0,
        }
    }

    /// Whether a round of it is still to begin: it is not at another attempt, and nothing takes over for it.
    pub(super) fn is_at_its_beginning(&self) -> bool {
        self.status == TaskStatus::Open && self.attempts == self.spent && self.handling.is_none()
    }

    pub(crate) fn result(&self) -> Option<&Arc<TaskDone>> {
        match &self.status {
            TaskStatus::Done(done) => Some(done),
            _ => None,
        }
    }
}

/// Where the newest checkpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) position: Position,
    pub(crate) step: StepNumber,
    pub(crate) source: Source,
}

/// Everything that the fold yields for one graph, but for its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScopeFacts {
    pub(crate) branch: BranchId,
    pub(crate) head: Option<Head>,
    /// The task that called the graph, if it is not the outermost one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) caller: Option<TaskId>,
    /// What it was called with, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Arguments>,
    /// An input that is not applied yet.
    pub(crate) input: Option<Vec<Change>>,
    /// The tasks of the current step: those due by edges, then the sent ones.
    pub(crate) tasks: Vec<Task>,
    pub(crate) edge_tasks: usize,
    pub(crate) arrivals: Vec<Arrival>,
    #[serde(default)]
    pub(crate) deferred: Vec<NodeName>,
    /// The nodes that ran last, or that an edit stood for.
    #[serde(default)]
    pub(crate) last: Vec<NodeName>,
    /// What repeats at its nodes; not known where an older snapshot did not tell, until the graph's next input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rounds: Option<BTreeMap<NodeName, Rounds>>,
    /// Steps made in the current run.
    pub(crate) steps: u64,
    /// The highest step for which an effect was recorded that was given up: no later task may have its identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<StepNumber>,
    /// What was written since the graph was called, if its caller wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<Written>,
}

/// The fields that were written, with what was done to them; `None` where only the last value counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Written(pub(super) Vec<(FieldName, Option<Vec<Op>>)>);

impl Written {
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(field, _)| &**field)
    }

    pub(crate) fn extend(&mut self, changes: &[Change]) {
        for Change { field, op } in changes {
            let place = self.0.iter().position(|(known, _)| known == field).unwrap_or_else(|| {
                self.0.push((field.clone(), Some(Vec::new())));
                self.0.len() - 1
            });
            let done = &mut self.0[place].1;
            match op {
                Op::Set(_) | Op::Overwrite(_) => *done = None,
                op => done.iter_mut().for_each(|done| done.push(op.clone())),
            }
        }
    }
}

/// A graph at work.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) path: Path,
    pub(crate) kind: Arc<StateKind>,
    pub(crate) state: StateCell,
    pub(crate) facts: ScopeFacts,
    /// The changes in the order in which they were applied, if somebody wants to know.
    pub(crate) applied: Option<Vec<Change>>,
    /// What repeats at its nodes, as of its last step, if the steps of the run are stored as one.
    pub(crate) counted: BTreeMap<NodeName, Rounds>,
    pub(crate) secrets: SecretFields,
    /// How many bytes the state takes at most, once somebody has measured it.
    pub(crate) bytes: Option<u64>,
}

impl Scope {
    pub(crate) fn new(path: Path, kind: Arc<StateKind>, branch: BranchId) -> Self {
        let facts = ScopeFacts { branch, rounds: Some(BTreeMap::new()), ..ScopeFacts::default() };
        let (state, counted) = (kind.empty(), BTreeMap::new());
        Self { path, state, kind, facts, applied: None, counted, secrets: SecretFields::default(), bytes: None }
    }

    /// Its state, for those who do not know the type.
    pub(crate) fn any_state(&self) -> AnyState {
        AnyState::new(self.state.clone(), Arc::clone(&self.kind))
    }

    /// The nodes that are due.
    pub(crate) fn next(&self) -> Vec<NodeName> {
        self.facts.tasks.iter().map(|task| task.due.node.clone()).collect()
    }

    /// Identity of the task at that place of the current step.
    pub(crate) fn task_id(&self, index: usize) -> TaskId {
        TaskId {
            branch: self.facts.branch,
            path: self.path.clone(),
            step: self.step_due(),
            node: self.facts.tasks[index].due.node.clone(),
            send: self.send_of(index),
        }
    }

    fn send_of(&self, index: usize) -> Option<u32> {
        index.checked_sub(self.facts.edge_tasks).and_then(|send| u32::try_from(send).ok())
    }

    /// Place of a task in the current step, if it belongs to it. Its path is looked at by the caller.
    pub(crate) fn index_of(&self, task: &TaskId) -> Option<usize> {
        let due = task.branch == self.facts.branch && task.step == self.step_due();
        due.then(|| self.place_of(&task.node, task.send)).flatten()
    }

    fn place_of(&self, node: &NodeName, send: Option<u32>) -> Option<usize> {
        let facts = &self.facts;
        let index = match send {
            Some(send) => facts.edge_tasks + send as usize,
            None => facts.tasks[..facts.edge_tasks].iter().position(|task| task.due.node == *node)?,
        };
        (facts.tasks.get(index)?.due.node == *node).then_some(index)
    }

    /// Place of the merged task that is the n-th. Mostly all tasks of the step are merged, in their order.
    pub(super) fn place_of_merged(&self, nth: usize, task: &TaskRef) -> Option<usize> {
        let is_here = self.facts.tasks.get(nth).is_some_and(|t| t.due.node == task.node && self.send_of(nth) == task.send);
        if is_here { Some(nth) } else { self.place_of(&task.node, task.send) }
    }

    /// The number that the next checkpoint will get.
    pub(crate) fn step_due(&self) -> StepNumber {
        let next = self.facts.head.map_or(StepNumber(-1), |head| head.step.next());
        self.facts.floor.map_or(next, |floor| next.max(floor.next()))
    }

    /// Whether nothing is left to do, and something was done.
    pub(crate) fn is_finished(&self) -> bool {
        self.facts.head.is_some() && self.facts.input.is_none() && self.facts.tasks.is_empty()
    }

    /// The pending results, in merge order.
    pub(crate) fn results(&self) -> Vec<Arc<TaskDone>> {
        self.facts.tasks.iter().filter_map(Task::result).cloned().collect()
    }

    /// A run begins, which grants a round to what a guard has stopped, or the graph is called again after a failure: what failed may be tried again.
    pub(super) fn reopen(&mut self, grants: bool, texts: &SecretTexts) {
        let mut rounds: BTreeMap<NodeName, Round> = BTreeMap::new();
        for task in &mut self.facts.tasks {
            if let TaskStatus::Failed(failure) = &task.status {
                let refused = task.refused.take().is_some();
                if std::mem::take(&mut task.stopped) {
                    task.once = grants && !refused;
                } else {
                    rounds.entry(task.due.node.clone()).or_insert_with(Round::cut).failed(failure, texts);
                    task.once &= grants;
                }
                task.status = TaskStatus::Open;
                (task.handling, task.again) = (None, None);
            }
        }
        self.add_rounds(rounds);
    }

    /// Forgets the results of tasks that will never be merged.
    pub(super) fn drop_results(&mut self) {
        for task in &mut self.facts.tasks {
            *task = Task::new(task.due.clone());
        }
    }

    pub(super) fn take_input(&mut self, input: &Input, position: Position) {
        self.facts = ScopeFacts {
            branch: self.facts.branch,
            head: Some(Head { position, step: input.step, source: Source::Input }),
            caller: input.caller.clone(),
            arguments: input.arguments.clone(),
            input: Some(input.changes.clone()),
            written: input.shared.then(Written::default),
            rounds: Some(BTreeMap::new()),
            ..ScopeFacts::default()
        };
    }

    /// Applies what the tasks of the step wrote, in merge order, then what stands instead. The first half of a `stepped`.
    pub(crate) fn merge(&mut self, merged: &[TaskRef], resolved: &[Change], position: Position) -> Result<(), FoldError> {
        if let Some(input) = self.facts.input.take() {
            self.apply_unless(&input, resolved)?;
        }
        for (place, task) in merged.iter().enumerate() {
            let place = self.place_of_merged(place, task);
            let done = place.and_then(|place| self.facts.tasks[place].result()).cloned();
            let Some(done) = done.filter(|done| !done.to_parent) else {
                return Err(FoldError::Misplaced { position, what: "stepped" });
            };
            self.apply_unless(&done.changes, resolved)?;
        }
        self.apply_unless(resolved, &[])
    }

    /// Applies changes, but for those of fields whose outcome is resolved.
    fn apply_unless(&mut self, changes: &[Change], resolved: &[Change]) -> Result<(), FoldError> {
        if resolved.is_empty() {
            self.bytes.iter_mut().for_each(|bytes| *bytes = bytes.saturating_add(changes_bytes(changes)));
            if self.kind.has_secrets() {
                self.apply_secrets(changes)?;
            } else {
                self.state.apply(&self.kind.schema, changes)?;
            }
            self.applied.iter_mut().for_each(|applied| applied.extend_from_slice(changes));
            return Ok(());
        }
        let kept: Vec<Change> = changes.iter().filter(|c| resolved.iter().all(|r| r.field != c.field)).cloned().collect();
        self.apply_unless(&kept, &[])
    }

    /// What comes next. The second half of a `stepped`, but for what concerns the thread.
    pub(super) fn schedule(&mut self, stepped: &Stepped, position: Position) {
        // Only now is the step made for certain.
        if let Some(mut written) = self.facts.written.take() {
            let merged = stepped.merged.iter().filter_map(|task| self.place_of(&task.node, task.send));
            let done = merged.filter_map(|index| self.facts.tasks[index].result());
            done.for_each(|done| written.extend(&done.changes));
            self.facts.written = Some(written);
        }
        let facts = &mut self.facts;
        facts.head = Some(Head { position, step: stepped.step, source: stepped.source });
        if stepped.written.is_some() {
            facts.written.clone_from(&stepped.written);
        }
        match (&stepped.as_node, &stepped.squashed) {
            (Some(node), _) => facts.last = vec![node.clone()],
            (None, Some(squashed)) => facts.last.clone_from(&squashed.last),
            (None, None) if stepped.merged.is_empty() => {}
            (None, None) => facts.last = stepped.merged.iter().map(|task| task.node.clone()).collect(),
        }
        facts.tasks.clear();
        facts.tasks.extend(stepped.due.iter().cloned().map(Task::new));
        facts.edge_tasks = facts.tasks.iter().filter(|t| t.due.payload.is_none()).count();
        facts.arrivals.clone_from(&stepped.arrivals);
        facts.deferred.clone_from(&stepped.deferred);
        if !stepped.merged.is_empty() {
            facts.steps = facts.steps.saturating_add(1);
        }
    }

    /// The state with the results that are pending in the open step. Results that cannot be merged are left out.
    pub(crate) fn live(&self, position: Position) -> Result<StateCell, FoldError> {
        let done: Vec<_> = self.results().into_iter().filter(|done| !done.to_parent).collect();
        let there = |changes: &[Change]| changes.iter().filter(|c| !is_lost(&self.kind.schema, c)).cloned().collect::<Vec<_>>();
        let there: Vec<Cow<'_, [Change]>> = done
            .iter()
            .map(|done| if self.kind.has_secrets() { there(&done.changes).into() } else { (&*done.changes).into() })
            .collect();
        let writes: Vec<_> = done.iter().zip(&there).map(|(done, changes)| (&done.task, &**changes)).collect();
        let Ok(resolved) = resolve(&self.kind.schema, self.state.object(), &writes) else { return Ok(self.state.clone()) };
        let merged: Vec<_> = done.iter().map(|d| TaskRef { node: d.task.node.clone(), send: d.task.send }).collect();
        let mut live = self.clone();
        match live.merge(&merged, &resolved, position) {
            // The merge was refused, and what it would have made is no state.
            Err(FoldError::State(_)) => Ok(self.state.clone()),
            merged => merged.map(|()| live.state),
        }
    }

    /// What the graph wrote since it was called, as one update of the state it shares: what was added stays an addition, what was
    /// set in between counts with its last value.
    pub(crate) fn net_changes(&self) -> Result<Vec<Change>, StateError> {
        let mut net = Vec::new();
        for (field, done) in self.facts.written.iter().flat_map(|written| &written.0) {
            match done {
                Some(done) => net.extend(done.iter().map(|op| Change::new(field.clone(), op.clone()))),
                None => {
                    let Some(value) = self.state.object().read(field)? else { continue };
                    let is_replaced = self.kind.schema.field(field).is_some_and(|f| f.rule == Rule::Replace);
                    net.push(Change::new(field.clone(), if is_replaced { Op::Set(value) } else { Op::Overwrite(value) }));
                }
            }
        }
        Ok(net)
    }
}
