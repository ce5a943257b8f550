//! What the supervisor of a store and the runs over it know of each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::Inner;
use super::notice::Notice;
use crate::log::QuestionTerms;

/// How many notices wait for the supervisor at most. Whoever has one more waits with it.
const NOTICES_MAX: usize = 4_096;

/// There is one for each supervisor.
#[derive(Debug)]
pub(crate) struct Hub {
    /// What holds for questions that say no times of their own.
    pub(crate) terms: QuestionTerms,
    /// How long a node may give no sign of life if it says nothing of it itself.
    pub(crate) patience: Option<Duration>,
    notices: mpsc::Sender<Notice>,
    woken: Notify,
}

impl Hub {
    pub(crate) fn new(terms: QuestionTerms, patience: Option<Duration>) -> (Arc<Self>, mpsc::Receiver<Notice>) {
        let (notices, received) = mpsc::channel(NOTICES_MAX);
        (Arc::new(Self { terms, patience, notices, woken: Notify::new() }), received)
    }

    /// There may be something to do: an alarm, or a thread that can go on.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Tells the supervisor of something. Nobody hears it any more if there is none.
    pub(crate) async fn tell(&self, notice: Notice) {
        if self.notices.send(notice).await.is_err() {
            tracing::debug!("there is no supervisor any more");
        }
    }
}

impl<S> Inner<S> {
    /// The supervisor of the store, if it has one in this process.
    pub(crate) fn hub(&self) -> Option<Arc<Hub>> {
        match self.store.as_ref()?.at_work() {
            Some(at_work) => at_work.supervisor()?.downcast().ok(),
            None => self.live.hub(),
        }
    }
}
