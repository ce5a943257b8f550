//! What a store keeps of a resource that threads share.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// What was known of a resource when it changed last, so that the next process does not begin with a storm: see [`Resource`](crate::Resource).
///
/// ```
/// use ferrata::clock::Timestamp;
/// use ferrata::store::{BreakerKept, MemoryStore, ResourceKept, Store};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let store = MemoryStore::new();
/// let mut kept = ResourceKept::default();
/// kept.breaker = BreakerKept::Open { until: Timestamp(30_000) };
/// store.keep_resource("model", &kept).await?;
/// assert_eq!(store.resource("model").await?, Some(kept));
/// assert_eq!(store.resource("bank").await?, None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ResourceKept {
    /// How its breaker stands.
    pub breaker: BreakerKept,
    /// Until when it has asked to be left alone.
    pub paused_until: Option<Timestamp>,
    /// How many milliseconds its breaker leaves between two calls; 0 if it leaves none.
    pub gap_ms: u64,
}

/// How a breaker stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakerKept {
    /// All calls are let through.
    #[default]
    Closed,
    /// None is before that time.
    Open {
        /// The time.
        until: Timestamp,
    },
    /// One at a time is, to see whether it works again.
    HalfOpen,
}
