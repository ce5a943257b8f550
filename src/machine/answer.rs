//! Checks an answer before it is accepted.

use std::sync::Arc;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::{Env, Live, Machine, Step};
use crate::clock::Timestamp;
use crate::error::{TooLarge, shortened};
use crate::id::{QuestionId, TaskId};
use crate::log::{Answered, Durability, Expired, OnExpiry, Question, QuestionKind, QuestionSpec, Record};
use crate::state::{DEPTH_MAX, is_within_depth, value_bytes};

/// How many reasons an error gives in one place.
const REASONS_MAX: usize = 3;

/// An answer that is about to be recorded.
#[derive(Clone, Debug)]
pub(crate) struct GivenAnswer {
    pub(crate) question: QuestionId,
    pub(crate) value: Value,
    pub(crate) by: Option<String>,
}

/// Why an answer is not accepted. The question, if there is one, stays open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerRefusal {
    #[error("question {0} is not open on this thread")]
    NotOpen(QuestionId),
    #[error(
        "question {id} (\"{question}\") could be answered until {deadline} ms; resume the thread, and it goes on as the question says"
    )]
    Overdue { id: QuestionId, question: String, deadline: u64 },
    #[error("question {id} (\"{question}\") is no person's to answer: send a signal, wait for its time, or change the state")]
    Outside { id: QuestionId, question: String },
    #[error("question {0} is answered twice in one call; give one answer")]
    Twice(QuestionId),
    #[error("the answer does not fit question \"{question}\": {what}; the question stays open")]
    Misfit { question: String, what: String },
    #[error("{0}; the question stays open")]
    TooLarge(TooLarge),
}

impl GivenAnswer {
    /// Refuses what must not even be copied: everything that goes through a value takes room on the stack for its depth.
    pub(crate) fn check_depth(&self) -> Result<(), AnswerRefusal> {
        let what = || format!("it is nested deeper than {DEPTH_MAX} levels");
        let refusal = || AnswerRefusal::Misfit { question: self.question.to_string(), what: what() };
        if is_within_depth(&self.value) { Ok(()) } else { Err(refusal()) }
    }
}

impl Machine {
    /// Checks answers that are to be accepted together, or not at all.
    pub(crate) fn check_answers(&self, answers: &[GivenAnswer], now: Timestamp) -> Result<(), AnswerRefusal> {
        for (place, answer) in answers.iter().enumerate() {
            if answers[..place].iter().any(|earlier| earlier.question == answer.question) {
                return Err(AnswerRefusal::Twice(answer.question));
            }
            answer.check_depth()?;
            self.check_answer(answer, now)?;
        }
        Ok(())
    }

    fn check_answer(&self, answer: &GivenAnswer, now: Timestamp) -> Result<(), AnswerRefusal> {
        let Some(question) = self.folded.facts.question(answer.question) else {
            return Err(AnswerRefusal::NotOpen(answer.question));
        };
        if question.is_outside() {
            return Err(AnswerRefusal::Outside { id: question.id, question: shortened(&question.text) });
        }
        if let Some(Timestamp(deadline)) = question.deadline.filter(|_| question.is_overdue(now)) {
            return Err(AnswerRefusal::Overdue { id: question.id, question: shortened(&question.text), deadline });
        }
        let what = || format!("the answer to question \"{}\"", shortened(&question.text));
        TooLarge::check(what, value_bytes(&answer.value), self.bounds.update_bytes).map_err(AnswerRefusal::TooLarge)?;
        fits(&question.kind, &question.schema, &answer.value)
            .map_err(|what| AnswerRefusal::Misfit { question: shortened(&question.text), what })
    }

    /// Takes in answers while the run goes on: who asked goes on with it. `None`: this run cannot take any.
    pub(crate) fn answer(&mut self, answers: Vec<GivenAnswer>, env: &Env<'_>) -> Step<Option<Result<(), AnswerRefusal>>> {
        // What such a run has asked is stored only when it ends.
        if self.ended || self.stopping || self.durability == Durability::Exit {
            return Ok(None);
        }
        if let Err(refusal) = self.check_answers(&answers, env.now) {
            return Ok(Some(Err(refusal)));
        }
        let asked = |answer: &GivenAnswer| self.folded.facts.question(answer.question).cloned();
        let questions: Vec<Arc<Question>> = answers.iter().filter_map(asked).collect();
        self.record_answers(answers, env)?;
        questions.iter().try_for_each(|question| self.wake(question, env))?;
        Ok(Some(Ok(())))
    }

    pub(super) fn record_answers(&mut self, answers: Vec<GivenAnswer>, env: &Env<'_>) -> Step {
        answers.into_iter().try_for_each(|GivenAnswer { question, value, by }| {
            self.record(Record::Answered(Box::new(Answered { question, value, by, at: env.now })))
        })
    }

    /// A task that waited for an answer may go on, and so may those that wait for the graph it is in, however deep.
    pub(super) fn wake(&mut self, question: &Question, env: &Env<'_>) -> Step {
        let asked = &question.task;
        for depth in (0..=asked.path.frames().len()).rev() {
            let path = asked.path.to_depth(depth);
            let Some((scope, motion)) = self.folded.scope(&path).zip(self.motion(&path)) else { continue };
            let waited = |task: &TaskId| {
                (self.folded.stops(question, task) || self.folded.works_for(&asked.path, task)) && !self.folded.waits(task)
            };
            let woken: Vec<usize> = (0..motion.tasks.len()).filter(|index| waited(&scope.task_id(*index))).collect();
            let Some(motion) = self.motion_mut(&path) else { continue };
            for index in woken {
                // The time that a person took is not the node's.
                motion.began.remove(&index);
                match motion.tasks[index] {
                    Live::Idle | Live::Paused => {
                        motion.tasks[index] = Live::Idle;
                        motion.ready.push_back(index);
                    }
                    // It may have been told to pause, and not have come to it yet.
                    Live::Running { .. } => _ = motion.woken.insert(index),
                    Live::Delayed { .. } => {}
                }
            }
            self.proceed(&path, env)?;
        }
        Ok(())
    }

    /// Closes the questions whose deadlines have passed, as they say. True if one of them suspends the thread.
    pub(crate) fn expire(&mut self, env: &Env<'_>) -> Step<bool> {
        let overdue: Vec<_> = self.folded.facts.questions.iter().filter(|q| q.is_overdue(env.now)).cloned().collect();
        for question in &overdue {
            let (id, then) = (question.id, question.on_expiry.clone());
            self.record(Record::Expired(Box::new(Expired { question: id, then, at: env.now })))?;
        }
        Ok(overdue.iter().any(|question| question.on_expiry == OnExpiry::Suspend))
    }
}

/// Whether what is to stand in place of an answer could be one.
pub(crate) fn check_expiry(spec: &QuestionSpec) -> Result<(), String> {
    let OnExpiry::Answer(value) = &spec.on_expiry else { return Ok(()) };
    fits(&spec.kind, &spec.schema, value)
        .map_err(|what| format!("what is to stand for an answer when the question expires does not fit: {what}"))?;
    if spec.kind == QuestionKind::Approval && value["verdict"] != "reject" {
        return Err("a deadline cannot approve anything; let the question expire with a refusal, or lead its `expired` edges to a node of their own".to_owned());
    }
    Ok(())
}

pub(super) fn fits(kind: &QuestionKind, schema: &Value, value: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|e| format!("its own schema is no JSON Schema: {e}"))?;
    let wrong: Vec<String> = validator.iter_errors(value).take(REASONS_MAX).map(|error| reason(&error)).collect();
    match (wrong.is_empty(), kind) {
        (true, _) => Ok(()),
        // What a schema of alternatives has to say helps nobody.
        (false, QuestionKind::Approval | QuestionKind::Violation | QuestionKind::Guard(_) | QuestionKind::Stall) => {
            Err(format!("{} is not one of {}", shortened(&value.to_string()), approvals(schema)))
        }
        (false, _) => Err(wrong.join("; ")),
    }
}

/// Where a value does not fit, and what of it. Of a choice it says why each of the alternatives is none.
fn reason(error: &ValidationError<'_>) -> String {
    let place = match error.instance_path().as_str() {
        "" => String::new(),
        path => format!("at {path}: "),
    };
    let context = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => context,
        _ => return place + &shortened(&error.to_string()),
    };
    let ways = context.iter().enumerate().take(REASONS_MAX).map(|(way, errors)| {
        let errors = errors.iter().take(REASONS_MAX).map(reason).collect::<Vec<_>>().join(", ");
        format!("({}) {errors}", way + 1)
    });
    let more = if context.len() > REASONS_MAX { format!("; and {} more", context.len() - REASONS_MAX) } else { String::new() };
    format!("{place}it is none of {} alternatives: {}{more}", context.len(), ways.collect::<Vec<_>>().join("; "))
}

/// What an approval takes, as JSON.
fn approvals(schema: &Value) -> String {
    let mut takes = r#"{"verdict": "reject", "reason": TEXT}"#.to_owned();
    if schema["anyOf"][0]["properties"]["verdict"]["const"] == "approve" {
        takes.insert_str(0, r#"{"verdict": "approve"}, "#);
    }
    if let Some(edit) = schema["anyOf"].get(2) {
        takes.push_str(&format!(r#", {{"verdict": "edit", "value": {}}}"#, edit["properties"]["value"]));
    }
    takes
}
