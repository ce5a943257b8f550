//! A clock that follows tokio's, which tests pause: nothing waits really.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrata::clock::{Clock, ManualClock, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

/// Shows the time that tokio believes in.
#[derive(Clone, Debug)]
pub(crate) struct TokioClock {
    pub(crate) begun: Instant,
    pub(crate) ids: ManualClock,
    /// By how much it is ahead.
    pub(crate) ahead_ms: Arc<AtomicU64>,
    pub(crate) is_jittery: bool,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self { begun: tokio_now(), ids: ManualClock::default(), ahead_ms: Arc::default(), is_jittery: false }
    }
}

#[allow(clippy::disallowed_methods, reason = "tokio's paused time is the clock of these tests")]
pub(crate) fn tokio_now() -> Instant {
    Instant::now()
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.ahead_ms.load(Ordering::SeqCst)).plus(tokio_now().duration_since(self.begun))
    }

    fn new_id(&self) -> Uuid {
        self.ids.new_id()
    }

    fn jitter(&self) -> f64 {
        // Spread over 0 to 1 if wanted, and the same in each run of a test.
        if self.is_jittery { (self.new_id().as_u128() % 97) as f64 / 97.0 } else { 0.0 }
    }
}
