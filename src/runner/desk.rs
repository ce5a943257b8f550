//! Where answers are handed in to a run that goes on, by whichever runner over the same store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::stop::Stopper;
use crate::id::ThreadName;
use crate::log::Suspension;
use crate::machine::{AnswerRefusal, GivenAnswer, GivenSignal, SignalRefusal, Taken};
use crate::store::AtWork;

/// How many calls hand something in at once at most. Whoever comes then waits for the end of the run.
const HANDED_MAX: usize = 4_096;

/// What was handed in, and who waits for what comes of it, once that is durable.
#[derive(Debug)]
pub(crate) enum Handed {
    Answers(Vec<GivenAnswer>, oneshot::Sender<Result<(), AnswerRefusal>>),
    Signal(GivenSignal, oneshot::Sender<Result<Taken, SignalRefusal>>),
    /// Something is due.
    Ring(oneshot::Sender<()>),
}

/// One for each run.
#[derive(Debug)]
pub(crate) struct Desk {
    // A plain mutex: never held across an await.
    state: Mutex<State>,
    /// Lets the run look here, by the way on which it also hears that it has to stop.
    run: Stopper,
    over: Notify,
}

#[derive(Debug, Default)]
struct State {
    handed: Vec<Handed>,
    /// Nobody takes anything in any more.
    is_closed: bool,
    /// The thread is free again.
    is_over: bool,
    why: Option<Suspension>,
}

impl Desk {
    pub(crate) fn new(run: Stopper) -> Self {
        Self { state: Mutex::default(), run, over: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands something in. `None`: the run ended without having looked at it, or it has too much to look at.
    pub(crate) async fn hand_in<T>(&self, what: impl FnOnce(oneshot::Sender<T>) -> Handed) -> Option<T> {
        let (reply, taken) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.is_closed || state.handed.len() >= HANDED_MAX {
                return None;
            }
            state.handed.push(what(reply));
        }
        self.run.nudge();
        taken.await.ok()
    }

    /// What was handed in since the last call.
    pub(crate) fn take(&self) -> Vec<Handed> {
        std::mem::take(&mut self.lock().handed)
    }

    /// Takes nothing in any more: who waits comes again when the thread is free.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.handed.clear();
    }

    /// Why the run was suspended, if it was.
    pub(crate) fn says_why(&self, why: Option<Suspension>) {
        self.lock().why = why;
    }

    /// The thread is free.
    pub(crate) fn free(&self) {
        self.close();
        self.lock().is_over = true;
        self.over.notify_waiters();
    }

    /// Waits until the thread is free. Gives why its run was suspended, if it was.
    pub(crate) async fn until_free(&self) -> Option<Suspension> {
        loop {
            let over = self.over.notified();
            {
                let state = self.lock();
                if state.is_over {
                    return state.why;
                }
            }
            over.await;
        }
    }
}

/// The other side of the desk: closed when the run ends, however it does.
pub(crate) struct Counter(pub(crate) Arc<Desk>);

impl Drop for Counter {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The desk of the run that holds a thread, if it is known in this process.
pub(crate) fn elsewhere(at_work: Option<&AtWork>, thread: &ThreadName) -> Option<Arc<Desk>> {
    at_work.and_then(|at_work| at_work.who(thread)).and_then(|who| who.downcast().ok())
}
