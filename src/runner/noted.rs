//! What nodes say that failed, and that they go on without.

use super::context::{Attempt, Context};
use crate::error::{Failure, NodeError, shortened};

/// How many different ones of an attempt are kept.
const FAILURES_MAX: usize = 64;

impl Attempt {
    /// What the node said that failed.
    pub(crate) fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut self.lock().failures)
    }
}

impl Context {
    /// Tells of something that failed and that the node goes on without: a tool whose error goes back to a model, a file that is left out. It stands in the log with
    /// the node's result, and counts for a [`Guard`](crate::Guard). What is told in an attempt that fails itself, or waits for a person, is not kept; of
    /// one attempt at most 64 different ones are.
    pub fn note_failure(&self, error: &NodeError) {
        let failure = error.failure();
        let failure = Failure { message: shortened(&failure.to_string()), causes: Vec::new(), ..failure };
        let mut control = self.attempt.lock();
        if control.failures.len() < FAILURES_MAX && !control.failures.contains(&failure) {
            control.failures.push(failure);
        }
    }
}
