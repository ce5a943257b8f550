//! How an attempt of a task ends, and what follows.

use std::sync::Arc;

use serde_json::Value;

use super::{Env, Live, Machine, Place, Step};
use crate::clock::Timestamp;
use crate::error::{Class, Failure, Origin};
use crate::graph::{EXPIRED, NodeShape, circle_schema, verdict_schema};
use crate::id::{EffectId, NodeName, Path, QuestionId, TaskId};
use crate::log::{
    AttemptFailed, CloseReason, Closed, Cost, Doubt, OnExpiry, QuestionKind, QuestionSpec, Record, Target, TaskDone, TaskFailed,
    TaskStatus,
};
use crate::policy::Retry;
use crate::state::{Change, DEPTH_MAX, check, fingerprint, give_ids, is_within_depth};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum TaskEnd {
    /// The node returned.
    Done {
        changes: Vec<Change>,
        label: Option<&'static str>,
        goto: Option<Vec<Target>>,
        to_parent: bool,
        /// What it says that failed, and that it went on without.
        failures: Vec<Failure>,
    },
    /// The node failed, or took too long.
    Failed {
        failure: Failure,
        retry_after: Option<std::time::Duration>,
        timed_out: bool,
        /// What it wrote, if that breaks a rule, to be shown.
        result: Option<Value>,
    },
    /// The node waits for a person: questions it asked, and effects that failed without telling whether they happened.
    Paused { questions: Vec<QuestionSpec>, doubts: Vec<(EffectId, Failure)> },
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, Default)]
struct AfterFailure {
    /// How long to wait before another attempt, if there is to be one.
    delay: Option<std::time::Duration>,
    /// Whether the node's error handler takes over otherwise.
    handled: bool,
    /// Whether this was not the first attempt.
    is_again: bool,
    /// Whether a person is asked, if nobody takes over.
    asks: bool,
}

/// What a person is asked about a result that breaks a rule.
fn violation(task: &TaskId, failure: &Failure, result: Option<Value>) -> QuestionSpec {
    QuestionSpec {
        key: "violation".into(),
        occurrence: 0,
        kind: QuestionKind::Violation,
        text: match result {
            Some(_) => format!(
                "The result of node \"{}\" breaks a rule: {failure}. Is it taken as it is, or what has to change?",
                task.node
            ),
            None => format!("Node \"{}\" has no result that keeps to its rules: {failure}. What has to change?", task.node),
        },
        schema: verdict_schema(result.is_some()),
        show: Some(serde_json::json!({
            "node": task.node,
            "violation": failure.to_string(),
            "fingerprint": result.as_ref().map(fingerprint),
            "result": result,
        })),
        assignee: None,
        deadline_ms: None,
        until: None,
        reminders_ms: Vec::new(),
        on_expiry: OnExpiry::default(),
    }
}

/// What a person is asked about a node that hangs.
fn stall(task: &TaskId, failure: &Failure) -> QuestionSpec {
    QuestionSpec {
        key: "stall".into(),
        occurrence: 0,
        kind: QuestionKind::Stall,
        text: format!("Node \"{}\" hangs: {failure}. It was begun again once already. Is it tried again?", task.node),
        schema: circle_schema(),
        show: Some(serde_json::json!({"node": task.node, "why": failure.to_string()})),
        assignee: None,
        deadline_ms: None,
        until: None,
        reminders_ms: Vec::new(),
        on_expiry: OnExpiry::default(),
    }
}

impl Machine {
    /// Takes in the end of an attempt. A late one, of a task that has moved on, changes nothing.
    pub(crate) fn task_ended(&mut self, place: &Place, end: TaskEnd, cost: Cost, env: &Env<'_>) -> Step {
        let Some(task) = self.current(place) else { return Ok(()) };
        let end = self.waiting_for_known(self.asking(end));
        let (path, index) = (&place.path, place.index);
        let attempt = self.folded.scope(path).map_or(0, |scope| scope.facts.tasks[index].attempts).saturating_add(1);
        let live = if matches!(end, TaskEnd::Paused { .. }) { Live::Paused } else { Live::Idle };
        if let Some(motion) = self.motion_mut(path) {
            let was_at_work = motion.rest(index, live);
            motion.shape.index(&task.node).into_iter().for_each(|node| motion.make_room(node));
            self.at_work -= usize::from(was_at_work);
        }
        self.cut_off(&task);
        let paused = matches!(end, TaskEnd::Paused { .. });
        self.settle(index, task.clone(), attempt, end, cost, env)?;
        if paused && !self.folded.waits(&task) {
            // What it paused for was answered before it came to that.
            let motion = self.motion_mut(path);
            if let Some(motion) = motion
                && motion.woken.remove(&index)
            {
                motion.tasks[index] = Live::Idle;
            }
        }
        // Its error handler may have to start.
        let open = self.folded.scope(path).is_some_and(|scope| scope.facts.tasks[index].status == TaskStatus::Open);
        if let Some(motion) = self.motion_mut(path).filter(|_| open) {
            motion.ready.push_back(index);
        }
        self.proceed(path, env)
    }

    fn settle(&mut self, index: usize, task: TaskId, attempt: u32, end: TaskEnd, cost: Cost, env: &Env<'_>) -> Step {
        let why = match &end {
            TaskEnd::Failed { timed_out: true, .. } => Doubt::TimedOut,
            _ => Doubt::Dropped,
        };
        let then = match &end {
            TaskEnd::Failed { failure, retry_after, .. } => self.after_failure(index, &task, attempt, failure, *retry_after, env),
            TaskEnd::Done { .. } | TaskEnd::Paused { .. } => AfterFailure::default(),
        };
        // Where an error handler takes over, or the node has a result, it does not run again.
        let again = matches!(end, TaskEnd::Failed { .. }) && (then.delay.is_some() || !then.handled);
        match end {
            TaskEnd::Paused { questions, doubts } => {
                for (effect, failure) in doubts {
                    self.doubt_one(&effect, &Doubt::Failed(failure), env)?;
                }
                for spec in questions {
                    if self.ask(spec, &task, env)? {
                        // It need not wait.
                        self.motion_mut(&task.path).into_iter().for_each(|motion| _ = motion.woken.insert(index));
                    }
                }
                self.doubt(&task, &why, true, env)?;
                Ok(())
            }
            // An effect that was started and has no outcome goes before whatever the node says.
            _ if self.doubt(&task, &why, again, env)? => self.pause(&task.path, index),
            TaskEnd::Done { .. } if self.doubts_inside(&task) => self.pause(&task.path, index),
            TaskEnd::Done { changes, label, goto, to_parent, failures } => {
                let handler = self.handling(&task.path, index).is_some();
                let degraded = handler && self.degrades(&task);
                let handled = (handler && !degraded) || label == Some(EXPIRED);
                let goto = label.map(|label| self.labelled(&task, label)).or(goto);
                self.abandon_questions(&task, env)?;
                self.finish(TaskDone { task, attempt, changes, goto, handled, degraded, failures, to_parent, cost })
            }
            TaskEnd::Failed { failure, result, .. } if then.delay.is_none() && then.asks => {
                let is_stall = failure.origin == Origin::Stalled;
                let question = if is_stall { stall(&task, &failure) } else { violation(&task, &failure, result) };
                let began = self.began(&task, index);
                let failed = AttemptFailed { task: task.clone(), attempt, failure, next_at: env.now, began, cost };
                self.record(Record::AttemptFailed(Box::new(failed)))?;
                if let Some((verdict, shown)) = self.folded.verdict(&task) {
                    return if is_stall {
                        self.folded.try_again(&task, &verdict)
                    } else {
                        self.folded.judge(&task, &verdict, shown)
                    };
                }
                self.ask(question, &task, env)?;
                self.pause(&task.path, index)
            }
            TaskEnd::Failed { failure, .. } => self.retry_or_fail(index, task, attempt, failure, then, cost, env),
        }
    }

    /// What the node's error handler has to deal with, if it is at work.
    fn handling(&self, path: &Path, index: usize) -> Option<&Failure> {
        self.folded.scope(path)?.facts.tasks[index].handling.as_ref()
    }

    /// Whether what takes over for the node gives a value in its place.
    pub(super) fn degrades(&self, task: &TaskId) -> bool {
        let shape = self.motion(&task.path).map(|motion| &motion.shape);
        shape.and_then(|shape| Some(shape.nodes[shape.index(&task.node)?].policy.degrades)).unwrap_or_default()
    }

    /// The task has to wait for a person, and does nothing more in this run.
    fn pause(&mut self, path: &Path, index: usize) -> Step {
        self.motion_mut(path).into_iter().for_each(|motion| motion.tasks[index] = Live::Paused);
        Ok(())
    }

    /// Whether a person still has to say what came of an effect in a graph that the task called.
    fn doubts_inside(&self, task: &TaskId) -> bool {
        self.folded.facts.questions.iter().any(|question| question.is_doubt() && self.folded.works_for(&question.task.path, task))
    }

    /// A node that has a result needs no answers any more that graphs it called still wait for.
    fn abandon_questions(&mut self, task: &TaskId, env: &Env<'_>) -> Step {
        let inside = self.folded.facts.questions.iter().filter(|question| self.folded.works_for(&question.task.path, task));
        let questions: Vec<QuestionId> = inside.map(|question| question.id).collect();
        if questions.is_empty() {
            return Ok(());
        }
        self.record(Record::Closed(Box::new(Closed { questions, why: CloseReason::Abandoned, at: env.now })))
    }

    fn finish(&mut self, mut done: TaskDone) -> Step {
        // Who speaks to the graph outside has to keep to what holds there.
        let meant = if done.to_parent { done.task.path.outer() } else { Some(done.task.path.clone()) };
        let shape = meant.and_then(|path| self.root.shape.at(&path).cloned());
        let refused = match &shape {
            None => Some((Origin::NoParent, "it speaks to the graph outside, and there is none".to_owned())),
            Some(shape) => {
                let update = check(&shape.schema, &done.changes).err().map(|error| format!("its update is refused: {error}"));
                update.map(|message| (Origin::Update, message)).or_else(|| self.refused_goto(&done).map(|m| (Origin::Goto, m)))
            }
        };
        let (Some(shape), None) = (shape, &refused) else {
            let TaskDone { task, attempt, cost, .. } = done;
            let (origin, message) = refused.unwrap_or_default();
            let failure = Failure { origin, class: Class::Deterministic, message, causes: Vec::new(), tried: false };
            let handled = self.is_handled(&task);
            return self.record(Record::TaskFailed(Box::new(TaskFailed { task, attempt, failure, handled, cost })));
        };
        let (thread, task) = (&self.thread, done.task.clone());
        give_ids(&shape.schema, &mut done.changes, || format!("{thread}:{task}"));
        self.record(Record::TaskDone(Arc::new(done)))
    }

    /// Whether an error handler takes over for a task that has failed: it has one, which is not what failed.
    pub(super) fn is_handled(&self, task: &TaskId) -> bool {
        let first = self.folded.find(task).is_some_and(|(scope, index)| scope.facts.tasks[index].handling.is_none());
        let shape = self.motion(&task.path).map(|motion| &motion.shape);
        first && shape.and_then(|shape| Some(shape.nodes[shape.index(&task.node)?].policy.handled)).unwrap_or_default()
    }

    /// A node that says itself where to go keeps to what it declared; for one that speaks to the graph outside, the node there did.
    fn refused_goto(&self, done: &TaskDone) -> Option<String> {
        let targets = || done.goto.iter().flatten();
        if targets().any(|target| matches!(target, Target::Send { payload, .. } if !is_within_depth(payload))) {
            return Some(format!("it sends a payload nested deeper than {DEPTH_MAX} levels"));
        }
        let (path, name, handled) = match done.task.path.frames().last() {
            Some(frame) if done.to_parent => (done.task.path.outer()?, &frame.node, frame.on_error),
            _ => (done.task.path.clone(), &done.task.node, done.handled),
        };
        let shape = self.root.shape.at(&path)?;
        let NodeShape { leads_to, on_error_leads_to, exits, .. } = &shape.nodes[shape.index(name)?];
        let leads_to = if handled { on_error_leads_to } else { leads_to };
        let labelled = |name: &NodeName| exits.labels.iter().flat_map(|(_, to)| to).any(|to| shape.nodes[*to].name == *name);
        let wrong = targets().find_map(|target| {
            let (Target::Node(name) | Target::Past(name) | Target::Send { node: name, .. }) = target;
            (!leads_to.contains(name) && !labelled(name)).then_some(name)
        })?;
        let allowed = leads_to.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
        Some(format!("it goes to \"{wrong}\"; declared with `leads_to` are: {allowed}"))
    }

    /// The targets of a node's labelled edges.
    fn labelled(&self, task: &TaskId, label: &str) -> Vec<Target> {
        let Some(shape) = self.motion(&task.path).map(|motion| &motion.shape) else { return Vec::new() };
        let exits = shape.index(&task.node).map(|node| &shape.nodes[node].exits);
        let labels = exits.into_iter().flat_map(|exits| &exits.labels).filter(|(name, _)| *name == label);
        labels.flat_map(|(_, targets)| targets).map(|target| Target::Node(shape.nodes[*target].name.clone())).collect()
    }

    /// Whether another attempt is made, and if not, who takes over.
    fn after_failure(
        &self,
        index: usize,
        task: &TaskId,
        attempt: u32,
        failure: &Failure,
        retry_after: Option<std::time::Duration>,
        env: &Env<'_>,
    ) -> AfterFailure {
        let Some(scope) = self.folded.scope(&task.path) else { return AfterFailure::default() };
        let known = &scope.facts.tasks[index];
        let (first, spent) = (known.handling.is_none(), known.spent);
        let shape = self.motion(&task.path).map(|motion| &motion.shape);
        let policy = shape.and_then(|shape| Some(&shape.nodes[shape.index(&task.node)?].policy));
        let retries = policy.map(|policy| &policy.retries).filter(|_| first);
        let handled = first && policy.is_some_and(|policy| policy.handled);
        let rounds = policy.map_or(0, |policy| policy.rounds);
        let by_rounds = (failure.class == Class::Violation && rounds > 0 && first).then(|| Retry::violations(rounds));
        let retry = by_rounds.or_else(|| retries.into_iter().flatten().find(|retry| retry.is_for(failure.class)).copied());
        // Rounds are counted for themselves, and so are attempts that failed of something else.
        let nth = match by_rounds {
            Some(_) => known.rounds.saturating_add(1),
            None if rounds > 0 && first => attempt.saturating_sub(spent).saturating_sub(known.rounds),
            None => attempt - spent,
        };
        if failure.origin == Origin::Stalled {
            let delay = (known.stalls == 0).then_some(std::time::Duration::ZERO);
            return AfterFailure { delay, asks: true, ..AfterFailure::default() };
        }
        // An attempt that hung is none of those that the policy counts.
        let nth = nth.saturating_sub(known.stalls).max(1);
        let delay = retry.unwrap_or_default().next_delay(nth, failure.class, retry_after, (env.jitter)());
        // What was tried again inside is not tried again here, and no attempt begins when the time for all of them is over.
        let began = self.began(task, index);
        let until = policy.and_then(|policy| policy.total).zip(began).map(|(total, began)| began.plus(total));
        let in_time = |delay: &std::time::Duration| until.is_none_or(|until| env.now.plus(*delay) < until);
        AfterFailure {
            delay: delay.filter(in_time).filter(|_| !failure.tried),
            handled,
            // What an error handler passes on was tried as often as what it got.
            is_again: attempt - spent > 1 || known.handling.as_ref().is_some_and(|handling| handling.tried),
            asks: by_rounds.is_some() && !handled,
        }
    }

    /// When the first attempt of a task began, if that matters to anybody.
    pub(super) fn began(&self, task: &TaskId, index: usize) -> Option<Timestamp> {
        let recorded = self.folded.scope(&task.path)?.facts.tasks[index].again.and_then(|again| again.began);
        recorded.or_else(|| self.motion(&task.path)?.began.get(&index).copied())
    }

    #[allow(clippy::too_many_arguments, reason = "all of them go into the record")]
    fn retry_or_fail(
        &mut self,
        index: usize,
        task: TaskId,
        attempt: u32,
        mut failure: Failure,
        AfterFailure { delay, handled, is_again, asks: _ }: AfterFailure,
        cost: Cost,
        env: &Env<'_>,
    ) -> Step {
        match delay {
            None => {
                failure.tried |= is_again;
                self.record(Record::TaskFailed(Box::new(TaskFailed { task, attempt, failure, handled, cost })))
            }
            Some(delay) => {
                let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let (path, began) = (task.path.clone(), self.began(&task, index));
                self.record(Record::AttemptFailed(Box::new(AttemptFailed {
                    task,
                    attempt,
                    failure,
                    next_at: env.now.plus_ms(ms),
                    began,
                    cost,
                })))?;
                self.delay(&path, index, ms);
                Ok(())
            }
        }
    }
}
