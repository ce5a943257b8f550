//! What outlives runs and processes of a scenario: how often bodies started, counters, injected failures.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::engine::Runner;

/// Shared by all bodies of a scenario.
#[derive(Default)]
pub(crate) struct World {
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    runs: BTreeMap<String, u64>,
    counts: BTreeMap<String, u64>,
    failures: BTreeMap<String, i64>,
    /// The runner of the main graph: a body that waits for its siblings looks for their records.
    runner: Option<Runner>,
    /// Whether results are recorded when a task ends, as far as the scenario says so.
    records_at_once: bool,
}

/// How often each name was counted.
pub(crate) type Counts = BTreeMap<String, u64>;

impl World {
    fn lock(&self) -> MutexGuard<'_, Tally> {
        // Nothing here panics half-way through a change.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body starts.
    pub(crate) fn started(&self, node: &str) {
        *self.lock().runs.entry(node.to_owned()).or_default() += 1;
    }

    /// A side effect that nothing undoes.
    pub(crate) fn count(&self, name: &str) {
        *self.lock().counts.entry(name.to_owned()).or_default() += 1;
    }

    /// Whether a `fail` that is reached now raises.
    pub(crate) fn fails(&self, node: &str, times: i64) -> bool {
        let mut tally = self.lock();
        let reached = tally.failures.entry(node.to_owned()).or_default();
        *reached += 1;
        times < 0 || *reached <= times
    }

    /// Runs and counters since the scenario began.
    pub(crate) fn totals(&self) -> (Counts, Counts) {
        let tally = self.lock();
        (tally.runs.clone(), tally.counts.clone())
    }

    /// Says who runs the main graph from now on; nobody, while the store is closed.
    pub(crate) fn set_runner(&self, runner: Option<Runner>) {
        self.lock().runner = runner;
    }

    pub(crate) fn set_records_at_once(&self, at_once: bool) {
        self.lock().records_at_once = at_once;
    }

    /// The runner, if its log tells at once what has finished.
    pub(crate) fn witness(&self) -> Option<Runner> {
        let tally = self.lock();
        tally.runner.clone().filter(|_| tally.records_at_once)
    }
}
