//! The fold: what the records of a thread amount to. Nobody else interprets records.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::compensation::{Compensable, Rollback};
use super::journal::{self, EffectStatus, Journal, JournalEffect};
use super::outside::{Signalled, Suspension};
use super::parts::is_default;
use super::question::{OnExpiry, Question, QuestionKind};
use super::record::{AttemptFailed, Expired, Forked, Input, Opened, Record, RunOutcome, RunStarted, Stepped};
use super::scope::{Again, Scope, Task, TaskStatus};
use super::terms::{EffectTerms, InDoubt};
use super::texts::SecretTexts;
use crate::error::{Class, Origin};
use crate::id::{BranchId, EffectId, Path, Position, QuestionId, TaskId};
use crate::state::{StateError, StateKind};

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

/// The run that is going on, or the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunHead {
    pub(crate) started: RunStarted,
    pub(crate) ended: Option<RunOutcome>,
    /// Why it was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<Suspension>,
}

/// What the fold of a thread yields beside its graphs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Position of the next record.
    pub(crate) next: Position,
    pub(crate) opened: Option<Opened>,
    pub(crate) branch: BranchId,
    pub(crate) questions: Vec<Arc<Question>>,
    /// Effects and answers of tasks that are not merged yet.
    #[serde(with = "journal::list")]
    pub(crate) journals: HashMap<TaskId, Journal>,
    pub(crate) run: Option<RunHead>,
    /// Steps made in the life of the thread, those of subgraphs included.
    pub(crate) steps_total: u64,
    /// Runs in a row that never ended and came to no result: their process died.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) deaths: u32,
    /// Whether it can go on since its last run ended: what it waited for has come.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) is_ready: bool,
    /// Signals that nothing has waited for yet, in the order in which they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) signals: Vec<Signalled>,
    /// The ids of the signals that came last.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(crate) signal_ids: VecDeque<String>,
    /// How often the thread was forked.
    #[serde(default)]
    pub(crate) forks: u32,
    /// Effects since the last input that were performed and can be compensated, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) compensable: Vec<Compensable>,
    /// If effects are being compensated, or were since the last input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rollback: Option<Rollback>,
}

impl Facts {
    /// What the idempotency keys of the thread's effects are made from.
    pub(crate) fn id(&self) -> Uuid {
        self.opened.as_ref().map_or(Uuid::nil(), |opened| opened.id)
    }

    pub(crate) fn question(&self, id: QuestionId) -> Option<&Arc<Question>> {
        self.questions.iter().find(|q| q.id == id)
    }

    /// Effects of a task that were started and have no certain outcome, other than those a question is open about.
    pub(crate) fn doubtful(&self, task: &TaskId) -> Vec<(EffectId, InDoubt)> {
        let Some(journal) = self.journals.get(task) else { return Vec::new() };
        let started = journal.effects.iter().filter(|effect| effect.status == EffectStatus::Started);
        let asked = |effect: &EffectId| self.questions.iter().any(|q| q.kind == QuestionKind::Doubt(effect.clone()));
        started.map(|effect| (effect.id(task), effect.terms.in_doubt)).filter(|(effect, _)| !asked(effect)).collect()
    }

    /// A run of the line that is left, or that was edited, is no run that goes on.
    fn end_run(&mut self) {
        if let Some(run) = &mut self.run {
            run.ended.get_or_insert(RunOutcome::Suspended);
        }
    }

    pub(super) fn journal(&mut self, task: &TaskId) -> &mut Journal {
        self.journals.entry(task.clone()).or_default()
    }

    /// How an effect stands from now on; `None` if it is certain that it was not performed.
    fn set_effect(&mut self, effect: &EffectId, status: Option<EffectStatus>) -> Option<&mut JournalEffect> {
        let journal = self.journal(&effect.task);
        let Some(status) = status else {
            journal.drop_effect(&effect.key, effect.occurrence);
            self.compensable.retain(|known| known.effect != *effect);
            return None;
        };
        if status == EffectStatus::Started {
            self.compensable.retain(|known| known.effect != *effect);
        }
        Some(self.journal(&effect.task).set_effect(&effect.key, effect.occurrence, status))
    }

    fn note_effect(&mut self, effect: &EffectId, status: EffectStatus, terms: Option<&EffectTerms>) {
        let is_done = matches!(status, EffectStatus::Done(_));
        let is_known =
            self.journals.get(&effect.task).is_some_and(|journal| journal.effect(&effect.key, effect.occurrence).is_some());
        let under = self.opened.as_ref().and_then(|opened| opened.id_then(self.next));
        let Some(known) = self.set_effect(effect, Some(status)) else { return };
        if let Some(terms) = terms {
            known.terms = terms.clone();
        }
        if !is_done || !is_known {
            known.under = under;
        }
        if let Some(compensable) = Compensable::of(effect, known).filter(|_| is_done) {
            self.compensable.retain(|known| known.effect != *effect);
            self.compensable.push(compensable);
        }
    }

    pub(super) fn close(&mut self, id: QuestionId, what: &'static str) -> Result<Arc<Question>, FoldError> {
        let found = self.questions.iter().position(|q| q.id == id);
        found.map(|index| self.questions.remove(index)).ok_or(FoldError::Misplaced { position: self.next, what })
    }

    fn expire(&mut self, expired: &Expired) -> Result<(), FoldError> {
        let question = self.close(expired.question, "expired")?;
        let (key, occurrence) = (question.key.clone(), question.occurrence);
        let journal = self.journal(&question.task);
        match &expired.then {
            OnExpiry::Answer(value) => journal.answers.push((key, occurrence, value.clone())),
            OnExpiry::GoOn => journal.expired.push((key, occurrence)),
            OnExpiry::Suspend => {}
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, id: QuestionId, value: &Value) -> Result<Arc<Question>, FoldError> {
        let question = self.close(id, "answered")?;
        match &question.kind {
            QuestionKind::Doubt(effect) => {
                let performed = value.get("performed").and_then(Value::as_bool).unwrap_or(false);
                let result = value.get("result").cloned().unwrap_or(Value::Null);
                if performed {
                    self.note_effect(effect, EffectStatus::Done(result), None);
                } else {
                    self.set_effect(effect, None);
                }
            }
            QuestionKind::Violation | QuestionKind::Guard(_) | QuestionKind::Stall => {}
            QuestionKind::Approval | QuestionKind::Free => self.note_answer(&question, value),
            // No answer comes to those: a signal is delivered, a time comes, a state is edited.
            QuestionKind::Signal(_) | QuestionKind::Time | QuestionKind::Condition => {
                return Err(FoldError::Misplaced { position: self.next, what: "answered" });
            }
        }
        Ok(question)
    }
}

/// A thread as its log tells it: the graphs at work, and everything needed to go on.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) facts: Facts,
    /// The outermost graph.
    pub(crate) root: Scope,
    /// The graphs inside it that are at work, or that keep their state.
    pub(crate) inner: BTreeMap<Path, Scope>,
}

impl Folded {
    /// A thread without records.
    pub(crate) fn new(kind: Arc<StateKind>) -> Self {
        let root = Scope::new(Path::ROOT, kind, BranchId::default());
        Self { facts: Facts::default(), root, inner: BTreeMap::new() }
    }

    /// The graph that runs at `path`.
    pub(crate) fn scope(&self, path: &Path) -> Option<&Scope> {
        if path.is_root() { Some(&self.root) } else { self.inner.get(path) }
    }

    pub(crate) fn scope_mut(&mut self, path: &Path) -> Option<&mut Scope> {
        if path.is_root() { Some(&mut self.root) } else { self.inner.get_mut(path) }
    }

    pub(crate) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        std::iter::once(&self.root).chain(self.inner.values())
    }

    /// The graph a task belongs to, and its place there, if it belongs to the current step.
    pub(crate) fn find(&self, task: &TaskId) -> Option<(&Scope, usize)> {
        let scope = self.scope(&task.path)?;
        Some((scope, scope.index_of(task)?))
    }

    /// Takes in the next record.
    pub(crate) fn fold(&mut self, record: &Record) -> Result<(), FoldError> {
        let facts = &mut self.facts;
        match record {
            Record::Opened(opened) => facts.opened = Some((**opened).clone()),
            Record::RunStarted(started) => self.start_run(started),
            Record::Input(input) => self.take_input(input)?,
            Record::TaskDone(done) => {
                facts.deaths = 0;
                let task = self.task_mut(&done.task, "task_done")?;
                task.status = TaskStatus::Done(Arc::clone(done));
                task.attempts = done.attempt;
            }
            Record::AttemptFailed(failed) => self.fail_attempt(failed)?,
            Record::TaskFailed(failed) => {
                let task = self.task_mut(&failed.task, "task_failed")?;
                // No attempt of its own has ended; a graph in which a node was stopped did run.
                task.stopped |= failed.failure.origin == Origin::Guard && failed.attempt == task.attempts;
                if failed.handled {
                    task.handling = Some(failed.failure.clone());
                } else {
                    task.status = TaskStatus::Failed(failed.failure.clone());
                }
                (task.attempts, task.spent, task.rounds) = (failed.attempt, failed.attempt, 0);
            }
            Record::Asked(question) => facts.questions.push(Arc::clone(question)),
            Record::Answered(answered) => self.take_answer(answered)?,
            Record::Expired(expired) => facts.expire(expired)?,
            Record::Closed(closed) => facts.close_all(closed),
            Record::Reminded(reminded) => facts.remind(reminded)?,
            Record::Signalled(signalled) => facts.take_signal(signalled),
            Record::Delivered(delivered) => facts.deliver(delivered)?,
            Record::EffectStarted(started) => {
                facts.note_effect(&started.effect, EffectStatus::Started, Some(&started.terms));
            }
            Record::EffectDone(done) => {
                facts.note_effect(&done.effect, EffectStatus::Done(done.result.clone()), done.terms.as_ref());
            }
            Record::EffectFailed(failed) => _ = facts.set_effect(&failed.effect, None),
            Record::EffectDoubted(doubted) => _ = facts.set_effect(&doubted.effect, Some(EffectStatus::Started)),
            Record::Marked(marked) => facts.journal(&marked.task).set_mark(&marked.key, &marked.value),
            Record::Stepped(stepped) => {
                facts.deaths = 0;
                if stepped.as_node.is_some() {
                    self.give_up(&stepped.path);
                }
                let position = self.facts.next;
                self.begun(&stepped.path, "stepped")?.merge(&stepped.merged, &stepped.resolved, position)?;
                self.schedule(stepped)?;
                return Ok(());
            }
            Record::Compensating(compensating) => self.roll_back(compensating),
            Record::Forked(forked) => self.fork(forked),
            Record::Upgraded(upgraded) => self.upgrade(upgraded)?,
            Record::RunEnded(ended) => {
                (facts.deaths, facts.is_ready) = (0, false);
                if let Some(run) = &mut facts.run {
                    (run.ended, run.why) = (Some(ended.outcome.clone()), ended.why);
                }
            }
        }
        self.facts.next.0 += 1;
        Ok(())
    }

    fn fail_attempt(&mut self, failed: &AttemptFailed) -> Result<(), FoldError> {
        let task = self.task_mut(&failed.task, "attempt_failed")?;
        task.attempts = failed.attempt;
        task.again = Some(Again { next_at: failed.next_at, began: failed.began });
        task.stalls += u32::from(failed.failure.origin == Origin::Stalled);
        if failed.failure.class == Class::Violation {
            task.rounds += 1;
            task.feedback.push(failed.failure.clone());
        }
        // What failed inside may be tried again too.
        self.forget_refusals(&failed.task);
        let texts = SecretTexts::of(self);
        let inside = self.inner.keys().filter(|path| self.works_for(path, &failed.task));
        for path in inside.cloned().collect::<Vec<_>>() {
            self.scope_mut(&path).into_iter().for_each(|scope| scope.reopen(false, &texts));
        }
        Ok(())
    }

    fn start_run(&mut self, started: &RunStarted) {
        let was_cut_off = self.facts.run.as_ref().is_some_and(|run| run.ended.is_none());
        self.facts.is_ready = false;
        self.facts.deaths = if was_cut_off { self.facts.deaths.saturating_add(1) } else { 0 };
        self.facts.run = Some(RunHead { started: started.clone(), ended: None, why: None });
        let has_failed = |(scope, index): (&Scope, usize)| matches!(scope.facts.tasks[index].status, TaskStatus::Failed(_));
        let tasks = self.scopes().flat_map(|scope| (0..scope.facts.tasks.len()).map(move |index| (scope, index)));
        let failed: Vec<TaskId> = tasks.filter(|task| has_failed(*task)).map(|(scope, index)| scope.task_id(index)).collect();
        failed.iter().for_each(|task| self.forget_refusals(task));
        let texts = if failed.is_empty() { SecretTexts::default() } else { SecretTexts::of(self) };
        for scope in std::iter::once(&mut self.root).chain(self.inner.values_mut()) {
            scope.reopen(true, &texts);
            scope.facts.steps = 0;
        }
    }

    /// The graph at `path`, which begins now if it is not there.
    fn begun(&mut self, path: &Path, what: &'static str) -> Result<&mut Scope, FoldError> {
        if path.is_root() {
            return Ok(&mut self.root);
        }
        let misplaced = FoldError::Misplaced { position: self.facts.next, what };
        let kind = self.root.kind.at(path).ok_or(misplaced)?;
        let new = || Scope {
            applied: self.root.applied.as_ref().map(|_| Vec::new()),
            ..Scope::new(path.clone(), kind, self.facts.branch)
        };
        Ok(self.inner.entry(path.clone()).or_insert_with(new))
    }

    /// A new input takes the place of everything that was due in its graph.
    fn take_input(&mut self, input: &Input) -> Result<(), FoldError> {
        if let Some(was) = &input.was {
            self.move_graph(was, &input.path);
        }
        let known = self.facts.journals.keys().chain(self.facts.questions.iter().map(|question| &question.task));
        let ahead = known.filter(|task| task.path.is_within(&input.path) && self.is_ahead(&input.path, task));
        let ahead: HashSet<TaskId> = ahead.cloned().collect();
        self.forget(&input.path, &ahead);
        if input.path.is_root() {
            (self.facts.compensable, self.facts.rollback) = (Vec::new(), None);
            // What nobody took belongs to the work that is over.
            self.facts.signals.clear();
        }
        let position = self.facts.next;
        let outer = if input.shared { input.path.outer() } else { None };
        let shared =
            outer.and_then(|outer| self.scope(&outer)).map(|outer| (outer.state.clone(), outer.secrets.clone(), outer.bytes));
        let scope = self.begun(&input.path, "input")?;
        scope.take_input(input, position);
        if let Some((state, secrets, bytes)) = shared {
            (scope.state, scope.secrets, scope.bytes) = (state, secrets, bytes);
        }
        Ok(())
    }

    /// The graphs at a path, and those inside, go on at another one.
    fn move_graph(&mut self, from: &Path, to: &Path) {
        let inside: Vec<Path> = self.inner.keys().filter(|path| path.is_within(from)).cloned().collect();
        for path in inside {
            let (moved, scope) = (path.moved(from, to), self.inner.remove(&path));
            self.inner.extend(scope.map(|scope| (moved.clone(), Scope { path: moved, ..scope })));
        }
    }

    /// Forgets the questions and effects of a graph but for those of some tasks, and the graphs inside it but for those that keep their state.
    fn forget(&mut self, path: &Path, but: &HashSet<TaskId>) {
        let is_kept = |task: &TaskId| !task.path.is_within(path) || but.contains(task);
        self.facts.questions.retain(|question| is_kept(&question.task));
        self.facts.journals.retain(|task, _| is_kept(task));
        self.inner.retain(|inner, _| inner == path || !inner.is_within(path) || inner.is_kept_by(path));
    }

    /// An edit takes the place of an input that is not applied, and of everything that was due.
    pub(crate) fn give_up(&mut self, path: &Path) {
        self.drop_all(path);
        self.facts.end_run();
    }

    /// Everything that was due in a graph is dropped.
    pub(super) fn drop_all(&mut self, path: &Path) {
        let given_up = self.facts.journals.keys().filter(|task| task.path.is_within(path));
        let floor = given_up.filter_map(|task| task.step_in(path)).max();
        if let Some(scope) = self.scope_mut(path) {
            scope.facts.floor = scope.facts.floor.max(floor);
        }
        if path.is_root() && self.facts.rollback.as_ref().is_some_and(|rollback| rollback.todo.is_empty()) {
            self.facts.rollback = None;
        }
        self.forget(path, &HashSet::new());
        if let Some(scope) = self.scope_mut(path) {
            scope.facts.input = None;
            scope.drop_results();
        }
    }

    /// What comes next. The second half of a `stepped`.
    pub(crate) fn schedule(&mut self, stepped: &Stepped) -> Result<(), FoldError> {
        let (path, step, position) = (&stepped.path, stepped.step, self.facts.next);
        let rounds = self.rounds_of(path, &stepped.merged);
        if !self.facts.journals.is_empty() {
            let settled = |task: &TaskId| (task.path == *path && task.step <= step) || task.path.is_settled(path, step);
            self.facts.journals.retain(|task, _| !settled(task));
        }
        if !self.inner.is_empty() {
            // Paths inside another one stand next to it.
            let inside = self.inner.range(path.clone()..).map(|(inner, _)| inner).take_while(|inner| inner.is_within(path));
            let settled: Vec<Path> = inside.filter(|inner| inner.is_settled(path, step)).cloned().collect();
            settled.iter().for_each(|inner| _ = self.inner.remove(inner));
        }
        let scope = self.begun(path, "stepped")?;
        scope.count(rounds, stepped);
        scope.schedule(stepped, position);
        let steps = stepped.squashed.as_ref().map_or(u64::from(!stepped.merged.is_empty()), |s| s.steps);
        self.facts.steps_total = self.facts.steps_total.saturating_add(steps);
        if path.is_root() {
            self.rolled_back(steps);
        }
        self.facts.next.0 += 1;
        Ok(())
    }

    /// A new line of history begins at the checkpoint that was folded last; what was pending in the line that is left stays behind.
    fn fork(&mut self, forked: &Forked) {
        let stands = |scope: &&Scope| scope.facts.head.is_some_and(|head| head.position == forked.parent);
        let place = self.scopes().find(stands).map_or(Path::ROOT, |scope| scope.path.clone());
        self.facts.end_run();
        self.facts.is_ready = false;
        self.facts.branch = forked.branch;
        self.facts.forks = self.facts.forks.max(forked.branch.0);
        self.facts.questions.clear();
        self.facts.journals.clear();
        let keeps =
            |inner: &Path| (0..=place.frames().len()).map(|depth| place.to_depth(depth)).any(|outer| inner.is_kept_by(&outer));
        self.inner.retain(|inner, _| place.is_within(inner) || keeps(inner));
        for scope in std::iter::once(&mut self.root).chain(self.inner.values_mut()) {
            scope.drop_results();
            scope.facts.branch = forked.branch;
            // Calls that are not over go on in the new line, those beside the place too where the graph keeps its state.
            scope.facts.caller.iter_mut().for_each(|caller| caller.branch = forked.branch);
        }
    }

    pub(super) fn task_mut(&mut self, task: &TaskId, what: &'static str) -> Result<&mut Task, FoldError> {
        let misplaced = FoldError::Misplaced { position: self.facts.next, what };
        let Some((_, index)) = self.find(task) else { return Err(misplaced) };
        self.scope_mut(&task.path).map(|scope| &mut scope.facts.tasks[index]).ok_or(misplaced)
    }
}
