//! Runs that begin at given times.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::core::{Core, TICK};
use crate::clock::Timestamp;
use crate::id::ThreadName;
use crate::policy::{Calendar, Missed, in_words};
use crate::runner::keeper::status;
use crate::runner::notice::{Notice, NoticeKind};
use crate::runner::{Error, Runner};
use crate::state::{State, Update, View, panic_text};
use crate::store::{StoreError, ThreadStatus};

/// What is later than this is missed.
const GRACE: Duration = Duration::from_secs(60);
/// How many missed times are made up for at most.
const MADE_UP_MAX: usize = 1_000;
/// A last run further ahead than this was made by a clock that was wrong.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A graph that runs at given times, each time on a thread of its own, named after the schedule and the time: `NAME/2026-11-30T06:00:00Z`. A time has one run, however often the
/// process dies. Two of one schedule are never at work at once: a time that comes while the run before is not over is missed. A run is over when it is done, has failed, or is suspended.
///
/// ```
/// use ferrata::{Firing, Missed, Schedule, State};
/// # use serde::{Deserialize, Serialize};
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Report { day: u64, so_far: u64 }
///
/// let daily = Schedule::new("report", "0 7 * * *", |firing: Firing<Report>| {
///     let so_far = firing.previous.map_or(0, |yesterday| yesterday.so_far);
///     Report::update().day(firing.at.0 / 86_400_000).so_far(so_far)
/// });
/// let daily = daily.zone("Europe/Vienna").missed(Missed::One);
/// ```
#[must_use = "a schedule is handed to a supervisor"]
pub struct Schedule<S> {
    pub(super) name: String,
    pattern: String,
    zone: String,
    missed: Missed,
    input: Arc<dyn Fn(Firing<S>) -> Update + Send + Sync>,
}

/// One time of a schedule.
#[derive(Debug)]
#[non_exhaustive]
pub struct Firing<S> {
    /// The time that the run is for, whenever it really begins.
    pub at: Timestamp,
    /// The state that the last run of the schedule ended with that was done, if there was one and its thread is there.
    pub previous: Option<View<S>>,
}

impl<S: State> Schedule<S> {
    /// A schedule: its name, a cron pattern ("minute hour day month weekday", with seconds in front if need be), and what its runs begin with.
    pub fn new<U: Into<Update>>(
        name: impl Into<String>,
        pattern: impl Into<String>,
        input: impl Fn(Firing<S>) -> U + Send + Sync + 'static,
    ) -> Self {
        let input = Arc::new(move |firing: Firing<S>| input(firing).into());
        Self { name: name.into(), pattern: pattern.into(), zone: "UTC".to_owned(), missed: Missed::default(), input }
    }

    /// The time zone of the pattern, by its name in the IANA database; UTC if not set. Where clocks are set forward, a time that the day does not have is due when they are; where
    /// they are set back, a time that it has twice is due once.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// What becomes of times that were missed; one run for all of them if not set. What comes up to a minute late is not missed.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }
}

impl<S> fmt::Debug for Schedule<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, pattern, zone, missed, input: _ } = self;
        f.debug_struct("Schedule")
            .field("name", name)
            .field("pattern", pattern)
            .field("zone", zone)
            .field("missed", missed)
            .finish()
    }
}

/// What is kept of a schedule.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Kept {
    /// The last time that was dealt with.
    last: Timestamp,
    /// The time whose run is not over, as far as is known.
    open: Option<Timestamp>,
    /// The last time whose run was done.
    done: Option<Timestamp>,
}

/// A schedule at work.
pub(super) struct Scheduler<S> {
    runner: Runner<S>,
    schedule: Schedule<S>,
    calendar: Calendar,
}

impl<S: State> Scheduler<S> {
    pub(super) fn new(runner: Runner<S>, schedule: Schedule<S>) -> Result<Self, Error> {
        let calendar = Calendar::new(&schedule.pattern, &schedule.zone).map_err(|what| Error::schedule(&schedule.name, what))?;
        let scheduler = Self { runner, schedule, calendar };
        let of_a_time = scheduler.thread(Timestamp(0));
        ThreadName::new(&of_a_time)
            .map_err(|error| Error::schedule(&scheduler.schedule.name, format!("names no threads: {error}")))?;
        Ok(scheduler)
    }

    pub(super) async fn work(self, core: Arc<Core>) {
        let mut told = None;
        while !core.is_closing() {
            let wait = match self.turn(&core).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::error!(%error, schedule = self.schedule.name, "a schedule cannot go on; it is tried again");
                    // Somebody is told, once.
                    let text = error.to_string();
                    if told.as_ref() != Some(&text) && self.tell_stuck(&core, &error).await.is_ok() {
                        told = Some(text);
                    }
                    TICK
                }
            };
            // In short waits, so that a clock that jumps is noticed.
            core.pause(wait.min(TICK)).await;
        }
    }

    /// Does what is due. Gives how long there is nothing to do.
    async fn turn(&self, core: &Arc<Core>) -> Result<Duration, Error> {
        let mut kept = self.kept(core).await?;
        if let Some(open) = kept.open {
            match self.become_of(open).await? {
                None => self.run(core, open, kept.done).await?,
                Some(status) if !is_over(status) => return Ok(TICK),
                Some(status) => {
                    kept.open = None;
                    kept.done = if status == ThreadStatus::Done { Some(open) } else { kept.done };
                    self.keep(core, &kept).await?;
                }
            }
            return Ok(Duration::ZERO);
        }
        let now = core.clock.now();
        if kept.last > now.plus(AHEAD_MAX) {
            tracing::warn!(
                schedule = self.schedule.name,
                "the clock was set back by more than a day; the schedule goes on from now"
            );
            kept.last = now;
            self.keep(core, &kept).await?;
        }
        let (due, lost) = self.calendar.between(kept.last, now, MADE_UP_MAX);
        let Some(newest) = due.last().copied() else {
            let next = self.calendar.next(kept.last);
            return Ok(next.map_or(TICK, |next| Duration::from_millis(next.ms_since(now))));
        };
        let is_late = now > newest.plus(GRACE);
        let fires = match self.schedule.missed {
            Missed::Skip => (!is_late).then_some(newest),
            Missed::One => Some(newest),
            Missed::All => due.first().copied(),
        };
        let missed =
            if self.schedule.missed == Missed::All { lost } else { lost + due.len() as u64 - u64::from(fires.is_some()) };
        if missed > 0 {
            self.tell_missed(core, missed, newest).await?;
        }
        // From here on the time has its run: a process that dies finds it open.
        (kept.last, kept.open) = (fires.unwrap_or(newest), fires);
        self.keep(core, &kept).await?;
        Ok(Duration::ZERO)
    }

    /// Runs what is due at that time, and waits for the end of the run.
    async fn run(&self, core: &Arc<Core>, at: Timestamp, done: Option<Timestamp>) -> Result<(), Error> {
        let previous = match done {
            Some(done) => self.state(done).await,
            None => None,
        };
        let Some(_permit) = core.permit().await else { return Ok(()) };
        let input = catch_unwind(AssertUnwindSafe(|| (self.schedule.input)(Firing { at, previous })));
        let panicked = |panic: Box<dyn Any + Send>| {
            Error::schedule(&self.schedule.name, format!("has an input that panicked: {}", panic_text(&*panic)))
        };
        let input = input.map_err(panicked)?;
        // So it ends as those that the supervisor goes on with, when that one ends.
        let _runs = core.runs(ThreadName::new(&self.thread(at))?);
        // Once, whoever else knows the thread. What the run fails of it tells itself.
        match self.runner.thread(&self.thread(at)).tag("schedule", &self.schedule.name).run_once(input).await {
            Err(error) if !error.is_of_the_run() => Err(error),
            _ => Ok(()),
        }
    }

    async fn become_of(&self, at: Timestamp) -> Result<Option<ThreadStatus>, Error> {
        // Whatever has become of its state.
        let folded = self.runner.thread(&self.thread(at)).open_stateless().await?;
        Ok(folded.root.facts.head.is_some().then(|| status(&folded)))
    }

    /// The state that the run of a time ended with, if its thread is still there.
    async fn state(&self, at: Timestamp) -> Option<View<S>> {
        match self.runner.thread(&self.thread(at)).state().await {
            Ok(state) => Some(state.values),
            Err(error) => {
                tracing::warn!(%error, schedule = self.schedule.name, "the last run of a schedule cannot be read; the next one begins without it");
                None
            }
        }
    }

    async fn tell_stuck(&self, core: &Core, error: &Error) -> Result<(), StoreError> {
        let (name, now) = (&self.schedule.name, core.clock.now());
        let text = format!("The schedule \"{name}\" cannot go on: {error}");
        let notice = Notice::new(NoticeKind::GivenUp, None, &format!("{name}\0{error}"), text, now);
        core.outbox.put(&notice.about(serde_json::json!({"schedule": name, "code": error.code()}))).await
    }

    fn thread(&self, at: Timestamp) -> String {
        format!("{}/{}", self.schedule.name, in_words(at))
    }

    async fn tell_missed(&self, core: &Core, missed: u64, newest: Timestamp) -> Result<(), StoreError> {
        let (name, time) = (&self.schedule.name, in_words(newest));
        let text = format!("The schedule \"{name}\" has passed {missed} times up to {time} at which nothing ran");
        let notice = Notice::new(NoticeKind::Missed, None, &format!("{name}\0{time}"), text, core.clock.now());
        core.outbox.put(&notice.about(serde_json::json!({"schedule": name, "missed": missed, "newest": newest}))).await
    }

    fn key(&self) -> String {
        format!("schedule/{}", self.schedule.name)
    }

    /// What is known of the schedule. One that is new begins now.
    async fn kept(&self, core: &Core) -> Result<Kept, Error> {
        if let Some(bytes) = core.store.note(&self.key()).await? {
            let wrong = |error: serde_json::Error| {
                Error::schedule(&self.schedule.name, format!("has a note that makes no sense: {error}"))
            };
            return serde_json::from_slice(&bytes).map_err(wrong);
        }
        let kept = Kept { last: core.clock.now(), open: None, done: None };
        self.keep(core, &kept).await?;
        Ok(kept)
    }

    async fn keep(&self, core: &Core, kept: &Kept) -> Result<(), StoreError> {
        core.store.keep_note(&self.key(), Some(&serde_json::to_vec(kept).unwrap_or_default())).await
    }
}

fn is_over(status: ThreadStatus) -> bool {
    matches!(status, ThreadStatus::Done | ThreadStatus::Failed | ThreadStatus::Suspended)
}
