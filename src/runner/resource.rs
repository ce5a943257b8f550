//! Resources that several tasks share, of whatever thread: how many use one at once, how fast, and what happens when it fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Runner;
use crate::clock::{Clock, Timestamp};
use crate::error::{Class, Failure, Origin};
use crate::machine::TaskEnd;
use crate::policy::{Breaker, BreakerState, Call, Phase, Uses};
use crate::state::State;

/// The longest pause that a resource is granted when it asks for one (Retry-After).
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Something that tasks of all threads of a runner share: a model's endpoint, a bank, a printer. Nodes name it with [`Node::uses`](crate::Node::uses).
///
/// - `concurrency`: how many tasks use it at once.
/// - `rate`: how many begin to in a time. They are spread over it evenly, with jitter, and do not come in bursts.
/// - `breaker`: when too many of them fail, nobody comes for a while; see [`Breaker`].
///
/// When one task is told to come back later (HTTP 429 with Retry-After, [`NodeError::retry_after`](crate::NodeError::retry_after)), all of them wait that long, at most
/// five minutes.
///
/// ```
/// use ferrata::{Breaker, END, Graph, IntoNode, Resource, Retry, Runner, START, State, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Page { text: String }
/// # async fn ask() -> ferrata::Result<PageUpdate> { Ok(Page::update().text("found")) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let node = ask.retry(Retry::transient(5)).uses("model");
/// let graph = Graph::<Page>::new("page").node("ask", node).edge(START, "ask").edge("ask", END).build()?;
/// let model = Resource::new("model").concurrency(8).rate(5, Duration::from_secs(1)).breaker(Breaker::new());
/// let runner = Runner::new(graph, MemoryStore::new()).resource(model);
/// assert_eq!(runner.thread("t").run(Page::update()).await?.done().unwrap().text, "found");
/// # Ok(()) }
/// ```
///
/// # Not guaranteed
///
/// What is counted is known to this runner and its clones only, and begins anew with the process.
#[derive(Clone, Debug)]
#[must_use]
pub struct Resource {
    name: String,
    concurrency: Option<usize>,
    rate: Option<(u32, Duration)>,
    breaker: Option<Breaker>,
}

impl Resource {
    /// A resource without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), concurrency: None, rate: None, breaker: None }
    }

    /// How many tasks use it at once, at least 1.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = Some(tasks);
        self
    }

    /// How many tasks begin to use it in that time, at least 1.
    pub fn rate(mut self, tasks: u32, per: Duration) -> Self {
        self.rate = Some((tasks, per));
        self
    }

    /// Keeps tasks away from it while it fails.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    fn check(&self) -> Result<(), String> {
        let what = match self {
            Self { concurrency: Some(0), .. } => "nobody may use it: its concurrency is 0".to_owned(),
            Self { rate: Some((0, _)), .. } => "nobody may ever use it: its rate is 0".to_owned(),
            Self { rate: Some((_, per)), .. } if per.is_zero() || *per > crate::policy::TIME_MAX => {
                format!("its rate is over {per:?}; it has to be more than nothing and at most 366 days")
            }
            Self { breaker: Some(breaker), .. } => return breaker.check().map_err(|what| self.wrong(&what)),
            _ => return Ok(()),
        };
        Err(self.wrong(&what))
    }

    fn wrong(&self, what: &str) -> String {
        format!("the resource \"{}\" cannot work: {what}", self.name)
    }
}

/// How a resource stands; see [`Runner::resources`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceState {
    /// Its name.
    pub name: String,
    /// Tasks that use it.
    pub in_use: usize,
    /// Tasks that wait for it.
    pub waiting: usize,
    /// Until when nobody may use it, because its breaker is open or it asked for a pause.
    pub paused_until: Option<Timestamp>,
    /// Whether its breaker tries if it works again.
    pub half_open: bool,
}

/// A resource at work.
#[derive(Debug)]
pub(crate) struct Shared {
    resource: Resource,
    places: Option<Arc<Semaphore>>,
    // A plain mutex: never held across an await.
    inside: Mutex<Inside>,
    ended: Notify,
}

#[derive(Debug)]
struct Inside {
    breaker: Option<BreakerState>,
    /// When the next task may begin, by the rate.
    next: Timestamp,
    /// Until when it has asked to be left alone.
    pause: Timestamp,
    in_use: usize,
    waiting: usize,
}

/// All resources of a runner, by name.
pub(crate) type Resources = BTreeMap<String, Arc<Shared>>;

impl Shared {
    fn new(resource: Resource) -> Self {
        let places = resource.concurrency.map(|places| Arc::new(Semaphore::new(places)));
        let breaker = resource.breaker.map(BreakerState::new);
        let inside = Inside { breaker, next: Timestamp(0), pause: Timestamp(0), in_use: 0, waiting: 0 };
        Self { resource, places, inside: Mutex::new(inside), ended: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. An error where the breaker is open and the task does not want to wait.
    pub(crate) async fn enter(self: &Arc<Self>, clock: &dyn Clock, waits: bool) -> Result<Turn, Failure> {
        let _waiting = Waiting::new(self);
        let place = match &self.places {
            Some(places) => Some(Arc::clone(places).acquire_owned().await.expect("it is never closed")),
            None => None,
        };
        loop {
            let ended = self.ended.notified();
            let (now, jitter) = (clock.now(), clock.jitter());
            match self.admit(now, jitter) {
                Ok(begin) => {
                    let turn = Turn { shared: Arc::clone(self), _place: place, reported: false };
                    tokio::time::sleep(Duration::from_millis(begin.ms_since(now))).await;
                    return Ok(turn);
                }
                Err(_) if !waits => return Err(self.unavailable()),
                Err(Some(until)) => {
                    // Not all in the same moment.
                    let spread = Duration::from_millis(until.ms_since(now)).mul_f64(1.0 + jitter / 10.0);
                    tokio::time::sleep(spread.max(Duration::from_millis(1))).await;
                }
                Err(None) => ended.await,
            }
        }
    }

    /// When the task may begin; if the breaker is open, when to ask again.
    fn admit(&self, now: Timestamp, jitter: f64) -> Result<Timestamp, Option<Timestamp>> {
        let mut inside = self.lock();
        if let Some(breaker) = &mut inside.breaker {
            breaker.admit(now)?;
        }
        let mut begin = now.max(inside.pause);
        if let Some((tasks, per)) = self.resource.rate {
            let interval = per / tasks;
            // Late by up to a tenth of the interval, and the next one behind it: the rate is kept, and nobody is in step.
            begin = begin.max(inside.next).plus(interval.mul_f64(jitter / 10.0));
            inside.next = begin.plus(interval);
        }
        inside.in_use += 1;
        Ok(begin)
    }

    fn unavailable(&self) -> Failure {
        let message = format!("the resource \"{}\" is not available: too many of its calls have failed", self.resource.name);
        // It is not tried again: whoever does not want to wait has something else to do.
        Failure { origin: Origin::Resource, class: Class::Transient, message, causes: Vec::new(), tried: true }
    }

    fn state(&self, now: Timestamp) -> ResourceState {
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
    reported: bool,
}

impl Turn {
    /// Tells the resource how it went. A task that fails in a way that will pass tells of the resource; any other failure is the task's own.
    pub(crate) fn report(mut self, end: &TaskEnd, now: Timestamp) {
        let call = match end {
            TaskEnd::Failed { failure, retry_after, .. } if failure.class == Class::Transient => {
                let pause = retry_after.unwrap_or_default().min(PAUSE_MAX);
                let mut inside = self.shared.lock();
                inside.pause = inside.pause.max(now.plus(pause));
                Call::Failed
            }
            // It waits for a person, and has said nothing of the resource.
            TaskEnd::Paused { .. } => Call::Unknown,
            _ => Call::Worked,
        };
        self.end(call, now);
    }

    fn end(&mut self, call: Call, now: Timestamp) {
        self.reported = true;
        let mut inside = self.shared.lock();
        inside.in_use -= 1;
        inside.breaker.iter_mut().for_each(|breaker| breaker.ended(call, now));
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

impl<S: State> Runner<S> {
    /// Shares a resource among all threads of this runner and of its clones that are made from here on. A second one of the same name takes the place of the
    /// first.
    ///
    /// A run of a graph with a node that uses a resource which is not declared, or that cannot work, is refused (code `resource`).
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Self {
        Arc::make_mut(&mut self.resources).insert(resource.name.clone(), Arc::new(Shared::new(resource)));
        self
    }

    /// How the resources stand, by name.
    pub fn resources(&self) -> Vec<ResourceState> {
        let now = self.inner.clock.now();
        self.resources.values().map(|shared| shared.state(now)).collect()
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

/// What is wrong with the resources that these nodes use.
pub(crate) fn missing<'n>(resources: &Resources, names: impl IntoIterator<Item = (&'n str, &'n str)>) -> Option<String> {
    names.into_iter().find_map(|(node, name)| match resources.get(name) {
        Some(shared) => shared.resource.check().err(),
        None => Some(format!(
            "node \"{node}\" uses the resource \"{name}\"; declare it with `.resource(Resource::new(\"{name}\"))` on the runner"
        )),
    })
}
