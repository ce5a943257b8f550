//! Notices on their way: kept in the store until they got through.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::policy::Retry;
use crate::runner::notice::{Notice, Notifier, NotifyError};
use crate::store::{Store, StoreError};

/// How long one attempt to tell somebody may take.
const ATTEMPT: Duration = Duration::from_secs(60);
/// How long it is tried. What did not get through by then is dropped, with a word in the program's log.
const TRIED_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The delays grow up to this.
const DELAY_MAX: Duration = Duration::from_secs(300);
/// How many are looked at together.
const PAGE: usize = 64;

pub(super) struct Outbox {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    notifiers: Vec<(Arc<dyn Notifier>, Arc<Notify>)>,
}

impl Outbox {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, notifiers: Vec<Arc<dyn Notifier>>) -> Self {
        Self { store, clock, notifiers: notifiers.into_iter().map(|notifier| (notifier, Arc::default())).collect() }
    }

    /// Keeps a notice for everybody who is to be told of it.
    pub(super) async fn put(&self, notice: &Notice) -> Result<(), StoreError> {
        // A notice is made of texts and JSON, which can always be written.
        let bytes = serde_json::to_vec(notice).unwrap_or_default();
        for (notifier, woken) in &self.notifiers {
            let key = format!("{}{:013}-{}", prefix(&**notifier), notice.at.0, notice.id);
            self.store.keep_note(&key, Some(&bytes)).await?;
            woken.notify_one();
        }
        Ok(())
    }

    /// One task for each notifier, so that none holds up another one.
    pub(super) fn workers(self: &Arc<Self>) -> Vec<impl Future<Output = ()> + Send + use<>> {
        (0..self.notifiers.len()).map(|number| Arc::clone(self).work(number)).collect()
    }

    /// Waits until nothing is on its way any more.
    pub(super) async fn emptied(&self) {
        for (notifier, _) in &self.notifiers {
            while self.store.notes(&prefix(&**notifier), None, 1).await.is_ok_and(|keys| !keys.is_empty()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn work(self: Arc<Self>, number: usize) {
        let (notifier, woken) = &self.notifiers[number];
        let prefix = prefix(&**notifier);
        loop {
            match self.store.notes(&prefix, None, PAGE).await {
                Ok(keys) if keys.is_empty() => woken.notified().await,
                Ok(keys) => {
                    for key in keys {
                        self.deliver(&**notifier, &key).await;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, notifier = notifier.name(), "notices cannot be read; it is tried again");
                    tokio::time::sleep(ATTEMPT).await;
                }
            }
        }
    }

    /// Tells one notice until it got through.
    async fn deliver(&self, notifier: &dyn Notifier, key: &str) {
        let notice = match self.store.note(key).await {
            Ok(Some(bytes)) => serde_json::from_slice::<Notice>(&bytes).map_err(|error| error.to_string()),
            Ok(None) => return,
            Err(error) => Err(error.to_string()),
        };
        let lost = match &notice {
            Ok(notice) => self.tell(notifier, notice).await.err().map(|error| error.to_string()),
            Err(error) => Some(format!("it cannot be read: {error}")),
        };
        if let Some(why) = lost {
            tracing::error!(key, notifier = notifier.name(), why, "a notice did not get through, and is dropped");
        }
        if let Err(error) = self.store.keep_note(key, None).await {
            tracing::error!(%error, key, "a notice that got through cannot be removed; it is told again");
            tokio::time::sleep(ATTEMPT).await;
        }
    }

    async fn tell(&self, notifier: &dyn Notifier, notice: &Notice) -> Result<(), NotifyError> {
        let retry = Retry::transient(u32::MAX).first_delay(Duration::from_secs(1)).delay_max(DELAY_MAX);
        for attempt in 1.. {
            let told = tokio::time::timeout(ATTEMPT, notifier.notify(notice)).await;
            let error = match told.unwrap_or_else(|_| Err(NotifyError::later("it took longer than a minute"))) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_old = self.clock.now() > notice.at.plus(TRIED_FOR);
            let delay = retry.next_delay(attempt, crate::error::Class::Transient, error.delay(), self.clock.jitter());
            let Some(delay) = delay.filter(|_| !error.is_final() && !is_old) else { return Err(error) };
            tracing::warn!(%error, notice = %notice.id, notifier = notifier.name(), "a notice did not get through; it is tried again");
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }
}

fn prefix(notifier: &dyn Notifier) -> String {
    format!("notice/{}/", notifier.name())
}
