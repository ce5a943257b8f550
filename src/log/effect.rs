//! The records of what nodes do outside, and of how far they have come.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parts::Cost;
use super::record::Fault;
use super::terms::EffectTerms;
use crate::clock::Timestamp;
use crate::error::Failure;
use crate::id::{EffectId, TaskId};

/// See [`Record::EffectStarted`](super::Record::EffectStarted).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectStarted {
    /// The effect.
    pub effect: EffectId,
    /// The attempt of the task, from 1.
    pub attempt: u32,
    /// What it said of itself.
    #[serde(default, skip_serializing_if = "EffectTerms::is_plain")]
    pub terms: EffectTerms,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::EffectDone`](super::Record::EffectDone).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectDone {
    /// The effect.
    pub effect: EffectId,
    /// What it gave.
    pub result: Value,
    /// What it said of itself, if it was not started on record: a repeatable one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<EffectTerms>,
    /// Whether a check found that it had been performed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
    /// What it cost.
    pub cost: Cost,
}

/// See [`Record::EffectFailed`](super::Record::EffectFailed).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectFailed {
    /// The effect.
    pub effect: EffectId,
    /// What went wrong.
    pub failure: Failure,
}

/// Why it is not known whether an effect was performed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Doubt {
    /// The process ended between the start of the effect and its record.
    Interrupted,
    /// The attempt ran out of time.
    TimedOut,
    /// The node dropped the effect before it ended.
    Dropped,
    /// The run was cancelled, or came to its deadline.
    Cancelled,
    /// It failed with an error that does not say whether it was performed.
    Failed(Failure),
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted => f.write_str("the process ended before the outcome was recorded"),
            Self::TimedOut => f.write_str("the attempt ran out of time before the outcome was known"),
            Self::Dropped => f.write_str("the node stopped waiting for it"),
            Self::Cancelled => f.write_str("the run was cancelled before the outcome was known"),
            Self::Failed(failure) => write!(f, "it failed with \"{failure}\", which does not tell"),
        }
    }
}

/// See [`Record::EffectDoubted`](super::Record::EffectDoubted).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectDoubted {
    /// The effect.
    pub effect: EffectId,
    /// Why.
    pub why: Doubt,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Marked`](super::Record::Marked).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marked {
    /// The task.
    pub task: TaskId,
    /// What the node calls it.
    pub key: Arc<str>,
    /// How far it has come.
    pub value: Value,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Compensating`](super::Record::Compensating).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compensating {
    /// The effects, in the order in which they are compensated.
    pub effects: Vec<EffectId>,
    /// What the thread failed of, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Fault>,
    /// When.
    pub at: Timestamp,
}
