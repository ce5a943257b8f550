//! Which threads are at work, for runners that share a store.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::ThreadName;

/// How others reach who works on a thread; what that is, is the runner's business.
type Worker = Arc<dyn Any + Send + Sync>;

/// The threads of a store that are at work in this process. Clones are about the same store.
#[derive(Clone, Default)]
pub struct AtWork {
    // A plain mutex: it is held for a few instructions and never across an await.
    threads: Arc<Mutex<HashMap<ThreadName, Worker>>>,
    supervisor: Arc<Mutex<Option<Worker>>>,
}

impl AtWork {
    /// Claims a thread until the claim is dropped; nothing if it is at work already.
    pub(crate) fn claim(&self, thread: &ThreadName, worker: Worker) -> Option<Claim> {
        let mut threads = self.lock();
        if threads.contains_key(thread) {
            return None;
        }
        threads.insert(thread.clone(), worker);
        Some(Claim { at_work: self.clone(), thread: thread.clone() })
    }

    /// Becomes the supervisor of the store until the claim is dropped; nothing if it has one.
    pub(crate) fn supervise(&self, worker: Worker) -> Option<Supervises> {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        if supervisor.is_some() {
            return None;
        }
        *supervisor = Some(worker);
        Some(Supervises(self.clone()))
    }

    /// Whether it is about the same store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.threads, &other.threads)
    }

    /// Who supervises the store.
    pub(crate) fn supervisor(&self) -> Option<Worker> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who works on a thread.
    pub(crate) fn who(&self, thread: &ThreadName) -> Option<Worker> {
        self.lock().get(thread).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadName, Worker>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// A store is supervised.
#[derive(Debug)]
pub(crate) struct Supervises(AtWork);

impl Drop for Supervises {
    fn drop(&mut self) {
        *self.0.supervisor.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
