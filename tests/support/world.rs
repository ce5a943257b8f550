//! A world that remembers what was done in it, a rule, and how runs end.

use std::sync::{Arc, Mutex};

use ferrata::{Error, Outcome, QuestionId, View};

use super::work::Work;

pub(crate) fn at_least_3(_: &Work, after: &Work) -> Result<(), String> {
    if after.n >= 3 { Ok(()) } else { Err(format!("{} is too little", after.n)) }
}

pub(crate) fn asked(outcome: Result<Outcome<Work>, Error>) -> QuestionId {
    let outcome = outcome.expect("it asks");
    let [question] = outcome.questions() else { panic!("{outcome:?}") };
    question.id
}

pub(crate) fn ended(outcome: Result<Outcome<Work>, Error>) -> View<Work> {
    let outcome = outcome.expect("it works");
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    outcome.done().expect("it ends")
}

/// A world that remembers what was done in it, in order. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct World(Arc<Mutex<Vec<String>>>);

impl World {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Does it, and says how often anything was done, this time included.
    pub(crate) fn act(&self, what: impl Into<String>) -> i64 {
        let mut done = self.0.lock().expect("no panic");
        done.push(what.into());
        done.len() as i64
    }

    pub(crate) fn done(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}
