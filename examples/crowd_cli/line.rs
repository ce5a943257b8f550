//! What stands in the ledger: what happened, told by those who did it, and not by the engine.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ferrata::log::Record;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// A process has opened the store. How many records each thread has there.
    Found { threads: BTreeMap<String, u64> },
    /// A node begins.
    Starts { thread: String, task: String },
    /// An effect is performed: this line is what it does to the world.
    Performs { thread: String, effect: String, key: String, result: String, repeatable: bool },
    /// Records are about to be given to the store, the first of them for this position.
    Gives { thread: String, position: u64, records: Vec<Written> },
    /// The store has acknowledged them.
    Keeps { thread: String, position: u64 },
    /// The thread's caller was told that questions are open.
    Waits { thread: String, questions: Vec<String> },
    /// The thread's caller was told that it is done, and got this state.
    Done { thread: String, round: u64, state: u64 },
}

/// A record, as far as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Which kind of record.
    pub(crate) kind: String,
    /// The task, effect or question that it is about, if it is about one.
    pub(crate) about: String,
    /// What it is as JSON, in short.
    pub(crate) digest: u64,
}

/// A short form of a value, for comparisons.
pub(crate) fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// What the ledger knows of a record.
pub(crate) fn written(record: &Record) -> Written {
    let json = serde_json::to_value(record).expect("a record is JSON");
    let kind = json.as_object().and_then(|object| object.keys().next()).cloned().unwrap_or_default();
    let about = match record {
        Record::TaskDone(done) => done.task.to_string(),
        Record::EffectStarted(started) => started.effect.to_string(),
        Record::EffectDone(done) => done.effect.to_string(),
        Record::Asked(question) => question.id.to_string(),
        Record::Answered(answered) => answered.question.to_string(),
        _ => String::new(),
    };
    Written { kind, about, digest: digest(&json) }
}
