//! What an effect says of itself before it is performed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parts::is_default;
use crate::error::shortened;
use crate::id::NodeName;
use crate::state::fingerprint;

/// What is done about an effect of which it is not known whether it was performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InDoubt {
    /// A person is asked.
    #[default]
    Ask,
    /// The node has a function that finds out.
    Check,
}

/// The arguments of an effect, as far as the log keeps them: enough to see that they are others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arguments {
    /// The same for the same JSON, in whichever order the keys of its maps stand.
    pub fingerprint: String,
    /// Their JSON, cut off after 200 characters.
    pub shown: String,
}

impl Arguments {
    pub(crate) fn of(value: &Value) -> Self {
        Self { fingerprint: fingerprint(value), shown: shortened(&value.to_string()) }
    }
}

/// What an effect said of itself before it was performed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectTerms {
    /// What it is performed with, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// What is done if it is not known whether it was performed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_doubt: InDoubt,
    /// How it is undone or reconciled, if it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Compensation>,
}

/// How an effect can be compensated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compensation {
    /// What the graph calls the function that does it.
    pub by: NodeName,
    /// What the effect gave it to work with.
    pub given: Value,
}

impl EffectTerms {
    /// Whether it said nothing.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}
