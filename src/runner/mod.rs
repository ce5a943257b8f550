//! Who makes it happen: the one loop, tasks, context, effects and streams.

mod answers;
#[cfg(feature = "testing")]
mod at_once;
mod compensation;
mod context;
mod dependency;
mod desk;
mod driver;
mod effect;
mod error;
mod fallback;
mod handler;
mod hub;
mod inbox;
mod inside;
mod keeper;
mod known;
#[cfg(feature = "testing")]
mod life;
mod limits;
mod marks;
mod noted;
mod notice;
mod observer;
mod open;
mod options;
mod outcome;
mod perform;
mod recall;
mod resource;
mod rule;
mod seal;
mod secrets;
mod signal;
mod spans;
mod stop;
mod stream;
mod subgraph;
mod supervisor;
mod task;
mod thread;
mod turn;
mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::graph::{Graph, Shape};
use crate::state::State;
use crate::store::{Store, ThreadInfo, ThreadQuery};
use dependency::Dependencies;
use options::Options;
use stop::Live;
use subgraph::Runnables;
use turn::Resources;

#[cfg(feature = "testing")]
pub(crate) use at_once::at_once;
pub use compensation::PastEffect;
pub use context::Context;
pub use dependency::Dep;
pub use effect::{Effect, Performed};
pub use error::Error;
pub use handler::FromTask;
pub use inbox::{Inbox, InboxItem};
pub use inside::Inside;
#[cfg(feature = "testing")]
pub(crate) use life::{Lived, Pulse, apart, live};
pub use notice::{Notice, NoticeKind, Notifier, NotifyError, Notifying, TracingNotifier};
#[cfg(feature = "testing")]
pub(crate) use observer::Observer;
pub use outcome::{Checkpoint, Outcome, ThreadState};
pub use resource::{Resource, ResourceState};
pub use secrets::{ForgetSecrets, SealSecrets, SecretPlace, Secrets, SecretsError};
pub use signal::{Delivery, Signal};
pub use stop::ShutDown;
pub use stream::{Event, Events, Mode};
pub use supervisor::{Firing, Recovery, Schedule, Supervise, Supervisor};
pub use thread::Thread;
pub use upkeep::{Checked, Keep};

/// Runs threads of one graph over one store. Clones share both.
///
/// Everything asynchronous in here needs a tokio runtime with time enabled.
///
/// ```
/// use ferrata::{END, Graph, Outcome, Runner, START, State, View, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Greeting { name: String, text: Option<String> }
///
/// async fn greet(state: View<Greeting>) -> ferrata::Result<GreetingUpdate> {
///     Ok(Greeting::update().text(format!("Hello, {}!", state.name)))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let graph = Graph::<Greeting>::new("greeting").node("greet", greet).edge(START, "greet").edge("greet", END).build()?;
/// let runner = Runner::new(graph, MemoryStore::new());
/// let Outcome::Done(state) = runner.thread("ada").run(Greeting::update().name("Ada")).await? else { panic!("nothing asks") };
/// assert_eq!(state.text.as_deref(), Some("Hello, Ada!"));
/// # Ok(()) }
/// ```
pub struct Runner<S> {
    pub(crate) inner: Arc<Inner<S>>,
    dependencies: Dependencies,
    secrets: Option<Arc<dyn Secrets>>,
    resources: Arc<Resources>,
    /// What handles to threads begin with.
    options: Options,
}

pub(crate) struct Inner<S> {
    pub(crate) graph: Graph<S>,
    pub(crate) runnables: Arc<Runnables>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) live: Arc<Live>,
    /// Is told what tasks do, in a test.
    pub(crate) observer: Option<Arc<dyn observer::Observer>>,
}

impl<S: State> Runner<S> {
    /// A runner over a store.
    pub fn new(graph: Graph<S>, store: impl Store) -> Self {
        Self::build(graph, Some(Arc::new(store)), Arc::new(SystemClock), None)
    }

    /// A runner that keeps nothing: a run's result is its return value. Questions end a run for good.
    pub fn without_store(graph: Graph<S>) -> Self {
        Self::build(graph, None, Arc::new(SystemClock), None)
    }

    /// A runner over a store, with a clock of one's own.
    pub fn with_clock(graph: Graph<S>, store: impl Store, clock: impl Clock) -> Self {
        Self::build(graph, Some(Arc::new(store)), Arc::new(clock), None)
    }

    /// A runner whose tasks are observed.
    #[cfg(feature = "testing")]
    pub(crate) fn observed(graph: Graph<S>, store: impl Store, clock: impl Clock, observer: Arc<dyn observer::Observer>) -> Self {
        Self::build(graph, Some(Arc::new(store)), Arc::new(clock), Some(observer))
    }

    fn build(
        graph: Graph<S>,
        store: Option<Arc<dyn Store>>,
        clock: Arc<dyn Clock>,
        observer: Option<Arc<dyn observer::Observer>>,
    ) -> Self {
        let runnables = Arc::new(Runnables::of(&graph));
        let inner = Inner { graph, runnables, store, clock, live: Arc::default(), observer };
        let (dependencies, resources, options) = (Dependencies::default(), Arc::default(), Options::default());
        Self { inner: Arc::new(inner), dependencies, secrets: None, resources, options }
    }

    /// A handle to a thread. Nothing is read or written until it is used; a name that cannot be used is refused then.
    pub fn thread(&self, name: &str) -> Thread<S> {
        let (inner, resources) = (Arc::clone(&self.inner), Arc::clone(&self.resources));
        let mut thread = Thread::new(inner, name, self.dependencies.clone(), resources, self.options.clone());
        thread.options.secrets.hook.clone_from(&self.secrets);
        thread
    }

    /// Hands something in that nodes work with in all runs: a client, a setting. It is never stored; see [`Dep`].
    #[must_use]
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.dependencies.add(value);
        self
    }

    /// Says what the store gets of the values of fields that are marked secret (`#[state(secret)]`), instead of the values. Nodes, streams and
    /// outcomes have the values; [`Thread::log`] shows what is stored. The guide [`secrets`](crate::guide::secrets) tells what is covered and what
    /// is not.
    ///
    /// With a store and without this, a graph with secret fields is refused before anything is written (code `no-secrets`).
    #[must_use]
    pub fn secrets(mut self, secrets: impl Secrets) -> Self {
        self.secrets = Some(Arc::new(secrets));
        self
    }

    /// Shuts this runner and its clones down: no run begins any more (code `shut-down`), tasks under way end and are recorded, and the runs end as
    /// suspended, ready to be resumed. What is not through after `within` is cut off, as by [`Thread::cancel`], and is waited for that long again. The
    /// threads are [`Ready`](crate::store::ThreadStatus::Ready): a [supervisor](Self::supervise) of the store goes on with them.
    ///
    /// ```
    /// # use ferrata::{END, Graph, Outcome, Runner, START, State, Suspension, View, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Count { n: u64 }
    /// async fn count(s: View<Count>) -> ferrata::Result<CountUpdate> {
    ///     tokio::task::yield_now().await;
    ///     Ok(Count::update().n(s.n + 1))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Count>::new("count").node("count", count).edge(START, "count").route_to("count", ["count"], |_| "count").build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let thread = runner.thread("t").steps_max(u64::MAX);
    /// let run = tokio::spawn(async move { thread.run(Count::update()).await });
    /// tokio::task::yield_now().await;
    /// let down = runner.shut_down(std::time::Duration::from_secs(10)).await;
    /// assert_eq!(down.ended[0].as_str(), "t");
    /// assert!(matches!(run.await?, Ok(Outcome::Suspended(Suspension::ShutDown))));
    /// # Ok(()) }
    /// ```
    pub async fn shut_down(&self, within: Duration) -> ShutDown {
        self.inner.live.shut_down(within).await
    }

    /// The graph.
    pub fn graph(&self) -> &Graph<S> {
        &self.inner.graph
    }

    /// The threads that are asked for, of all graphs that share the store.
    pub async fn threads(&self, query: ThreadQuery) -> Result<Vec<ThreadInfo>, Error> {
        Ok(self.store("list threads")?.threads(&query).await?)
    }

    fn store(&self, what: &'static str) -> Result<&Arc<dyn Store>, Error> {
        self.inner.store.as_ref().ok_or_else(|| Error::no_store(what))
    }
}

impl<S> Clone for Runner<S> {
    fn clone(&self) -> Self {
        let (inner, dependencies) = (Arc::clone(&self.inner), self.dependencies.clone());
        let (secrets, resources) = (self.secrets.clone(), Arc::clone(&self.resources));
        Self { inner, dependencies, secrets, resources, options: self.options.clone() }
    }
}

impl<S> fmt::Debug for Runner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("graph", &self.inner.graph).field("store", &self.inner.store).finish_non_exhaustive()
    }
}

impl<S> Inner<S> {
    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.graph.shape
    }
}
