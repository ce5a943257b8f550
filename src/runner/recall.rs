//! What the store keeps of a resource, so that the next process begins where this one was.

use std::sync::Weak;
use std::time::Duration;

use super::turn::{Inside, PAUSE_MAX, Shared};
use crate::clock::{Clock, Timestamp};
use crate::policy::{BreakerState, Phase};
use crate::store::{BreakerKept, ResourceKept};

impl Shared {
    /// Takes up what an earlier process has kept, before the first task uses it.
    pub(super) async fn recall(&self, clock: &dyn Clock) {
        let look_up = || async {
            let Some(store) = self.store.as_ref().and_then(Weak::upgrade) else { return };
            match store.resource(&self.resource().name).await {
                Ok(Some(kept)) => {
                    self.lock().goes_on(kept, clock.now());
                    // What the clock has made shorter: else each process would wait for all of it.
                    self.keep().await;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(resource = self.resource().name, %error, "what is kept of a resource cannot be read; it begins anew");
                }
            }
        };
        self.recalled.get_or_init(look_up).await;
    }

    /// Has the store keep what has changed, if something has that is to be kept.
    pub(super) async fn keep(&self) {
        if self.lock().news().is_none() {
            return;
        }
        let Some(store) = self.store.as_ref().and_then(Weak::upgrade) else { return };
        let _in_order = self.keeping.lock().await;
        // Another task may have kept it meanwhile.
        let news = self.lock().news();
        if let Some(news) = news {
            if let Err(error) = store.keep_resource(&self.resource().name, &news).await {
                tracing::warn!(resource = self.resource().name, %error, "what is known of a resource cannot be kept; the run goes on");
            }
            // Also if it failed: it is tried again when there is something new.
            self.lock().kept = news;
        }
    }
}

impl Inside {
    /// Goes on where an earlier process was. Nobody waits longer than this program says, whatever the clock did meanwhile.
    fn goes_on(&mut self, kept: ResourceKept, now: Timestamp) {
        self.pause = kept.paused_until.unwrap_or_default().min(now.plus(PAUSE_MAX));
        if let Some(breaker) = &mut self.breaker {
            let phase = match kept.breaker {
                BreakerKept::Open { until } => Phase::Open { until },
                BreakerKept::HalfOpen => Phase::HalfOpen { worked: 0, under_way: false },
                BreakerKept::Closed => Phase::Closed,
            };
            breaker.goes_on(phase, Duration::from_millis(kept.gap_ms).min(PAUSE_MAX), now);
        }
        self.kept = kept;
    }

    /// What is to be kept, if it is not what the store has. The gap alone changes with each call, and is kept along with the rest.
    fn news(&self) -> Option<ResourceKept> {
        let paused_until = Some(self.pause).filter(|pause| *pause != Timestamp(0));
        let mut news = ResourceKept { paused_until, ..self.kept.clone() };
        // Without a breaker, what another program's breaker said stays.
        if let Some(breaker) = &self.breaker {
            news.breaker = match breaker.phase() {
                Phase::Closed => BreakerKept::Closed,
                Phase::Open { until } => BreakerKept::Open { until },
                Phase::HalfOpen { .. } => BreakerKept::HalfOpen,
            };
        }
        if news == self.kept {
            return None;
        }
        if let Some(gap) = self.breaker.as_ref().map(BreakerState::gap) {
            news.gap_ms = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
        }
        Some(news)
    }
}
