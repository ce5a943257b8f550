//! The one loop of a supervisor: looks what is due, has it done, and sleeps until something is due again.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::core::{Core, TICK, Taken};
use crate::clock::Timestamp;
use crate::id::ThreadName;
use crate::store::{AlarmRow, Order, StoreError, ThreadQuery, ThreadStatus};

/// How many threads are being looked after at once at most because they can go on, and because something of theirs is due; what else there is waits.
/// Each kind has a room of its own: those that wait for their turn, which may be for days, keep nobody from being told.
const GOING_ON: usize = 1_000;
const DUE: usize = 10_000;
/// How many lines of an index are read at once.
const PAGE: usize = 256;

pub(super) struct Watch {
    core: Arc<Core>,
    tasks: JoinSet<()>,
    going_on: Room,
    due: Room,
    /// Something that is due waits for one of the tasks to end or to begin a run.
    is_full: bool,
    /// When threads are looked for next whose process died.
    orphans_at: Option<Timestamp>,
}

/// Counts the tasks of a kind: each has a copy of it until it ends, in whatever way.
#[derive(Clone)]
struct Room(Arc<()>, usize);

impl Room {
    fn new(most: usize) -> Self {
        Self(Arc::new(()), most)
    }

    /// Whether whoever has this copy is one too many.
    fn is_overfull(&self) -> bool {
        // One is the room's own.
        Arc::strong_count(&self.0) > self.1 + 1
    }
}

impl Watch {
    pub(super) fn new(core: Arc<Core>) -> Self {
        let going_on = Room::new(GOING_ON.max(core.recovery.at_once.saturating_mul(2)));
        let due = Room::new(DUE);
        Self { core, tasks: JoinSet::new(), going_on, due, is_full: false, orphans_at: None }
    }

    /// Comes back when all ends, and what was begun has ended.
    pub(super) async fn work(mut self) {
        while !self.core.is_closing() {
            self.is_full = false;
            let wait = match self.look().await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::error!(%error, "the store cannot be looked through; it is tried again");
                    TICK
                }
            };
            self.sleep(wait).await;
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Until something may be due.
    async fn sleep(&mut self, wait: Duration) {
        let core = Arc::clone(&self.core);
        let over = tokio::time::sleep(wait);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = core.closed() => return,
                () = core.hub.woken() => return,
                () = over.as_mut() => return,
                Some(_) = self.tasks.join_next() => if self.is_full {
                    return;
                },
            }
        }
    }

    /// Has done what is due. Gives how long nothing is.
    async fn look(&mut self) -> Result<Duration, StoreError> {
        let now = self.core.clock.now();
        let next = self.ring(now).await?;
        self.go_on_with(ThreadStatus::Ready).await?;
        // A clock that was set back does not put it off.
        let looked = |at: &Timestamp| *at > now && at.ms_since(now) <= ms(TICK);
        if self.orphans_at.as_ref().is_none_or(|at| !looked(at)) {
            self.go_on_with(ThreadStatus::Running).await?;
            self.orphans_at = Some(now.plus(TICK));
        }
        let until = next.map_or(ms(TICK), |next| next.ms_since(now).min(ms(TICK)));
        Ok(Duration::from_millis(until.max(1)))
    }

    /// Alarms that are due. Gives the time of the first one that is not.
    async fn ring(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let mut behind: Option<AlarmRow> = None;
        loop {
            let rows = self.core.store.alarms(behind.as_ref(), PAGE).await?;
            for row in &rows {
                if row.alarm.at > now {
                    return Ok(Some(row.alarm.at));
                }
                if !self.look_after(&row.thread, self.due.clone()) {
                    return Ok(None);
                }
            }
            if rows.len() < PAGE {
                return Ok(None);
            }
            behind = rows.last().cloned();
        }
    }

    /// Threads in that status that nobody runs, those first that have been in it for the longest time.
    async fn go_on_with(&mut self, status: ThreadStatus) -> Result<(), StoreError> {
        let mut page = ThreadQuery::new().status(status).order(Order::OldestFirst).limit(PAGE);
        loop {
            let threads = self.core.store.threads(&page).await?;
            for thread in &threads {
                let is_at_work = self.core.store.at_work().is_some_and(|at_work| at_work.who(&thread.name).is_some());
                if !is_at_work && !self.look_after(&thread.name, self.going_on.clone()) {
                    return Ok(());
                }
            }
            match threads.last() {
                Some(last) if threads.len() == PAGE => page = page.after(last),
                _ => return Ok(()),
            }
        }
    }

    /// False if there is no room for more.
    fn look_after(&mut self, thread: &ThreadName, room: Room) -> bool {
        while self.tasks.try_join_next().is_some() {}
        if room.is_overfull() {
            self.is_full = true;
            return false;
        }
        match self.core.take(thread) {
            Taken::Free(busy) => {
                let core = Arc::clone(&self.core);
                self.tasks.spawn(async move {
                    core.look_after(busy).await;
                    drop(room);
                });
            }
            Taken::Busy => self.is_full = true,
            Taken::Sick => {}
        }
        true
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
