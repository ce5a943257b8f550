//! Where time and new identifiers come from. Nothing else in the crate asks the operating system for either.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Milliseconds since 1970 UTC.
///
/// ```
/// use ferrata::clock::Timestamp;
/// assert_eq!(Timestamp(1_500).plus_ms(500), Timestamp(2_000));
/// assert_eq!(Timestamp(2_000).ms_since(Timestamp(9_000)), 0); // a clock set back gives no negative duration
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A later time.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This time and so much more, at most the end of time.
    #[must_use]
    pub fn plus(self, time: std::time::Duration) -> Self {
        self.plus_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Milliseconds from `earlier` to here; 0 if the clock was set back in between.
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The source of time and of new identifiers of a runner.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
    /// An identifier that nobody had before.
    fn new_id(&self) -> Uuid;
    /// A number between 0 and 1 to spread retries with.
    fn jitter(&self) -> f64;
}

/// The clock of the operating system, and random identifiers that sort by time (UUID v7).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that makes random identifiers")]
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn jitter(&self) -> f64 {
        let bytes = self.new_id().into_bytes();
        f64::from(u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]])) / f64::from(u32::MAX)
    }
}

/// A clock that a test sets by hand, with identifiers that count up: the same run gives the same log.
///
/// ```
/// use ferrata::clock::{Clock, ManualClock, Timestamp};
/// let clock = ManualClock::at(Timestamp(1_000));
/// clock.advance_ms(250);
/// assert_eq!(clock.now(), Timestamp(1_250));
/// assert_ne!(clock.new_id(), clock.new_id());
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now_ms: Arc<AtomicU64>,
    ids: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { now_ms: Arc::new(AtomicU64::new(now.0)), ids: Arc::default() }
    }

    /// Moves the clock on.
    pub fn advance_ms(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms.load(Ordering::Relaxed))
    }

    fn new_id(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.ids.fetch_add(1, Ordering::Relaxed)) + 1)
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}
