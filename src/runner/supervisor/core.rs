//! What the tasks of a supervisor share, and what is done for one thread.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Mutex as Lane, OwnedSemaphorePermit, Semaphore, watch};

use super::Recovery;
use super::charge::{Charge, Peek};
use super::outbox::Outbox;
use crate::clock::{Clock, Timestamp};
use crate::id::ThreadName;
use crate::log::Question;
use crate::runner::Error;
use crate::runner::hub::Hub;
use crate::runner::notice::{Notice, NoticeKind};
use crate::store::{Store, StoreError, ThreadStatus};

/// How long nothing is looked at when nothing is due and nobody calls: so soon a clock that jumps is noticed.
pub(super) const TICK: Duration = Duration::from_secs(30);
/// How often somebody looks whether a thread has come to a result that may be what its process dies of.
const LOOK: Duration = Duration::from_millis(100);
/// How long a thread that could not be gone on with is left alone at first, and at most.
const SICK: Duration = Duration::from_secs(60);
const SICK_MAX: Duration = Duration::from_secs(3_600);

pub(super) struct Core {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hub: Arc<Hub>,
    pub(super) charges: Vec<Arc<dyn Charge>>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) recovery: Recovery,
    runs: Arc<Semaphore>,
    /// Of threads whose process died more than once one at a time goes on, until it has shown that it lives.
    suspects: Lane<()>,
    closing: watch::Sender<bool>,
    /// Counts what was done, for those who wait for it.
    pub(super) done: watch::Sender<u64>,
    // Plain mutexes: never held across an await.
    care: Mutex<Care>,
    sick: Mutex<HashMap<ThreadName, Sick>>,
}

/// A thread that could not be gone on with.
#[derive(Clone, Copy)]
struct Sick {
    times: u32,
    until: Timestamp,
}

/// The threads that are being looked after.
#[derive(Default)]
struct Care {
    /// By one at a time.
    busy: HashSet<ThreadName>,
    /// Whose runs were begun by that, and go on: what rings meanwhile is handed in to the run.
    begun: HashSet<ThreadName>,
}

/// A thread that is being looked after.
pub(super) struct Busy {
    core: Arc<Core>,
    thread: ThreadName,
    has_begun: bool,
}

impl Busy {
    /// Its run goes on from now.
    fn begin(&mut self) {
        let mut care = self.core.care();
        care.busy.remove(&self.thread);
        care.begun.insert(self.thread.clone());
        self.has_begun = true;
        drop(care);
        // What rang in between is handed in to the run.
        self.core.hub.wake();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut care = self.core.care();
        let of = if self.has_begun { &mut care.begun } else { &mut care.busy };
        of.remove(&self.thread);
        drop(care);
        self.core.done.send_modify(|done| *done += 1);
    }
}

/// Whether a thread can be looked after now.
pub(super) enum Taken {
    Free(Busy),
    /// Somebody looks after it.
    Busy,
    /// It could not be gone on with just now.
    Sick,
}

impl Core {
    pub(super) fn new(
        (store, clock): (Arc<dyn Store>, Arc<dyn Clock>),
        hub: Arc<Hub>,
        charges: Vec<Arc<dyn Charge>>,
        outbox: Arc<Outbox>,
        recovery: Recovery,
    ) -> Arc<Self> {
        let (runs, suspects) = (Arc::new(Semaphore::new(recovery.at_once)), Lane::new(()));
        let (closing, done) = (watch::Sender::new(false), watch::Sender::new(0));
        let (care, sick) = Default::default();
        Arc::new(Self { store, clock, hub, charges, outbox, recovery, runs, suspects, closing, done, care, sick })
    }

    fn care(&self) -> MutexGuard<'_, Care> {
        self.care.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sick(&self) -> MutexGuard<'_, HashMap<ThreadName, Sick>> {
        self.sick.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The threads that are being looked after.
    pub(super) fn at_work(&self) -> Vec<ThreadName> {
        let care = self.care();
        care.busy.union(&care.begun).cloned().collect()
    }

    /// Begins nothing new.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
        self.runs.close();
    }

    pub(super) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    pub(super) async fn closed(&self) {
        // The sender is here.
        _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Waits so long, or until something was done, or all ends.
    pub(super) async fn pause(&self, time: Duration) {
        let mut done = self.done.subscribe();
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            _ = done.changed() => {}
            () = self.closed() => {}
        }
    }

    /// The right to let a thread run; none if all ends.
    pub(super) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.runs).acquire_owned().await.ok()
    }

    /// Takes a thread to look after, unless somebody does or it could not be gone on with just now.
    pub(super) fn take(self: &Arc<Self>, thread: &ThreadName) -> Taken {
        let now = self.clock.now();
        if self.sick().get(thread).is_some_and(|sick| sick.until > now) {
            return Taken::Sick;
        }
        if !self.care().busy.insert(thread.clone()) {
            return Taken::Busy;
        }
        Taken::Free(Busy { core: Arc::clone(self), thread: thread.clone(), has_begun: false })
    }

    /// A thread whose run goes on by itself from now, until this is dropped.
    pub(super) fn runs(self: &Arc<Self>, thread: ThreadName) -> Busy {
        self.care().begun.insert(thread.clone());
        Busy { core: Arc::clone(self), thread, has_begun: true }
    }

    /// Does what there is to do for a thread.
    pub(super) async fn look_after(&self, mut busy: Busy) {
        let thread = &busy.thread.clone();
        match self.do_what_is_due(thread, &mut busy).await {
            Ok(()) => _ = self.sick().remove(thread),
            // Somebody else runs it, or all ends: that is as it should be.
            Err(error) if error.is_busy() => {}
            Err(error) if error.code() == "shut-down" => self.leave_alone(thread, 0, TICK),
            Err(error) => self.note_sick(thread, &error).await,
        }
    }

    async fn do_what_is_due(&self, thread: &ThreadName, busy: &mut Busy) -> Result<(), Error> {
        let (charge, peek) = self.peek(thread).await?;
        self.tell_of(thread, &peek).await?;
        if !peek.reminders.is_empty() || (peek.is_at_work && !peek.overdue.is_empty()) {
            charge.ring(thread).await?;
            if peek.is_at_work {
                // The run may have ended meanwhile, and left something to do.
                self.hub.wake();
            }
        }
        match peek.status {
            _ if peek.is_at_work || self.is_closing() => Ok(()),
            ThreadStatus::Running => self.recover(charge, thread, &peek, busy).await,
            ThreadStatus::Ready => self.go_on(charge, thread, busy).await,
            _ if peek.overdue.is_empty() => Ok(()),
            ThreadStatus::Waiting | ThreadStatus::Outside => self.go_on(charge, thread, busy).await,
            // It was stopped, or has failed: somebody has to want it to go on. What it asked is over all the same.
            _ => charge.expire(thread).await,
        }
    }

    /// The graph of a thread, and what there is to do.
    async fn peek(&self, thread: &ThreadName) -> Result<(&Arc<dyn Charge>, Peek), Error> {
        let mut last = None;
        for charge in &self.charges {
            match charge.peek(thread).await {
                Err(error) if error.code() == "other-graph" => last = Some(error),
                peek => return Ok((charge, peek?)),
            }
        }
        // There is one graph at least.
        Err(last.unwrap_or_else(|| Error::unknown_thread(thread)))
    }

    /// What somebody has to know is kept before the thread moves: a process that dies here tells it again, by the same id.
    async fn tell_of(&self, thread: &ThreadName, peek: &Peek) -> Result<(), StoreError> {
        let now = self.clock.now();
        let about = |question: &Question| {
            json!({"question": question.id, "key": &*question.key, "text": question.text, "show": question.show, "assignee": question.assignee,
                   "deadline": question.deadline, "schema": question.schema})
        };
        for question in &peek.reminders {
            let is_first = question.tell && question.reminded == 0;
            let (kind, what) = if is_first { (NoticeKind::Asked, "asks") } else { (NoticeKind::Reminded, "still asks") };
            let text = format!("Thread \"{thread}\" {what}: {}", question.text);
            let notice = Notice::new(kind, Some(thread), &format!("{}\0{}", question.id, question.reminded), text, now);
            self.outbox.put(&notice.about(about(question))).await?;
        }
        for question in peek.overdue.iter().filter(|question| !question.is_outside()) {
            let text = format!("Thread \"{thread}\" was not answered in time: {}", question.text);
            let notice = Notice::new(NoticeKind::Expired, Some(thread), &question.id.to_string(), text, now);
            self.outbox.put(&notice.about(about(question))).await?;
        }
        Ok(())
    }

    async fn go_on(&self, charge: &Arc<dyn Charge>, thread: &ThreadName, busy: &mut Busy) -> Result<(), Error> {
        let Some(_permit) = self.permit().await else { return Ok(()) };
        charge.go_on(thread, &mut || busy.begin()).await
    }

    /// Goes on with a thread whose process died, or gives it to a person.
    async fn recover(&self, charge: &Arc<dyn Charge>, thread: &ThreadName, peek: &Peek, busy: &mut Busy) -> Result<(), Error> {
        let (deaths, now) = (peek.deaths, self.clock.now());
        let run = peek.run.map(|run| run.0.to_string()).unwrap_or_default();
        if deaths >= self.recovery.deaths_max {
            let text = format!(
                "Thread \"{thread}\" is not gone on with: its process died {deaths} times while it ran; resume it when that is mended"
            );
            let notice = Notice::new(NoticeKind::GivenUp, Some(thread), &run, text, now).about(json!({"deaths": deaths}));
            self.outbox.put(&notice).await?;
            return charge.give_up(thread).await;
        }
        let text = format!("Thread \"{thread}\" goes on; its process had died while it ran");
        let notice = Notice::new(NoticeKind::Recovered, Some(thread), &run, text, now).about(json!({"deaths": deaths}));
        self.outbox.put(&notice).await?;
        if deaths <= 1 {
            return self.go_on(charge, thread, busy).await;
        }
        // It may be what the process dies of: after a while, and alone, so that it takes no other thread along.
        self.pause_for(self.recovery.delay(deaths)).await;
        let lane = self.suspects.lock().await;
        let Some(_permit) = self.permit().await else { return Ok(()) };
        let mut began = || busy.begin();
        let run = charge.go_on(thread, &mut began);
        tokio::pin!(run);
        tokio::select! {
            ended = run.as_mut() => return ended,
            () = self.has_proved_itself(thread) => drop(lane),
        }
        run.await
    }

    /// Comes back when a thread has lived for a while since its process died, or has come to a result.
    async fn has_proved_itself(&self, thread: &ThreadName) {
        let over = tokio::time::sleep(self.recovery.probation);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = over.as_mut() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.peek(thread).await.is_ok_and(|(_, peek)| peek.deaths <= 1) {
                return;
            }
        }
    }

    async fn pause_for(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.closed() => {}
        }
    }

    fn leave_alone(&self, thread: &ThreadName, times: u32, time: Duration) {
        self.sick().insert(thread.clone(), Sick { times, until: self.clock.now().plus(time) });
    }

    /// The thread is left alone for a while. Somebody is told, once.
    async fn note_sick(&self, thread: &ThreadName, error: &Error) {
        let (now, times) = (self.clock.now(), self.sick().get(thread).map_or(0, |sick| sick.times));
        let wait = SICK.saturating_mul(2_u32.saturating_pow(times)).min(SICK_MAX);
        self.leave_alone(thread, times.saturating_add(1), wait);
        tracing::warn!(%thread, %error, wait_s = wait.as_secs(), "a thread cannot be gone on with; it is tried again");
        if times > 0 {
            return;
        }
        let text = format!("Thread \"{thread}\" cannot be gone on with: {error}");
        let notice =
            Notice::new(NoticeKind::GivenUp, Some(thread), &error.to_string(), text, now).about(json!({"code": error.code()}));
        if let Err(error) = self.outbox.put(&notice).await {
            tracing::error!(%error, %thread, "a notice cannot be kept");
        }
    }
}
