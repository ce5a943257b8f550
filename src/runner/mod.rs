//! Who makes it happen: the one loop, tasks, context, effects and streams.

mod context;
mod driver;
mod effect;
mod error;
mod handler;
mod inside;
mod keeper;
mod outcome;
mod spans;
mod stream;
mod subgraph;
mod task;
mod thread;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, SystemClock};
use crate::graph::{Graph, Shape};
use crate::id::ThreadName;
use crate::state::State;
use crate::store::{Store, ThreadInfo};
use subgraph::Runnables;

pub use context::Context;
pub use effect::Effect;
pub use error::Error;
pub use handler::FromTask;
pub use inside::Inside;
pub use outcome::{Checkpoint, Outcome, Suspension, ThreadState};
pub use stream::{Event, Events, Mode};
pub use thread::Thread;

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
}

pub(crate) struct Inner<S> {
    pub(crate) graph: Graph<S>,
    pub(crate) runnables: Arc<Runnables>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Threads with a run in this process. A plain mutex: never held across an await.
    live: Mutex<HashSet<ThreadName>>,
}

impl<S: State> Runner<S> {
    /// A runner over a store.
    pub fn new(graph: Graph<S>, store: impl Store) -> Self {
        Self::build(graph, Some(Arc::new(store)), Arc::new(SystemClock))
    }

    /// A runner that keeps nothing: a run's result is its return value. Questions end a run for good.
    pub fn without_store(graph: Graph<S>) -> Self {
        Self::build(graph, None, Arc::new(SystemClock))
    }

    /// A runner over a store, with a clock of one's own.
    pub fn with_clock(graph: Graph<S>, store: impl Store, clock: impl Clock) -> Self {
        Self::build(graph, Some(Arc::new(store)), Arc::new(clock))
    }

    fn build(graph: Graph<S>, store: Option<Arc<dyn Store>>, clock: Arc<dyn Clock>) -> Self {
        let runnables = Arc::new(Runnables::of(&graph));
        Self { inner: Arc::new(Inner { graph, runnables, store, clock, live: Mutex::default() }) }
    }

    /// A handle to a thread. Nothing is read or written until it is used; a name that cannot be used is refused then.
    pub fn thread(&self, name: &str) -> Thread<S> {
        Thread::new(Arc::clone(&self.inner), name)
    }

    /// The graph.
    pub fn graph(&self) -> &Graph<S> {
        &self.inner.graph
    }

    /// Threads in the order of their names, at most `limit`, those after `after` if it is given.
    pub async fn threads(&self, after: Option<&ThreadName>, limit: usize) -> Result<Vec<ThreadInfo>, Error> {
        let store = self.inner.store.as_ref().ok_or_else(|| Error::no_store("list threads"))?;
        Ok(store.threads(after, limit).await?)
    }
}

impl<S> Clone for Runner<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
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

    /// Takes the thread for one run; `None` if there is one already.
    pub(crate) fn lease(self: &Arc<Self>, thread: &ThreadName) -> Option<Lease<S>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(thread.clone()).then(|| Lease { inner: Arc::clone(self), thread: thread.clone() })
    }
}

/// The right to run a thread, until it is dropped.
pub(crate) struct Lease<S> {
    inner: Arc<Inner<S>>,
    thread: ThreadName,
}

impl<S> Drop for Lease<S> {
    fn drop(&mut self) {
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.thread);
    }
}
