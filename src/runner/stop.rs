//! How a run is told to end before its time, and how all of them are.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Sleep, sleep, timeout};

use super::desk::{Counter, Desk};
use super::hub::Hub;
use crate::clock::Timestamp;
use crate::id::ThreadName;
use crate::log::Suspension;
use crate::store::{AtWork, Claim};

/// What a run is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) why: Suspension,
    /// Whether what is under way is cut off. If not, it ends and is recorded.
    pub(crate) cuts: bool,
}

/// Tells a run to end.
#[derive(Clone, Debug)]
pub(crate) struct Stopper(watch::Sender<Option<Stop>>);

impl Stopper {
    /// A run that is cut off already is not told again.
    pub(crate) fn tell(&self, stop: Stop) {
        self.0.send_if_modified(|told| {
            let is_more = told.is_none_or(|told| stop.cuts && !told.cuts);
            if is_more {
                *told = Some(stop);
            }
            is_more
        });
    }

    /// Lets the run look whether there is something for it, without telling it to end.
    pub(crate) fn nudge(&self) {
        self.0.send_modify(|_| ());
    }
}

/// Hears what a run is told, by somebody or by its deadline.
pub(crate) struct Stopped {
    told: watch::Receiver<Option<Stop>>,
    deadline: Option<(Timestamp, Pin<Box<Sleep>>)>,
    is_open: bool,
    /// Where answers come in.
    pub(crate) counter: Counter,
}

impl Stopped {
    /// It is told at that time at the latest.
    pub(crate) fn by(&mut self, deadline: Option<Timestamp>, now: Timestamp) {
        let wait = |at: Timestamp| (at, Box::pin(sleep(Duration::from_millis(at.ms_since(now)))));
        self.deadline = deadline.map(wait);
    }

    pub(crate) fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.counter.0)
    }

    /// What it has been told by now. Cheap, and without waiting.
    pub(crate) fn so_far(&mut self, now: impl FnOnce() -> Timestamp) -> Option<Stop> {
        if self.is_open && self.told.has_changed().unwrap_or(false) {
            return *self.told.borrow_and_update();
        }
        let is_over = self.deadline.as_ref().map(|(at, _)| *at).is_some_and(|at| at <= now());
        is_over.then(|| {
            self.deadline = None;
            Stop { why: Suspension::Deadline, cuts: true }
        })
    }

    /// The next thing it is told; never comes if there is nothing. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Stop> {
        let Self { told, deadline, is_open, counter: _ } = self;
        let changed = async {
            if !*is_open || told.changed().await.is_err() {
                *is_open = false;
                std::future::pending::<()>().await;
            }
            *told.borrow_and_update()
        };
        let Some((_, sleep)) = deadline else { return changed.await };
        tokio::select! {
            stop = changed => stop,
            () = sleep => {
                *deadline = None;
                Some(Stop { why: Suspension::Deadline, cuts: true })
            }
        }
    }
}

/// The runs that go on in this process, by thread.
#[derive(Debug, Default)]
pub(crate) struct Live {
    // A plain mutex: never held across an await.
    state: Mutex<State>,
    ended: Notify,
    /// The supervisor of runners over a store that does not tell.
    hub: Mutex<Option<Arc<Hub>>>,
}

#[derive(Debug, Default)]
struct State {
    /// With a number, so that a run is told from the next one of its thread.
    runs: HashMap<ThreadName, (u64, Stopper, Arc<Desk>)>,
    leases: u64,
    is_closed: bool,
}

/// Why a thread is not leased.
pub(crate) enum NoLease {
    Busy,
    ShutDown,
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says who supervises. False if somebody does already.
    pub(crate) fn set_hub(&self, hub: Option<Arc<Hub>>) -> bool {
        let mut known = self.hub.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = known.is_none() || hub.is_none();
        if is_free {
            *known = hub;
        }
        is_free
    }

    /// Takes the thread for one run.
    pub(crate) fn lease(self: &Arc<Self>, thread: &ThreadName, at_work: Option<&AtWork>) -> Result<(Lease, Stopped), NoLease> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(NoLease::ShutDown);
        }
        if state.runs.contains_key(thread) {
            return Err(NoLease::Busy);
        }
        let (sender, told) = watch::channel(None);
        let stopper = Stopper(sender);
        let desk = Arc::new(Desk::new(stopper.clone()));
        let claim = at_work.map(|at_work| at_work.claim(thread, desk.clone()).ok_or(NoLease::Busy)).transpose()?;
        state.leases += 1;
        let number = state.leases;
        state.runs.insert(thread.clone(), (number, stopper.clone(), Arc::clone(&desk)));
        let counter = Counter(Arc::clone(&desk));
        let lease = Lease { live: Arc::clone(self), thread: thread.clone(), stopper, desk, claim };
        Ok((lease, Stopped { told, deadline: None, is_open: true, counter }))
    }

    /// Tells the run of a thread, and gives its number; `None` if there is none.
    pub(crate) fn tell(&self, thread: &ThreadName, stop: Stop) -> Option<u64> {
        let state = self.lock();
        let (number, run, _) = state.runs.get(thread)?;
        run.tell(stop);
        Some(*number)
    }

    /// Where answers to a thread that is at work are handed in.
    pub(crate) fn desk(&self, thread: &ThreadName) -> Option<Arc<Desk>> {
        self.lock().runs.get(thread).map(|(_, _, desk)| Arc::clone(desk))
    }

    /// Waits until that run of a thread, or all of them, have ended.
    pub(crate) async fn until_ended(&self, run: Option<(&ThreadName, u64)>) {
        loop {
            let ended = self.ended.notified();
            let goes_on = {
                let state = self.lock();
                let is_there = |(thread, number)| state.runs.get(thread).is_some_and(|(known, ..)| *known == number);
                run.map_or(!state.runs.is_empty(), is_there)
            };
            if !goes_on {
                return;
            }
            ended.await;
        }
    }

    /// Lets no more runs begin, and ends those that go on.
    pub(crate) async fn shut_down(&self, within: Duration) -> ShutDown {
        let tell_all = |cuts| {
            let mut state = self.lock();
            state.is_closed = true;
            state.runs.values().for_each(|(_, run, _)| run.tell(Stop { why: Suspension::ShutDown, cuts }));
            let mut names: Vec<ThreadName> = state.runs.keys().cloned().collect();
            names.sort();
            names
        };
        let mut told = tell_all(false);
        let wait = || timeout(within, self.until_ended(None));
        let cut = if wait().await.is_ok() { Vec::new() } else { tell_all(true) };
        let stuck = if cut.is_empty() || wait().await.is_ok() { Vec::new() } else { tell_all(true) };
        told.retain(|thread| !cut.contains(thread));
        ShutDown { ended: told, cut: cut.into_iter().filter(|thread| !stuck.contains(thread)).collect(), stuck }
    }
}

/// The right to run a thread, until it is dropped.
pub(crate) struct Lease {
    live: Arc<Live>,
    thread: ThreadName,
    pub(crate) stopper: Stopper,
    pub(crate) desk: Arc<Desk>,
    /// What keeps other runners over the same store away.
    claim: Option<Claim>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Before anybody is told that the run has ended.
        self.claim = None;
        self.live.lock().runs.remove(&self.thread);
        self.live.ended.notify_waiters();
        self.desk.free();
    }
}

/// What became of the runs when their runner was shut down; see [`Runner::shut_down`](crate::Runner::shut_down).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutDown {
    /// Threads whose runs ended in time, with everything recorded that was under way.
    pub ended: Vec<ThreadName>,
    /// Threads whose runs were cut off: effects that were under way are in doubt.
    pub cut: Vec<ThreadName>,
    /// Threads with a node that does not let itself be stopped, because it blocks its thread of the runtime.
    pub stuck: Vec<ThreadName>,
}
