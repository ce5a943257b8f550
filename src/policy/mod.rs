//! What is retried, when, and for how long: plain data and decisions, without a clock.

mod breaker;
mod calendar;
mod guard;
mod pace;
mod retry;

use std::time::Duration;

pub use breaker::Breaker;
pub(crate) use breaker::{BreakerState, Call, Phase};
pub use calendar::Missed;
pub(crate) use calendar::{Calendar, in_words};
pub use guard::Guard;
pub(crate) use guard::Trip;
pub use retry::Retry;

/// The longest time that a policy may name. What is longer is a mistake, or means never.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// A resource that a node uses, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) resource: String,
    /// Whether it waits while the resource's breaker is open; if not, the attempt fails then.
    pub(crate) waits: bool,
}

/// What holds for the tasks of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePolicy {
    /// The first one that is for the class of a failure decides.
    pub(crate) retries: Vec<Retry>,
    /// Longest time for one attempt.
    pub(crate) timeout: Option<Duration>,
    /// Longest time for one attempt without a sign of life.
    pub(crate) idle: Option<Duration>,
    /// How long an attempt may give no sign of life before somebody looks at it, if the node says so itself: `None` for as long as it takes.
    pub(crate) patience: Option<Option<Duration>>,
    /// Longest time for all attempts together, with the delays between them.
    pub(crate) total: Option<Duration>,
    /// The resources that it uses.
    pub(crate) uses: Vec<Uses>,
    /// How many tasks of the node run at once.
    pub(crate) concurrency: Option<usize>,
    /// How often it is tried in all, when its results break a rule, before a person is asked; 0 if they are failures as any other.
    pub(crate) rounds: u32,
    /// Whether an error handler takes over when the last attempt has failed.
    pub(crate) handled: bool,
    /// Whether what takes over gives a value in the node's place, whose edges are taken.
    pub(crate) degrades: bool,
    /// What stops it when it goes in circles.
    pub(crate) guard: Option<Guard>,
    /// Whether it runs only when nothing else is due.
    pub(crate) deferred: bool,
}

impl NodePolicy {
    /// What the graph says for nodes that say nothing themselves.
    pub(crate) fn or(mut self, defaults: &Self) -> Self {
        if self.retries.is_empty() {
            self.retries.clone_from(&defaults.retries);
        }
        self.timeout = self.timeout.or(defaults.timeout);
        self.idle = self.idle.or(defaults.idle);
        self.total = self.total.or(defaults.total);
        self.patience = self.patience.or(defaults.patience);
        self
    }

    /// The longest wait for another attempt, in milliseconds.
    pub(crate) fn longest_wait_ms(&self) -> u64 {
        let longest = self.retries.iter().map(Retry::delay_longest).max().unwrap_or_default();
        u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)
    }

    /// What is wrong with it.
    pub(crate) fn mistake(&self) -> Option<String> {
        if self.retries.iter().any(|retry| retry.attempts_max() == 0) {
            return Some("is to be tried 0 times; 1 is no retry".to_owned());
        }
        if let Some(mistake) = self.guard.as_ref().and_then(Guard::mistake) {
            return Some(mistake.to_owned());
        }
        let times = [("time-out", self.timeout), ("idle time-out", self.idle), ("total time", self.total)];
        for (what, time) in times.into_iter().filter_map(|(what, time)| Some((what, time?))) {
            if time.is_zero() || time > TIME_MAX {
                return Some(format!("has a {what} of {time:?}; it has to be more than nothing and at most 366 days"));
            }
        }
        let long = self.retries.iter().map(Retry::longest_delay).find(|delay| *delay > TIME_MAX);
        long.map(|delay| format!("may wait {delay:?} for its next attempt; 366 days are the most"))
    }
}
