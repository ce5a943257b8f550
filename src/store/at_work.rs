//! Which threads are at work, for runners that share a store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::ThreadName;

/// The threads of a store that are at work in this process. Clones are about the same store.
#[derive(Clone, Debug, Default)]
pub struct AtWork {
    // A plain mutex: it is held for a few instructions and never across an await.
    threads: Arc<Mutex<HashSet<ThreadName>>>,
}

impl AtWork {
    /// Claims a thread until the claim is dropped; nothing if it is at work already.
    pub(crate) fn claim(&self, thread: &ThreadName) -> Option<Claim> {
        self.lock().insert(thread.clone()).then(|| Claim { at_work: self.clone(), thread: thread.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ThreadName>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread is at work.
#[derive(Debug)]
pub(crate) struct Claim {
    at_work: AtWork,
    thread: ThreadName,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.at_work.lock().remove(&self.thread);
    }
}
