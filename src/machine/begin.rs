//! How a run begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Command, Ending, Env, Gone, Machine, RunFailure, Step, answer::GivenAnswer, call::Called};
use crate::clock::Timestamp;
use crate::id::{EffectId, Path, RunId, StepNumber, TaskId};
use crate::log::{
    CloseReason, Closed, Doubt, Durability, Fault, InDoubt, Input, Opened, QuestionKind, Record, RunOutcome, RunStarted, Trigger,
    inner_schemas,
};
use crate::state::{Change, StateError, ValueError, check, give_ids};

/// Why a run does not begin. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a run needs at least one step; set a higher limit")]
    NoSteps,
    #[error("there is nothing to continue: the thread has no input yet; run it with one")]
    Fresh,
    #[error("the thread has unfinished work at: {next}; resume it, or say that the new input supersedes it")]
    Unfinished { next: String },
    #[error("the thread waits for an answer to: {questions}; answer, or say that the new input supersedes the questions")]
    Waiting { questions: String },
    #[error("it is not known whether {effects} happened, so nothing may take their place; answer first: {questions}")]
    InDoubt { effects: String, questions: String },
    #[error("what the thread did outside is being compensated; resume it until that is done")]
    Compensating,
    #[error("the input cannot be applied: {0}")]
    Input(#[source] StateError),
    #[error("{0}")]
    Gone(Gone),
    #[error("{0}")]
    Limit(RunFailure),
}

impl Refusal {
    /// An input that cannot be merged.
    fn of_input(failure: RunFailure) -> Self {
        match failure {
            RunFailure::Merge { source, .. } => Self::Input(source),
            failure if failure.is_size() => Self::Limit(failure),
            other => Self::Input(StateError::Value(ValueError::new(other.to_string()))),
        }
    }
}

/// What a run begins with.
#[derive(Debug)]
pub(crate) enum Begin {
    Input {
        changes: Vec<Change>,
        /// Drops unfinished work and open questions.
        supersede: bool,
    },
    Resume,
    /// Gives up what is due, and compensates what was done outside; goes on with that if it was begun.
    Compensate {
        /// What the thread failed of, if that is why.
        why: Option<Fault>,
    },
    /// Answers that were checked before.
    Answer(Vec<GivenAnswer>),
}

/// What a run may take.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Steps of the run, in each of its graphs.
    pub(crate) steps_max: u64,
    /// Steps in the life of the thread.
    pub(crate) thread_steps_max: Option<u64>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) tags: BTreeMap<String, String>,
}

impl Machine {
    /// Begins a run. A refusal leaves the thread as it was, and so does a run with nothing to do, which ends at once without a record.
    pub(crate) fn begin(&mut self, begin: Begin, limits: Limits, env: &Env<'_>) -> Step<Result<(), Refusal>> {
        let trigger = match &begin {
            Begin::Input { .. } => Trigger::Input,
            Begin::Resume => Trigger::Resume,
            Begin::Answer(_) => Trigger::Answer,
            Begin::Compensate { .. } => Trigger::Compensate,
        };
        if limits.steps_max == 0 {
            return Ok(Err(Refusal::NoSteps));
        }
        if let Err(refusal) = self.admit(&begin) {
            return Ok(Err(refusal));
        }
        if matches!(begin, Begin::Resume)
            && let Some(ending) = self.nothing_to_do(env)
        {
            self.commands.push(Command::End(ending));
            return Ok(Ok(()));
        }
        let was_cut_off = self.folded.facts.run.as_ref().is_some_and(|run| run.ended.is_none());
        self.start_run(trigger, limits, env)?;
        match begin {
            Begin::Input { changes, .. } => {
                if let Err(failure) = self.take_input(&Path::ROOT, None, changes, env)? {
                    return Ok(Err(Refusal::of_input(failure)));
                }
                if self.stops_here(&Path::ROOT) {
                    self.end(&Path::ROOT, Ending::Paused, env)?;
                    return Ok(Ok(()));
                }
            }
            Begin::Resume => {}
            Begin::Compensate { .. } if self.is_compensating() || self.has_compensated() => {}
            Begin::Compensate { why } => {
                if self.folded.root.facts.input.is_some() {
                    // The process died before the steps behind the input were stored; the input itself was taken.
                    if let Err(failure) = self.merge_step(&Path::ROOT)? {
                        self.end(&Path::ROOT, Ending::Failed(failure), env)?;
                        return Ok(Ok(()));
                    }
                }
                self.compensate(why, env)?;
            }
            Begin::Answer(answers) => self.record_answers(answers, env)?,
        }
        let suspends = self.expire(env)?;
        self.doubt_what_was_under_way(was_cut_off, env)?;
        if suspends {
            self.end(&Path::ROOT, Ending::Expired, env)?;
            return Ok(Ok(()));
        }
        if self.folded.root.facts.input.is_some() {
            // The process died before the steps behind the input were stored.
            if let Err(failure) = self.merge_step(&Path::ROOT)? {
                self.end(&Path::ROOT, Ending::Failed(failure), env)?;
                return Ok(Ok(()));
            }
            if self.stops_here(&Path::ROOT) {
                self.end(&Path::ROOT, Ending::Paused, env)?;
                return Ok(Ok(()));
            }
        }
        self.proceed(&Path::ROOT, env)?;
        Ok(Ok(()))
    }

    fn start_run(&mut self, trigger: Trigger, limits: Limits, env: &Env<'_>) -> Step {
        let (durability, at) = (self.durability, env.now);
        self.tell_shapes(env)?;
        let run = RunId((env.new_id)());
        let Limits { steps_max, thread_steps_max, deadline, tags } = limits;
        let graph = Some(self.root.shape.fingerprint.clone());
        let unguarded = self.root.shape.unguarded.clone();
        let started = RunStarted { run, trigger, steps_max, thread_steps_max, deadline, tags, graph, unguarded, durability, at };
        self.record(Record::RunStarted(Box::new(started)))
    }

    /// What the states look like from here on: the first record of a thread, and of a program with other shapes that goes on with it.
    pub(super) fn tell_shapes(&mut self, env: &Env<'_>) -> Step {
        let shape = Arc::clone(&self.root.shape);
        let states = self.upgraded.take();
        let record = match &self.folded.facts.opened {
            Some(opened) if states.is_none() && opened.tells(&shape.kind) => return Ok(()),
            Some(_) => Record::Upgraded(Box::new(self.folded.upgraded(&shape.kind, states.unwrap_or_default(), env.now))),
            None => Record::Opened(Box::new(Opened {
                id: (env.new_id)(),
                was: Vec::new(),
                thread: self.thread.clone(),
                graph: shape.name.clone(),
                schema: shape.kind.told().clone(),
                fingerprint: Some(shape.kind.fingerprint().to_owned()),
                inner: inner_schemas(&shape.kind),
                at: env.now,
            })),
        };
        self.record(record)
    }

    fn admit(&self, begin: &Begin) -> Result<(), Refusal> {
        let (facts, root, shape) = (&self.folded.facts, &self.folded.root.facts, &self.root.shape);
        match begin {
            Begin::Input { supersede: true, .. } => {
                if self.is_compensating() {
                    return Err(Refusal::Compensating);
                }
                if let Some((effects, questions)) = self.in_doubt() {
                    return Err(Refusal::InDoubt { effects, questions });
                }
            }
            Begin::Input { .. } if self.is_compensating() => return Err(Refusal::Compensating),
            Begin::Input { .. } if !facts.questions.is_empty() => {
                let questions: Vec<_> = facts.questions.iter().map(|q| format!("\"{}\" ({})", q.text, q.id)).collect();
                return Err(Refusal::Waiting { questions: questions.join(", ") });
            }
            Begin::Input { .. } if !root.tasks.is_empty() || root.input.is_some() => {
                return Err(Refusal::Unfinished { next: self.open_nodes() });
            }
            Begin::Input { .. } => {}
            Begin::Resume | Begin::Answer(_) | Begin::Compensate { .. } if root.head.is_none() => return Err(Refusal::Fresh),
            Begin::Compensate { .. } if !self.is_compensating() => {
                if let Some((effects, questions)) = self.in_doubt_for_good() {
                    return Err(Refusal::InDoubt { effects, questions });
                }
                if let Some(gone) = self.gone_compensation() {
                    return Err(Refusal::Gone(gone));
                }
            }
            Begin::Resume | Begin::Answer(_) | Begin::Compensate { .. } => {
                if let Some(gone) = self.gone() {
                    return Err(Refusal::Gone(gone));
                }
            }
        }
        if let Begin::Input { changes, .. } = begin {
            check(&shape.schema, changes).map_err(Refusal::Input)?;
            self.bounds.changes(|| "the input".to_owned(), changes).map_err(Refusal::Limit)?;
        }
        Ok(())
    }

    /// Effects of the open step that may have happened, and the questions about them.
    pub(super) fn in_doubt(&self) -> Option<(String, String)> {
        self.in_doubt_but(&|_| false)
    }

    /// As [`in_doubt`](Self::in_doubt), without effects that are settled otherwise.
    pub(super) fn in_doubt_but(&self, is_settled: &dyn Fn(&EffectId) -> bool) -> Option<(String, String)> {
        let facts = &self.folded.facts;
        let doubtful = facts.journals.keys().flat_map(|task| facts.doubtful(task)).map(|(effect, _)| effect);
        let mut effects: Vec<String> = doubtful.filter(|effect| !is_settled(effect)).map(|effect| effect.to_string()).collect();
        effects.sort();
        let mut questions = Vec::new();
        for question in &facts.questions {
            if let QuestionKind::Doubt(effect) = &question.kind
                && !is_settled(effect)
            {
                effects.push(effect.to_string());
                questions.push(question.id.to_string());
            }
        }
        if questions.is_empty() {
            questions.push("resume the thread, and it asks or finds out".to_owned());
        }
        (!effects.is_empty()).then(|| (effects.join(", "), questions.join(", ")))
    }

    fn open_nodes(&self) -> String {
        let open = self.folded.root.facts.tasks.iter().filter(|t| t.result().is_none());
        let mut names: Vec<&str> = open.map(|t| t.due.node.as_str()).collect();
        if names.is_empty() {
            names = self.folded.root.facts.tasks.iter().map(|t| t.due.node.as_str()).collect();
        }
        names.dedup();
        if names.is_empty() { "the entry".to_owned() } else { names.join(", ") }
    }

    /// A finished thread, and one that waits in all its tasks, have nothing to do, if the last run ended as that. Behind any other ending a run is made
    /// that only ends: the log has to say what the caller is told.
    fn nothing_to_do(&self, env: &Env<'_>) -> Option<Ending> {
        let ended = self.folded.facts.run.as_ref()?.ended.as_ref()?;
        if self.folded.root.is_finished() {
            return (*ended == RunOutcome::Done).then_some(Ending::Done);
        }
        let is_overdue = self.folded.facts.questions.iter().any(|question| question.is_overdue(env.now));
        let waits = *ended == RunOutcome::Waiting && !is_overdue && self.folded.is_stuck(&self.folded.root);
        waits.then(|| Ending::Waiting(self.folded.facts.questions.clone()))
    }

    /// An input of the graph at `path`: it is the result of the start, so it is merged, and the start's edges fire.
    pub(super) fn take_input(
        &mut self,
        path: &Path,
        called: Option<Called>,
        mut changes: Vec<Change>,
        env: &Env<'_>,
    ) -> Step<Result<(), RunFailure>> {
        let Some(shape) = self.root.shape.at(path).cloned() else { return Ok(Ok(())) };
        if let Some(fields) = &shape.input {
            changes.retain(|change| fields.iter().any(|field| *field == change.field));
        }
        let (facts, known) =
            (&self.folded.facts, self.folded.scope(called.as_ref().and_then(|called| called.was.as_ref()).unwrap_or(path)));
        let is_given_up = |task: &TaskId| task.path.is_within(path) && !self.folded.is_ahead(path, task);
        let open: Vec<_> = facts.questions.iter().filter(|q| is_given_up(&q.task)).map(|question| question.id).collect();
        // Above every step that effects were recorded for, so that no task is taken for one that was given up.
        let recorded = facts.journals.keys().filter(|task| is_given_up(task)).filter_map(|task| Some(task.step_in(path)?.next()));
        let (branch, step) = (facts.branch, recorded.chain(known.map(|scope| scope.step_due())).max().unwrap_or(StepNumber(-1)));
        if !open.is_empty() {
            // Inside, what was asked belongs to a call that nobody waits for any more.
            let why = if path.is_root() { CloseReason::Superseded } else { CloseReason::Abandoned };
            self.record(Record::Closed(Box::new(Closed { questions: open, why, at: env.now })))?;
        }
        let thread = &self.thread;
        give_ids(&shape.schema, &mut changes, || format!("{thread}:{}:{path}input@{}", branch.0, step.0));
        let unlisted = self.durability == Durability::Exit;
        let shared = called.as_ref().is_some_and(|called| called.shared);
        let (caller, was, arguments) =
            called.map_or((None, None, None), |called| (Some(called.caller), called.was, called.arguments));
        let input = Input { branch, path: path.clone(), caller, shared, step, changes, unlisted, was, arguments };
        self.record(Record::Input(Box::new(input)))?;
        self.merge_step(path)
    }

    /// The process ended while these effects were under way; or their run ended by itself, and what a check will find out has its doubt on record.
    fn doubt_what_was_under_way(&mut self, was_cut_off: bool, env: &Env<'_>) -> Step {
        // Also effects of steps that were never stored.
        let mut tasks: Vec<TaskId> = self.folded.facts.journals.keys().cloned().collect();
        tasks.sort();
        let mut doubtful: Vec<_> = tasks.iter().flat_map(|task| self.folded.facts.doubtful(task)).collect();
        doubtful.retain(|(_, in_doubt)| was_cut_off || *in_doubt == InDoubt::Ask);
        self.doubt_each(doubtful, &Doubt::Interrupted, true, env).map(|_| ())
    }
}
