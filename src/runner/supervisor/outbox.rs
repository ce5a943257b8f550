//! Notices on their way: kept in the store until they got through.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::Class;
use crate::policy::Retry;
use crate::runner::notice::{Notice, Notifier, NotifyError};
use crate::state::panic_text;
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
        let (mut behind, mut failed) = (None::<String>, Failed::default());
        loop {
            match self.store.notes(&prefix, behind.as_deref(), PAGE).await {
                Ok(keys) if keys.is_empty() && behind.is_none() => woken.notified().await,
                Ok(keys) => {
                    // One that fails holds up no other one: it has its turn again behind all others.
                    for key in &keys {
                        self.deliver(&**notifier, key, &mut failed, woken).await;
                    }
                    behind = keys.last().filter(|_| keys.len() == PAGE).cloned();
                }
                Err(error) => {
                    tracing::error!(%error, notifier = notifier.name(), "notices cannot be read; it is tried again");
                    tokio::time::sleep(ATTEMPT).await;
                }
            }
        }
    }

    /// Tells one notice, once. If it does not get through it stays, and nothing is told for a while.
    async fn deliver(&self, notifier: &dyn Notifier, key: &str, failed: &mut Failed, woken: &Notify) {
        let read = match self.store.note(key).await {
            Ok(Some(bytes)) => serde_json::from_slice::<Notice>(&bytes).map_err(|error| error.to_string()),
            Ok(None) => return,
            Err(error @ (StoreError::Damaged { .. } | StoreError::Codec(_))) => Err(error.to_string()),
            Err(error) => {
                tracing::error!(%error, key, "a notice cannot be read; it is tried again");
                return tokio::time::sleep(ATTEMPT).await;
            }
        };
        let lost = match &read {
            Ok(notice) => match tell(notifier, notice).await {
                Ok(()) => None,
                Err(error) if !error.is_final() && self.clock.now() <= notice.at.plus(TRIED_FOR) => {
                    tracing::warn!(%error, notice = %notice.id, notifier = notifier.name(), "a notice did not get through; it is tried again");
                    return failed.wait(key, error.delay(), self.clock.jitter(), woken).await;
                }
                Err(error) => Some(error.to_string()),
            },
            Err(error) => Some(format!("it cannot be read: {error}")),
        };
        *failed = Failed::default();
        if let Some(why) = lost {
            tracing::error!(key, notifier = notifier.name(), why, "a notice did not get through, and is dropped");
        }
        if let Err(error) = self.store.keep_note(key, None).await {
            tracing::error!(%error, key, "a notice that got through cannot be removed; it is told again");
            tokio::time::sleep(ATTEMPT).await;
        }
    }
}

/// Attempts that failed, one after the other.
#[derive(Default)]
struct Failed {
    attempts: u32,
    /// The notice of the last one.
    key: String,
    /// Whether several notices failed: then it is the receiver, and not the notice.
    several: bool,
}

impl Failed {
    /// Waits until there may be another attempt. `asked`: how long the receiver wants to be left alone at least.
    async fn wait(&mut self, key: &str, asked: Option<Duration>, jitter: f64, woken: &Notify) {
        self.several |= self.attempts > 0 && self.key != key;
        self.attempts = self.attempts.saturating_add(1);
        key.clone_into(&mut self.key);
        let retry = Retry::transient(u32::MAX).first_delay(Duration::from_secs(1)).delay_max(DELAY_MAX);
        let own = retry.next_delay(self.attempts, Class::Transient, None, jitter).unwrap_or(DELAY_MAX);
        let wait = tokio::time::sleep(own.max(asked.unwrap_or_default().min(TRIED_FOR)));
        if self.several || asked.is_some() {
            return wait.await;
        }
        // A new notice may get through where this one does not.
        tokio::select! {
            () = wait => {}
            () = woken.notified() => {}
        }
    }
}

/// A notifier that panics, or takes too long, has failed.
async fn tell(notifier: &dyn Notifier, notice: &Notice) -> Result<(), NotifyError> {
    let panicked = |panic: Box<dyn Any + Send>| NotifyError::later(format!("it panicked: {}", panic_text(&*panic)));
    let mut telling = catch_unwind(AssertUnwindSafe(|| notifier.notify(notice))).map_err(panicked)?;
    let told = poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| telling.as_mut().poll(context)))
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
    });
    let told = tokio::time::timeout(ATTEMPT, told).await;
    told.unwrap_or_else(|_| Err(NotifyError::later("it took longer than a minute")))
}

/// What the keys of its notices begin with. No prefix is the beginning of another one, whatever the names.
fn prefix(notifier: &dyn Notifier) -> String {
    format!("notice/{}/", notifier.name().replace('%', "%25").replace('/', "%2F"))
}
