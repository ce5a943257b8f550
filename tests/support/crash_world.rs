//! The state of graphs that are crashed, and the world that they change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ferrata::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
pub(crate) struct Work {
    pub(crate) n: u64,
    #[state(append)]
    pub(crate) log: Vec<String>,
}

/// A world that counts what is done in it. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside(Arc<Mutex<BTreeMap<String, u64>>>);

impl Outside {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// How often it was done, this time included.
    pub(crate) fn perform(&self, what: &str) -> u64 {
        let mut done = self.0.lock().expect("no panic");
        let count = done.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn performed(&self, what: &str) -> u64 {
        self.0.lock().expect("no panic").get(what).copied().unwrap_or_default()
    }
}
