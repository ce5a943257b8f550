//! The scenario file: graphs, nodes, and operations of bodies. The script has a file of its own.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::operation::Operation;

/// The entry, as scenarios call it.
pub(crate) const START: &str = "__start__";
/// The end, as scenarios call it.
pub(crate) const END: &str = "__end__";

/// A scenario: graphs, and what is done with the one called `main`.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) graphs: Listed<Graph>,
    pub(crate) script: Vec<Operation>,
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Graph {
    pub(crate) state: Listed<Field>,
    pub(crate) input_schema: Option<Vec<String>>,
    pub(crate) output_schema: Option<Vec<String>>,
    pub(crate) nodes: Listed<Node>,
    #[serde(default)]
    pub(crate) extra_nodes: Vec<(String, Node)>,
    #[serde(default)]
    pub(crate) edges: Vec<(OneOrMany, String)>,
    #[serde(default)]
    pub(crate) conditional: Vec<Conditional>,
    #[serde(default)]
    pub(crate) compile: Compile,
}

#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Field {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) reducer: Reducer,
    #[serde(default)]
    pub(crate) private: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reducer {
    #[default]
    Last,
    Append,
    Add,
    Concat,
    Merge,
    Max,
    Messages,
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Conditional {
    pub(crate) from: String,
    pub(crate) route: Value,
    pub(crate) map: Option<Labels>,
}

/// What a route's names stand for.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Labels {
    Names(Vec<String>),
    Labels(Map<String, Value>),
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(crate) struct Compile {
    pub(crate) checkpointer: Option<Value>,
    #[serde(default)]
    pub(crate) interrupt_before: Names,
    #[serde(default)]
    pub(crate) interrupt_after: Names,
}

/// A list of node names, or `"*"` for all.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Names {
    Listed(Vec<String>),
    All(String),
}

impl Default for Names {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Node {
    #[serde(default)]
    pub(crate) ops: Vec<Op>,
    pub(crate) subgraph: Option<String>,
    pub(crate) reads: Option<Vec<String>>,
    pub(crate) retry: Option<Retries>,
    #[serde(default)]
    pub(crate) defer: bool,
    pub(crate) on_error: Option<Vec<Op>>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Retries {
    One(RetryPolicy),
    Many(Vec<RetryPolicy>),
}

#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct RetryPolicy {
    #[serde(default = "three")]
    pub(crate) max_attempts: u32,
    #[serde(default = "transient")]
    pub(crate) retry_on: Vec<FailureClass>,
}

fn three() -> u32 {
    3
}

fn transient() -> Vec<FailureClass> {
    vec![FailureClass::Transient]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureClass {
    Transient,
    Fatal,
}

/// One operation of a body. Each has a key of its own.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Op {
    Write {
        write: Map<String, Value>,
    },
    Let {
        #[serde(rename = "let")]
        bind: Map<String, Value>,
    },
    Count {
        count: String,
    },
    Emit {
        emit: Value,
    },
    Interrupt {
        interrupt: Value,
        #[serde(rename = "as")]
        name: String,
    },
    Fail {
        fail: FailureClass,
        times: i64,
    },
    If {
        #[serde(rename = "if")]
        condition: Value,
        then: Vec<Op>,
        #[serde(default, rename = "else")]
        otherwise: Vec<Op>,
    },
    While {
        #[serde(rename = "while")]
        condition: Value,
        #[serde(rename = "do")]
        body: Vec<Op>,
    },
    After {
        after: Vec<String>,
        #[serde(default = "one")]
        tasks: usize,
    },
    Call {
        call: String,
        input: Value,
        #[serde(rename = "as")]
        name: String,
    },
    Command {
        command: Command,
    },
    Return {
        #[serde(rename = "return")]
        result: Value,
    },
}

fn one() -> usize {
    1
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(crate) struct Command {
    pub(crate) update: Option<Map<String, Value>>,
    pub(crate) goto: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) resume: Option<Value>,
    pub(crate) graph: Option<String>,
}

/// Tells a value that is null from one that is absent.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A word, or a list of words.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn list(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// An object whose order counts.
#[derive(Debug)]
pub(crate) struct Listed<T>(pub(crate) Vec<(String, T)>);

impl<T> Listed<T> {
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Vec<(String, T)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Entries(PhantomData)).map(Self)
    }
}
