//! Checks an answer before it is accepted.

use serde_json::Value;

use super::Machine;
use crate::id::QuestionId;
use crate::log::{Question, QuestionKind};
use crate::state::{DEPTH_MAX, is_within_depth};

/// An answer that is about to be recorded.
#[derive(Debug)]
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
    #[error("question {0} is answered twice in one call; give one answer")]
    Twice(QuestionId),
    #[error("the answer does not fit question \"{question}\": {what}; the question stays open")]
    Misfit { question: String, what: String },
}

impl Machine {
    /// Checks answers that are to be accepted together, or not at all.
    pub(crate) fn check_answers(&self, answers: &[GivenAnswer]) -> Result<(), AnswerRefusal> {
        for (place, answer) in answers.iter().enumerate() {
            if answers[..place].iter().any(|earlier| earlier.question == answer.question) {
                return Err(AnswerRefusal::Twice(answer.question));
            }
            self.check_answer(answer)?;
        }
        Ok(())
    }

    fn check_answer(&self, answer: &GivenAnswer) -> Result<(), AnswerRefusal> {
        let Some(question) = self.folded.facts.question(answer.question) else {
            return Err(AnswerRefusal::NotOpen(answer.question));
        };
        fits(question, &answer.value).map_err(|what| AnswerRefusal::Misfit { question: question.text.clone(), what })
    }
}

fn fits(question: &Question, value: &Value) -> Result<(), String> {
    if !is_within_depth(value) {
        return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
    }
    let validator = jsonschema::validator_for(&question.schema).map_err(|e| format!("its own schema is no JSON Schema: {e}"))?;
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .take(3)
        .map(|error| {
            let path = error.instance_path().to_string();
            if path.is_empty() { error.to_string() } else { format!("at {path}: {error}") }
        })
        .collect();
    match (wrong.is_empty(), &question.kind) {
        (true, _) => Ok(()),
        // What a schema of alternatives has to say helps nobody.
        (false, QuestionKind::Approval) => Err(format!("{value} is not one of {}", approvals(&question.schema))),
        (false, _) => Err(wrong.join("; ")),
    }
}

/// What an approval takes, as JSON.
fn approvals(schema: &Value) -> String {
    let mut takes = r#"{"verdict": "approve"}, {"verdict": "reject", "reason": TEXT}"#.to_owned();
    if let Some(edit) = schema["anyOf"].get(2) {
        takes.push_str(&format!(r#", {{"verdict": "edit", "value": {}}}"#, edit["properties"]["value"]));
    }
    takes
}
