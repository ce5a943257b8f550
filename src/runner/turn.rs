//! Turns at a resource: who may use it now, who waits and for how long, and what it is told when a task has used it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};

use super::resource::{Resource, ResourceState};
use crate::clock::{Clock, Timestamp};
use crate::error::{Class, Failure, Origin};
use crate::machine::TaskEnd;
use crate::policy::{BreakerState, Call, Phase, Uses};
use crate::store::{ResourceKept, Store};

/// The longest pause that a resource is granted when it asks for one (Retry-After).
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What the clock can tell.
const TICK: Duration = Duration::from_millis(1);

/// A resource at work.
#[derive(Debug)]
pub(crate) struct Shared {
    resource: Resource,
    places: Option<Arc<Semaphore>>,
    // A plain mutex: never held across an await.
    inside: Mutex<Inside>,
    ended: Notify,
    /// Where tasks stand in line when there is a gap between two.
    line: tokio::sync::Mutex<()>,
    /// Held by the runner and its runs. A task that was cut off does not keep a file open.
    pub(super) store: Option<Weak<dyn Store>>,
    /// Set when it was looked up what the store keeps of it.
    pub(super) recalled: OnceCell<()>,
    /// Held by whoever has something kept, so that the store gets it in order.
    pub(super) keeping: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(super) struct Inside {
    pub(super) breaker: Option<BreakerState>,
    /// When the last task began, since 1970. Finer than the clock is, so that many can begin in a millisecond.
    began: Option<Duration>,
    /// Until when it has asked to be left alone.
    pub(super) pause: Timestamp,
    in_use: usize,
    waiting: usize,
    /// What the store has of it.
    pub(super) kept: ResourceKept,
}

/// Why a task does not begin yet.
enum Wait {
    /// The breaker is open for so long.
    Open(Duration),
    /// A probe is under way.
    Probe,
    /// It has asked for a pause.
    Pause(Duration),
    /// The last one has begun just now. Only the first in the line waits for that.
    Gap(Duration),
    /// There is a line, and the task does not stand in it yet.
    Line,
}

/// All resources of a runner, by name.
pub(crate) type Resources = BTreeMap<String, Arc<Shared>>;

impl Shared {
    pub(super) fn new(resource: Resource, store: Option<&Arc<dyn Store>>) -> Self {
        let places = resource.concurrency.map(|places| Arc::new(Semaphore::new(places)));
        let breaker = resource.breaker.map(BreakerState::new);
        let kept = ResourceKept::default();
        let inside = Inside { breaker, began: None, pause: Timestamp(0), in_use: 0, waiting: 0, kept };
        Self {
            resource,
            places,
            inside: Mutex::new(inside),
            ended: Notify::new(),
            line: tokio::sync::Mutex::default(),
            store: store.map(Arc::downgrade),
            recalled: OnceCell::new(),
            keeping: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. An error where the breaker is open and the task does not want to wait.
    async fn enter(self: &Arc<Self>, clock: &dyn Clock, waits: bool) -> Result<Turn, Failure> {
        let _waiting = Waiting::new(self);
        self.recall(clock).await;
        let place = match &self.places {
            Some(places) => Some(Arc::clone(places).acquire_owned().await.expect("it is never closed")),
            None => None,
        };
        let (jitter, mut line, mut is_due, mut slept_until) = (clock.jitter(), None, false, Timestamp(0));
        loop {
            let ended = self.ended.notified();
            // Who has slept has waited, also if the clock stood still or was set back.
            let now = clock.now().max(slept_until);
            let in_line = line.as_ref().map(|_| is_due);
            let wait = match self.admit(now, jitter, in_line) {
                Ok(number) => {
                    drop(line);
                    let turn = Turn { shared: Arc::clone(self), _place: place, number, reported: false };
                    self.keep().await;
                    return Ok(turn);
                }
                Err(wait) => wait,
            };
            match wait {
                Wait::Line => (line, is_due) = (Some(self.line.lock().await), false),
                Wait::Gap(time) => tokio::select! {
                    () = tokio::time::sleep(time) => is_due = true,
                    // It may have been the last one for some time.
                    () = ended => {}
                },
                Wait::Open(_) | Wait::Probe if !waits => return Err(self.unavailable()),
                // Nobody is to wait behind this one.
                Wait::Open(time) | Wait::Pause(time) => {
                    line = None;
                    tokio::time::sleep(time).await;
                    slept_until = now.plus(time);
                }
                Wait::Probe => {
                    line = None;
                    ended.await;
                }
            }
        }
    }

    /// Lets the task begin, and gives the number of its call. `line`: it is the first in the line, and whether it has waited there.
    fn admit(&self, now: Timestamp, jitter: f64, line: Option<bool>) -> Result<u64, Wait> {
        let mut inside = self.lock();
        // Not all in the same moment.
        let spread = |time: Duration| time.mul_f64(1.0 + jitter / 10.0);
        let time_to = |until: Timestamp| spread(Duration::from_millis(until.ms_since(now)));
        if let Some(breaker) = &mut inside.breaker {
            breaker.admit(now).map_err(|open| open.map_or(Wait::Probe, |open| Wait::Open(time_to(open))))?;
        }
        // A clock that was set back makes nobody wait longer.
        inside.pause = inside.pause.min(now.plus(PAUSE_MAX));
        if inside.pause > now {
            return Err(Wait::Pause(time_to(inside.pause)));
        }
        let mut begin = Duration::from_millis(now.0);
        if let Some(gap) = self.resource.gap(inside.breaker.as_ref()) {
            let Some(is_due) = line else { return Err(Wait::Line) };
            let due = inside.began.map_or(begin, |began| began.min(begin + TICK) + spread(gap));
            let wait = due.saturating_sub(begin);
            match wait < TICK {
                true => begin = begin.max(due),
                false if is_due => {}
                false => return Err(Wait::Gap(wait)),
            }
        }
        (inside.began, inside.in_use) = (Some(begin), inside.in_use + 1);
        Ok(inside.breaker.as_mut().map_or(0, BreakerState::begins))
    }

    fn unavailable(&self) -> Failure {
        let message = format!("the resource \"{}\" is not available: too many of its calls have failed", self.resource.name);
        // It is not tried again: whoever does not want to wait has something else to do.
        Failure { origin: Origin::Resource, class: Class::Transient, message, causes: Vec::new(), tried: true }
    }

    pub(super) fn state(&self, now: Timestamp) -> ResourceState {
        let inside = self.lock();
        let open = match inside.breaker.as_ref().map(BreakerState::phase) {
            Some(Phase::Open { until }) => until,
            _ => Timestamp(0),
        };
        let paused_until = Some(open.max(inside.pause)).filter(|until| *until > now);
        let half_open = matches!(inside.breaker.as_ref().map(BreakerState::phase), Some(Phase::HalfOpen { .. }));
        let Inside { in_use, waiting, .. } = *inside;
        ResourceState { name: self.resource.name.clone(), in_use, waiting, paused_until, half_open }
    }
}

impl Resource {
    /// The time between the beginnings of two tasks, by the rate or by what the breaker has seen.
    fn gap(&self, breaker: Option<&BreakerState>) -> Option<Duration> {
        let rate = self.rate.map(|(tasks, per)| per / tasks);
        let pace = breaker.map(BreakerState::gap).filter(|gap| !gap.is_zero());
        rate.max(pace)
    }
}

impl Inside {
    fn told_to_wait(&mut self, number: u64, pause: Duration, now: Timestamp) {
        let pause = pause.min(PAUSE_MAX);
        self.pause = self.pause.max(now.plus(pause));
        self.breaker.iter_mut().for_each(|breaker| breaker.refused(number, pause, now));
    }
}

/// Counts those who wait.
struct Waiting<'s>(&'s Shared);

impl<'s> Waiting<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.lock().waiting += 1;
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// The right to use a resource, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    shared: Arc<Shared>,
    _place: Option<OwnedSemaphorePermit>,
    /// Of its call, for the breaker.
    number: u64,
    reported: bool,
}

impl Turn {
    /// Tells the resource how it went. A task that fails in a way that will pass tells of the resource; any other failure is the task's own.
    async fn report(mut self, end: &TaskEnd, now: Timestamp) {
        let call = match end {
            TaskEnd::Failed { failure, retry_after, .. } if failure.class == Class::Transient => {
                if let Some(pause) = retry_after.filter(|pause| !pause.is_zero()) {
                    self.shared.lock().told_to_wait(self.number, pause, now);
                }
                Call::Failed
            }
            // It waits for a person, and has said nothing of the resource.
            TaskEnd::Paused { .. } => Call::Unknown,
            _ => Call::Worked,
        };
        self.end(call, now);
        let shared = Arc::clone(&self.shared);
        // Its place is free before the store has been told.
        drop(self);
        shared.keep().await;
    }

    fn end(&mut self, call: Call, now: Timestamp) {
        self.reported = true;
        let mut inside = self.shared.lock();
        inside.in_use -= 1;
        inside.breaker.iter_mut().for_each(|breaker| breaker.ended(self.number, call, now));
        drop(inside);
        self.shared.ended.notify_waiters();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.reported {
            // The attempt was cut off.
            self.end(Call::Unknown, Timestamp(0));
        }
    }
}

/// Waits for a turn at each of these, in the order of their names, so that nobody waits for each other.
pub(crate) async fn enter_all(resources: &Resources, uses: &[Uses], clock: &dyn Clock) -> Result<Vec<Turn>, Failure> {
    let mut turns = Vec::new();
    if uses.is_empty() {
        return Ok(turns);
    }
    let mut uses: Vec<&Uses> = uses.iter().collect();
    uses.sort_by(|a, b| a.resource.cmp(&b.resource));
    for Uses { resource, waits } in uses {
        // A run whose resources are not all there was refused.
        if let Some(shared) = resources.get(resource) {
            turns.push(shared.enter(clock, *waits).await?);
        }
    }
    Ok(turns)
}

/// Tells them all how it went.
pub(crate) async fn report_all(turns: Vec<Turn>, end: &TaskEnd, now: Timestamp) {
    for turn in turns {
        turn.report(end, now).await;
    }
}
