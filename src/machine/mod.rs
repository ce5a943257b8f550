//! What happens next: a state machine without async, clock or store.
//!
//! It is told what happened (a run begins, a task ended, an effect starts), answers with the records that say so and the
//! commands that follow from them, and folds these records at once. The runner must append the records before it carries
//! out a command; if that fails it drops the machine, and the log is the truth again.

mod again;
mod answer;
mod begin;
mod bounds;
mod call;
mod compensate;
mod edit;
mod effect;
mod ending;
mod gone;
mod guard;
mod motion;
mod node_set;
mod outside;
mod step;
mod stop;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::Failure;
use crate::graph::{Pauses, Shape};
use crate::id::{NodeName, Path, TaskId, ThreadName};
use crate::log::QuestionTerms;
use crate::log::{
    Durability, FoldError, Folded, Journal, Record, RunEnded, RunOutcome, Scope, Suspension, TaskStatus, UpgradedState,
};
use crate::state::resolve;
use motion::{Live, Motion};

pub(crate) use answer::{AnswerRefusal, GivenAnswer, check_expiry};
pub(crate) use begin::{Begin, Limits, Refusal};
pub(crate) use bounds::Bounds;
pub(crate) use call::{Call, CallInput, CallOutcome};
pub(crate) use edit::EditRefusal;
pub(crate) use effect::Note;
pub(crate) use ending::{Ending, RunFailure};
pub(crate) use gone::Gone;
pub(crate) use outside::{GivenSignal, SignalRefusal, Taken};
pub(crate) use task::TaskEnd;

/// Time, chance and new identifiers, as the caller hands them in.
pub(crate) struct Env<'a> {
    pub(crate) now: Timestamp,
    pub(crate) new_id: &'a dyn Fn() -> Uuid,
    pub(crate) jitter: &'a dyn Fn() -> f64,
    /// What holds for questions that say no times of their own, where a supervisor looks after them.
    pub(crate) terms: Option<&'a QuestionTerms>,
}

/// What the runner has to do once the records are appended.
#[derive(Debug)]
pub(crate) enum Command {
    Start(Box<Start>),
    /// Report `delay_over` after that time.
    Wait {
        place: Place,
        ms: u64,
    },
    /// Tell the task that called the graph at `path` what came of it.
    Answer {
        path: Path,
        outcome: CallOutcome,
    },
    /// Stop the tasks of the graph at `path`: nobody waits for it any more.
    Abort(Path),
    End(Ending),
}

/// One attempt of one task in this process: what is reported from an earlier one does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: Path,
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// A task to start.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) place: Place,
    pub(crate) node: usize,
    /// The name that the node has now; the task has the one it began with.
    pub(crate) name: NodeName,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) payload: Option<Arc<Value>>,
    pub(crate) journal: Journal,
    /// What the node's error handler has to deal with, if that is what runs.
    pub(crate) handling: Option<Failure>,
    /// What was wrong with the last result, if it broke a rule.
    pub(crate) feedback: Option<Failure>,
    /// The fingerprint of the result that a person takes as it is.
    pub(crate) taken: Option<String>,
    /// What the idempotency keys of its effects are made from.
    pub(crate) thread_id: Uuid,
    /// How many steps the run may make in this graph after the current one.
    pub(crate) steps_left: u64,
    /// When the time for all attempts is over.
    pub(crate) until: Option<Timestamp>,
}

/// A thread in motion.
#[derive(Debug)]
pub(crate) struct Machine {
    thread: ThreadName,
    folded: Folded,
    /// What this process does for the outermost graph.
    root: Motion,
    /// And for those inside it that somebody waits for.
    inner: BTreeMap<Path, Motion>,
    /// Graphs with tasks that a cap holds back.
    held_back: BTreeSet<Path>,
    /// Tasks at work: those that wait for a graph they called are not.
    at_work: usize,
    tasks_max: usize,
    bounds: Bounds,
    /// Counts what was started, so that late reports are told from current ones.
    serial: u64,
    durability: Durability,
    stopping: bool,
    /// Why it was told to stop.
    why: Option<Suspension>,
    /// Whether the run has ended: nothing that is reported later counts.
    ended: bool,
    /// Graphs with a step that failed to merge: in memory they may hold what was never recorded.
    spoiled: BTreeMap<Path, Failure>,
    /// The states whose shape was another one when they were stored, until that is recorded.
    upgraded: Option<Vec<UpgradedState>>,
    records: Vec<Record>,
    commands: Vec<Command>,
}

/// A record that does not follow, or a state that cannot take a change: the log is damaged, or this is a bug.
pub(crate) type Step<T = ()> = Result<T, FoldError>;

impl Machine {
    pub(crate) fn new(shape: Arc<Shape>, thread: ThreadName, folded: Folded, tasks_max: usize, pauses: Pauses) -> Self {
        let root = Motion { pauses, ..Motion::new(shape, folded.root.facts.tasks.len()) };
        Self {
            thread,
            folded,
            root,
            inner: BTreeMap::new(),
            held_back: BTreeSet::new(),
            at_work: 0,
            tasks_max: tasks_max.max(1),
            bounds: Bounds::default(),
            serial: 0,
            durability: Durability::Step,
            stopping: false,
            why: None,
            ended: false,
            spoiled: BTreeMap::new(),
            upgraded: None,
            records: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// The states whose shape was another one when they were stored; none if nothing was.
    pub(crate) fn upgraded(mut self, states: Vec<UpgradedState>) -> Self {
        self.upgraded = Some(states).filter(|states| !states.is_empty());
        self
    }

    /// When the steps of the run are stored.
    pub(crate) fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        if durability == Durability::Exit {
            let scopes = std::iter::once(&mut self.folded.root).chain(self.folded.inner.values_mut());
            scopes.for_each(|scope| scope.applied = Some(Vec::new()));
        }
        self
    }

    pub(crate) fn folded(&self) -> &Folded {
        &self.folded
    }

    /// Whether what is in memory is what the records yield. While a graph whose steps are not recorded is at work it is ahead of them.
    pub(crate) fn is_true_to_the_log(&self) -> bool {
        self.upgraded.is_none() && self.spoiled.is_empty() && self.folded.inner.keys().all(|path| self.is_stored(path))
    }

    /// Whether the steps of the graph at `path` are recorded.
    pub(crate) fn is_stored(&self, path: &Path) -> bool {
        self.root.shape.is_stored(path)
    }

    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Records that nobody keeps leave their room for the next ones.
    pub(crate) fn reuse(&mut self, mut records: Vec<Record>) {
        records.clear();
        if self.records.is_empty() {
            self.records = records;
        }
    }

    /// Hands the commands over in an empty list that the caller has at hand.
    pub(crate) fn take_commands(&mut self, into: &mut Vec<Command>) {
        std::mem::swap(&mut self.commands, into);
    }

    /// The wait before a task's next attempt is over.
    pub(crate) fn delay_over(&mut self, place: &Place, env: &Env<'_>) -> Step {
        let delayed = Live::Delayed { serial: place.serial };
        let Some(motion) = self.motion_mut(&place.path).filter(|motion| motion.tasks.get(place.index) == Some(&delayed)) else {
            return Ok(());
        };
        motion.tasks[place.index] = Live::Idle;
        motion.waited.insert(place.index);
        motion.ready.push_back(place.index);
        self.go_on(&place.path, env)
    }

    fn record(&mut self, record: Record) -> Step {
        self.folded.fold(&record)?;
        self.records.push(record);
        Ok(())
    }

    fn motion(&self, path: &Path) -> Option<&Motion> {
        if path.is_root() { Some(&self.root) } else { self.inner.get(path) }
    }

    fn motion_mut(&mut self, path: &Path) -> Option<&mut Motion> {
        if path.is_root() { Some(&mut self.root) } else { self.inner.get_mut(path) }
    }

    /// The task of an attempt that goes on; `None` if its time is over.
    fn current(&self, place: &Place) -> Option<TaskId> {
        let live = self.motion(&place.path)?.tasks.get(place.index)?;
        let goes_on = matches!(live, Live::Running { serial, .. } if *serial == place.serial);
        goes_on.then(|| self.folded.scope(&place.path).map(|scope| scope.task_id(place.index))).flatten()
    }

    /// Goes on in one graph, and then wherever that has made room.
    fn proceed(&mut self, path: &Path, env: &Env<'_>) -> Step {
        self.go_on(path, env)?;
        while self.at_work < self.tasks_max
            && let Some(path) = self.held_back.pop_first()
        {
            self.go_on(&path, env)?;
        }
        Ok(())
    }

    /// Starts what can start; when nothing is left to wait for, merges the step or ends the run of the graph.
    fn go_on(&mut self, path: &Path, env: &Env<'_>) -> Step {
        while !self.ended {
            let Some(motion) = self.motion(path) else { return Ok(()) };
            if !self.stopping && !motion.ready.is_empty() {
                self.start_ready(path, env)?;
            }
            let stopping = self.stopping;
            // Held back by the cap on tasks at work: its turn comes.
            let is_held_back = !stopping && self.held_back.contains(path);
            if is_held_back || self.motion(path).is_some_and(|motion| motion.is_busy(stopping)) {
                return Ok(());
            }
            match self.verdict(path) {
                None => {
                    if let Err(failure) = self.merge_step(path)? {
                        return self.end(path, Ending::Failed(failure), env);
                    }
                    if self.stops_here(path) {
                        return self.end(path, Ending::Paused, env);
                    }
                }
                Some(ending) => return self.end(path, ending, env),
            }
        }
        Ok(())
    }

    /// Whether there is a breakpoint between the step that was merged and the one that is due.
    fn stops_here(&self, path: &Path) -> bool {
        let (Some(scope), Some(motion)) = (self.folded.scope(path), self.motion(path)) else { return false };
        let now = |node| motion.shape.name_now(node);
        let before = || scope.facts.tasks.iter().any(|task| motion.pauses.before.contains(now(&task.due.node)));
        let after = || motion.merged.iter().any(|node| motion.pauses.after.contains(now(node)));
        before() || after()
    }

    /// How the run of a graph ends if nothing runs; `None` if there is a step to merge or to begin.
    fn verdict(&self, path: &Path) -> Option<Ending> {
        let (scope, motion) = (self.folded.scope(path)?, self.motion(path)?);
        let tasks = &scope.facts.tasks;
        if tasks.is_empty() {
            let failed = self.folded.facts.rollback.as_ref().filter(|_| path.is_root()).and_then(|rollback| rollback.why.clone());
            return Some(failed.map_or(Ending::Done, |fault| Ending::Failed(RunFailure::Compensated { fault })));
        }
        let mut paused = false;
        for (index, task) in tasks.iter().enumerate() {
            if let TaskStatus::Failed(failure) = &task.status {
                let (node, attempt) = (task.due.node.clone(), task.attempts);
                return Some(Ending::Failed(RunFailure::Node { node, attempt, failure: failure.clone() }));
            }
            paused |= motion.tasks[index] == Live::Paused;
            if self.stopping && !matches!(task.status, TaskStatus::Done(_)) && !self.folded.waits(&scope.task_id(index)) {
                return Some(Ending::Suspended);
            }
        }
        if self.folded.asks_within(path) {
            let within = self.folded.facts.questions.iter().filter(|question| question.task.path.is_within(path));
            return Some(Ending::Waiting(within.cloned().collect()));
        }
        if paused {
            return Some(Ending::Paused);
        }
        if let Some((limit, of)) = self.limit_reached(scope) {
            return Some(Ending::Failed(RunFailure::StepLimit { limit, of }));
        }
        if !tasks.iter().all(|task| matches!(task.status, TaskStatus::Done(_))) {
            return Some(Ending::Suspended);
        }
        self.handed(scope)
    }

    /// What a finished step says to the graph outside, if one of its nodes did. The step is not merged then.
    fn handed(&self, scope: &Scope) -> Option<Ending> {
        let outer = self.folded.scope(&scope.path.outer()?)?;
        let to_parent: Vec<_> = scope.results().into_iter().filter(|done| done.to_parent).collect();
        if to_parent.is_empty() {
            return None;
        }
        let writes: Vec<_> = to_parent.iter().map(|done| (format!("\"{}\"", done.task.node), &*done.changes)).collect();
        // For the graph outside they become one update.
        if let Err(source) = resolve(&outer.kind.schema, outer.state.object(), &writes) {
            return Some(Ending::Failed(RunFailure::Merge { step: scope.step_due(), source }));
        }
        let changes = to_parent.iter().flat_map(|done| done.changes.clone()).collect();
        let goto = to_parent.iter().flat_map(|done| done.goto.clone().unwrap_or_default()).collect();
        Some(Ending::Handed { changes, goto })
    }

    /// The limit of steps that is used up, where another step would have to begin.
    fn limit_reached(&self, scope: &Scope) -> Option<(u64, &'static str)> {
        if self.is_compensating() {
            // There are only as many steps as effects.
            return None;
        }
        let begun = scope.facts.tasks.iter().any(|task| !matches!(task.status, TaskStatus::Open));
        let started = self.folded.facts.run.as_ref().filter(|_| !begun).map(|run| &run.started)?;
        let thread = started.thread_steps_max.filter(|max| self.folded.facts.steps_total >= *max);
        let run = (scope.facts.steps >= started.steps_max).then_some((started.steps_max, "one run"));
        run.or(thread.map(|max| (max, "the thread")))
    }

    /// Starts what may start. Each task is looked at once, however many there are and however many of them run at a time.
    fn start_ready(&mut self, path: &Path, env: &Env<'_>) -> Step {
        loop {
            let (Some(scope), Some(motion)) = (self.folded.scope(path), self.motion(path)) else { return Ok(()) };
            let Some(index) = motion.ready.front().copied() else { return Ok(()) };
            if self.limit_reached(scope).is_some() {
                return Ok(());
            }
            if self.at_work >= self.tasks_max {
                self.held_back.insert(path.clone());
                return Ok(());
            }
            let is_open = motion.tasks[index] == Live::Idle && scope.facts.tasks[index].status == TaskStatus::Open;
            let task = scope.task_id(index);
            let node = motion.shape.index(&task.node).filter(|_| is_open && !self.folded.waits(&task));
            // After a restart, what is left of the wait for the next attempt.
            let again = scope.facts.tasks[index].again.filter(|_| is_open && !motion.waited.contains(&index));
            // A clock that was set back makes no wait longer than the policy does.
            let longest = node.map_or(0, |node| motion.shape.nodes[node].policy.longest_wait_ms());
            let left = again.map(|again| again.next_at.ms_since(env.now).min(longest));
            if let Some(ms) = left.filter(|ms| *ms > 0) {
                self.delay(path, index, ms);
                continue;
            }
            let cap = node.and_then(|node| motion.shape.nodes[node].policy.concurrency);
            let is_held_back = node.is_some_and(|node| cap.is_some_and(|max| motion.running_of(node) >= max));
            let Some(motion) = self.motion_mut(path) else { return Ok(()) };
            motion.ready.pop_front();
            match node {
                Some(node) if is_held_back => motion.hold_back(node, index),
                Some(node) => {
                    if !self.is_guarded(index, node, &task, env)? && !self.is_held_back(index, node, &task, env)? {
                        self.start(index, node, task, cap.is_some(), env);
                    }
                }
                // It waits for a person, or is done; another one of a node with a cap may have its turn.
                None => {
                    let node = motion.shape.index(&task.node);
                    node.into_iter().for_each(|node| motion.next_of(node));
                }
            }
        }
    }

    /// A task waits for its next attempt.
    fn delay(&mut self, path: &Path, index: usize, ms: u64) {
        self.serial += 1;
        let place = Place { path: path.clone(), index, serial: self.serial };
        if let Some(motion) = self.motion_mut(path) {
            motion.ready.retain(|ready| *ready != index);
            motion.tasks[index] = Live::Delayed { serial: place.serial };
        }
        self.commands.push(Command::Wait { place, ms });
    }

    fn start(&mut self, index: usize, node: usize, task: TaskId, is_capped: bool, env: &Env<'_>) {
        let (facts, Some(scope)) = (&self.folded.facts, self.folded.scope(&task.path)) else { return };
        let due = &scope.facts.tasks[index];
        let steps_max = facts.run.as_ref().map_or(0, |run| run.started.steps_max);
        self.serial += 1;
        let place = Place { path: task.path.clone(), index, serial: self.serial };
        let now = self.motion(&task.path).map(|motion| motion.shape.nodes[node].name.clone());
        let start = Start {
            node,
            name: now.unwrap_or_else(|| task.node.clone()),
            attempt: due.attempts.saturating_add(1),
            payload: due.due.payload.clone(),
            journal: facts.journals.get(&task).cloned().unwrap_or_default(),
            handling: due.handling.clone(),
            feedback: due.feedback.last().cloned(),
            taken: due.taken.clone(),
            thread_id: facts.id(),
            until: self.until(&task, index, env),
            steps_left: steps_max.saturating_sub(scope.facts.steps.saturating_add(1)),
            place,
            task,
        };
        self.at_work += 1;
        let serial = self.serial;
        if let Some(motion) = self.motion_mut(&start.task.path) {
            if start.until.is_some() {
                motion.began.entry(index).or_insert(env.now);
            }
            motion.tasks[index] = Live::Running { serial, calls: 0 };
            motion.running += 1;
            if is_capped {
                motion.capped.entry(node).or_default().running += 1;
            }
        }
        self.commands.push(Command::Start(Box::new(start)));
    }

    /// When the time for all attempts of a task is over that starts now. What takes over for the node has time of its own.
    fn until(&self, task: &TaskId, index: usize, env: &Env<'_>) -> Option<Timestamp> {
        if self.folded.scope(&task.path)?.facts.tasks[index].handling.is_some() {
            return None;
        }
        let shape = &self.motion(&task.path)?.shape;
        let total = shape.nodes[shape.index(&task.node)?].policy.total?;
        Some(self.began(task, index).unwrap_or(env.now).plus(total))
    }

    fn end(&mut self, path: &Path, ending: Ending, env: &Env<'_>) -> Step {
        if !path.is_root() {
            return self.call_ends(path, ending);
        }
        if let Ending::Failed(failure) = &ending
            && self.compensates_failure(failure, env)?
        {
            return self.go_on(path, env);
        }
        self.ended = true;
        let outcome = match &ending {
            Ending::Done | Ending::Handed { .. } => RunOutcome::Done,
            Ending::Waiting(_) => RunOutcome::Waiting,
            Ending::Suspended | Ending::Paused | Ending::Expired => RunOutcome::Suspended,
            Ending::Failed(failure) => RunOutcome::Failed(failure.fault()),
        };
        let why = match &ending {
            Ending::Suspended => self.why,
            Ending::Paused => Some(Suspension::Breakpoint),
            Ending::Expired => Some(Suspension::Expired),
            Ending::Done | Ending::Handed { .. } | Ending::Waiting(_) | Ending::Failed(_) => None,
        };
        self.record_end(outcome, why, env)?;
        self.commands.push(Command::End(ending));
        Ok(())
    }

    fn record_end(&mut self, outcome: RunOutcome, why: Option<Suspension>, env: &Env<'_>) -> Step {
        let Some(run) = self.folded.facts.run.as_ref().map(|run| run.started.run) else { return Ok(()) };
        self.record(Record::RunEnded(Box::new(RunEnded { run, outcome, why, at: env.now })))
    }
}
