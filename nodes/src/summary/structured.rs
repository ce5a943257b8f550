//! A summary in parts.

use std::fmt;

use ferrata::state::Message;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{holds_summary, without_marker};
use crate::ask_for::read;
use crate::cut::CUT_MARK;
use crate::tokens::TokenCounter;

/// A summary of a conversation, with what is verified and what is doubtful apart.
///
/// This is what [`RollingSummary::structured`](crate::RollingSummary::structured) asks a model for. In the conversation it is text, with a line for each
/// entry, that can be read back.
///
/// ```
/// use ferrata_nodes::Summary;
///
/// let summary = Summary {
///     verified: vec!["The Heron has 40 seats (its page).".to_owned()],
///     doubtful: vec!["It may be closed on Mondays.".to_owned()],
///     decisions: Vec::new(),
///     open: vec!["Which hour?".to_owned()],
/// };
/// let text = summary.to_string();
/// assert_eq!(text, "Verified:\n- The Heron has 40 seats (its page).\nDoubtful:\n- It may be closed on Mondays.\nOpen:\n- Which hour?");
/// assert_eq!(Summary::read(&text), Some(summary));
/// assert_eq!(Summary::read("They looked for a table."), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// What was found out and is certain, each with what shows it: names, numbers, dates, results of tools.
    pub verified: Vec<String>,
    /// What was found or said and is not certain, or contradicts something else.
    pub doubtful: Vec<String>,
    /// What was decided or promised, and by whom.
    pub decisions: Vec<String>,
    /// What is still to be done, and which questions are open.
    pub open: Vec<String>,
}

const TITLES: [&str; 4] = ["Verified:", "Doubtful:", "Decisions:", "Open:"];

impl Summary {
    /// The running summary of a conversation, if there is one in parts.
    ///
    /// ```
    /// use ferrata::state::Message;
    /// use ferrata_nodes::{SUMMARY_ID, SUMMARY_MARKER, Summary};
    /// let summary = Message::user(format!("{SUMMARY_MARKER}\nOpen:\n- Which hour?")).with_id(SUMMARY_ID);
    /// assert_eq!(Summary::of(&[summary]).unwrap().open, ["Which hour?"]);
    /// ```
    pub fn of(messages: &[Message]) -> Option<Self> {
        let message = messages.iter().rfind(|message| holds_summary(message))?;
        Self::read(without_marker(&message.content))
    }

    /// Reads the text back; `None` if it is another text.
    pub fn read(text: &str) -> Option<Self> {
        let mut summary = Self::default();
        let mut part = None;
        for line in text.lines().filter(|line| *line != CUT_MARK) {
            if let Some(title) = TITLES.iter().position(|title| *title == line) {
                part = Some(title);
            } else {
                summary.parts_mut()[part?].push(line.strip_prefix("- ")?.to_owned());
            }
        }
        part.map(|_| summary)
    }

    /// The summary without its least important entries: what is doubtful goes first, then what is verified, the oldest before the newest. Where something is
    /// missing, the text says so. `None` if not one entry fits.
    pub(super) fn fitted(mut self, tokens_max: usize, counter: &dyn TokenCounter) -> Option<String> {
        loop {
            let [verified, doubtful, decisions, open] = self.parts_mut();
            let part = [doubtful, verified, decisions, open].into_iter().find(|part| !part.is_empty())?;
            part.remove(0);
            let text = self.to_string();
            if text.is_empty() {
                return None;
            }
            let text = format!("{text}\n{CUT_MARK}");
            if counter.count(&text) <= tokens_max {
                return Some(text);
            }
        }
    }

    fn parts(&self) -> [&Vec<String>; 4] {
        [&self.verified, &self.doubtful, &self.decisions, &self.open]
    }

    fn parts_mut(&mut self) -> [&mut Vec<String>; 4] {
        [&mut self.verified, &mut self.doubtful, &mut self.decisions, &mut self.open]
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (title, part) in TITLES.iter().zip(self.parts()).filter(|(_, part)| !part.is_empty()) {
            write!(f, "{between}{title}")?;
            between = "\n";
            for entry in part {
                let words: Vec<&str> = entry.split_whitespace().collect();
                write!(f, "\n- {}", words.join(" "))?;
            }
        }
        Ok(())
    }
}

/// The schema that a model is told of and its answer is checked by.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) schema: Value,
    validator: Option<jsonschema::Validator>,
}

impl Form {
    pub(super) fn new() -> Self {
        let schema = schema_for!(Summary).to_value();
        let validator = jsonschema::validator_for(&schema).ok();
        Self { schema, validator }
    }

    /// The text of an answer; else what is wrong with it, for the model.
    pub(super) fn read(&self, answer: &str) -> Result<String, String> {
        let validator = self.validator.as_ref().ok_or("there is no schema for it")?;
        let mut summary: Summary = read(answer, validator)?;
        summary.parts_mut().into_iter().for_each(|part| part.retain(|entry| !entry.trim().is_empty()));
        let text = summary.to_string();
        if text.is_empty() { Err("it has no entries".to_owned()) } else { Ok(text) }
    }
}
