//! Resources that several tasks share, of whatever thread: what is declared of them, and how they stand.

use std::sync::Arc;
use std::time::Duration;

use super::Runner;
use super::turn::{Resources, Shared};
use crate::clock::Timestamp;
use crate::policy::Breaker;
use crate::state::State;

/// Something that tasks of all threads of a runner share: a model's endpoint, a bank, a printer. Nodes name it with [`Node::uses`](crate::Node::uses).
///
/// - `concurrency`: how many tasks use it at once.
/// - `rate`: how many begin to in a time. They are spread over it evenly, with jitter, and do not come in bursts.
/// - `breaker`: when too many of them fail, nobody comes for a while; see [`Breaker`].
///
/// When one task is told to come back later (HTTP 429 with Retry-After, [`NodeError::retry_after`](crate::NodeError::retry_after)), all of them wait that long, at most
/// five minutes.
///
/// What is known of it is kept in the runner's store by its name, when its breaker opens, lets a probe through or closes, and when it asks for a pause. The next runner
/// over this store goes on from there: what is open stays open until its time, and never longer than its breaker says, whatever the clock does. If the store cannot keep
/// it, the run goes on, and a warning says so (`tracing`).
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
/// Tasks are counted by this runner and its clones only. Another runner, or another process, that is at work at the same time has a breaker and a rate of its own, and
/// what the last one of them said is kept. The calls in a breaker's window are not kept.
#[derive(Clone, Debug)]
#[must_use]
pub struct Resource {
    pub(super) name: String,
    pub(super) concurrency: Option<usize>,
    pub(super) rate: Option<(u32, Duration)>,
    pub(super) breaker: Option<Breaker>,
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

impl<S: State> Runner<S> {
    /// Shares a resource among all threads of this runner and of its clones that are made from here on. A second one of the same name takes the place of the
    /// first.
    ///
    /// A run of a graph with a node that uses a resource which is not declared, or that cannot work, is refused (code `resource`).
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Self {
        Arc::make_mut(&mut self.resources)
            .insert(resource.name.clone(), Arc::new(Shared::new(resource, self.inner.store.as_ref())));
        self
    }

    /// How the resources stand, by name.
    pub fn resources(&self) -> Vec<ResourceState> {
        let now = self.inner.clock.now();
        self.resources.values().map(|shared| shared.state(now)).collect()
    }
}

/// What is wrong with the resources that these nodes use.
pub(crate) fn missing<'n>(resources: &Resources, names: impl IntoIterator<Item = (&'n str, &'n str)>) -> Option<String> {
    names.into_iter().find_map(|(node, name)| match resources.get(name) {
        Some(shared) => shared.resource().check().err(),
        None => Some(format!(
            "node \"{node}\" uses the resource \"{name}\"; declare it with `.resource(Resource::new(\"{name}\"))` on the runner"
        )),
    })
}
