//! The operations of a script.

use serde_json::{Map, Value};

use super::scenario::{Command, Names, OneOrMany, present};

/// One operation of the script.
#[derive(Debug, serde::Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Operation {
    Invoke(Run),
    Stream(Run),
    GetState(Place),
    History(Place),
    UpdateState(Edit),
    DeleteThread(Place),
    NewProcess,
}

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Invoke(_) => "invoke",
            Self::Stream(_) => "stream",
            Self::GetState(_) => "get_state",
            Self::History(_) => "history",
            Self::UpdateState(_) => "update_state",
            Self::DeleteThread(_) => "delete_thread",
            Self::NewProcess => "new_process",
        }
    }
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Run {
    #[serde(default = "first_thread")]
    pub(crate) thread: String,
    #[serde(default, deserialize_with = "present")]
    pub(crate) input: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) resume: Option<Value>,
    pub(crate) resume_by_value: Option<Vec<(Value, Value)>>,
    pub(crate) command: Option<Command>,
    pub(crate) recursion_limit: Option<i64>,
    pub(crate) durability: Option<Durability>,
    pub(crate) interrupt_before: Option<Names>,
    pub(crate) interrupt_after: Option<Names>,
    pub(crate) at: Option<At>,
    pub(crate) mode: Option<OneOrMany>,
    /// Whether a stream tells what happens inside subgraphs too.
    #[serde(default)]
    pub(crate) subgraphs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Durability {
    Async,
    Sync,
    Exit,
}

/// What is looked at, or removed.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Place {
    #[serde(default = "first_thread")]
    pub(crate) thread: String,
    pub(crate) at: Option<At>,
    #[serde(default)]
    pub(crate) subgraphs: bool,
    #[serde(default, rename = "in")]
    pub(crate) inside: Vec<String>,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Edit {
    #[serde(default = "first_thread")]
    pub(crate) thread: String,
    pub(crate) values: Option<Map<String, Value>>,
    pub(crate) as_node: Option<String>,
    pub(crate) at: Option<At>,
    #[serde(default, rename = "in")]
    pub(crate) inside: Vec<String>,
}

/// Picks a checkpoint of the thread's history.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct At {
    pub(crate) next: Vec<String>,
    pub(crate) source: Option<String>,
    #[serde(default)]
    pub(crate) nth: usize,
}

fn first_thread() -> String {
    "t1".to_owned()
}
