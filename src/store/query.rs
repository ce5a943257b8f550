//! Which threads are asked for, in which order.

use crate::clock::Timestamp;
use crate::id::ThreadName;
use crate::store::{ThreadInfo, ThreadStatus};

/// How many threads a page has if nobody says otherwise.
const LIMIT: usize = 100;

/// The order of a list of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By name, as bytes.
    #[default]
    Name,
    /// Those first that have been in their status the longest.
    OldestFirst,
    /// Those first whose status changed last.
    NewestFirst,
}

/// Which threads to list: all by name, in pages of 100, if nothing else is said.
///
/// A page goes on behind the last line of the one before it. A thread that changes its status between two pages of a list by time can be seen
/// twice or not at all, in a list by name it is seen once.
///
/// ```
/// # use ferrata::{END, Graph, Runner, START, State, View, store::{MemoryStore, ThreadQuery, ThreadStatus}};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Count { n: u64 }
/// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build()?;
/// # let runner = Runner::new(graph, MemoryStore::new());
/// for name in ["mail-1", "order-1", "order-2"] {
///     runner.thread(name).run(Count::update()).await?;
/// }
/// let done = ThreadQuery::new().status(ThreadStatus::Done).prefix("order-").limit(1);
/// let page = runner.threads(done.clone()).await?;
/// assert_eq!(page[0].name.as_str(), "order-1");
/// assert_eq!(runner.threads(done.after(&page[0])).await?[0].name.as_str(), "order-2");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ThreadQuery {
    statuses: Vec<ThreadStatus>,
    prefix: String,
    before: Option<Timestamp>,
    order: Order,
    after: Option<(Timestamp, ThreadName)>,
    limit: usize,
}

impl Default for ThreadQuery {
    fn default() -> Self {
        Self { statuses: Vec::new(), prefix: String::new(), before: None, order: Order::Name, after: None, limit: LIMIT }
    }
}

impl ThreadQuery {
    /// All threads, by name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only threads in this status; called again, in one of these.
    pub fn status(mut self, status: ThreadStatus) -> Self {
        self.statuses.push(status);
        self
    }

    /// Only threads whose names begin like this.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Only threads that have been in their status since before this time.
    pub fn unchanged_since(mut self, time: Timestamp) -> Self {
        self.before = Some(time);
        self
    }

    /// In this order.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Goes on behind this line, the last one of the page before.
    pub fn after(mut self, last: &ThreadInfo) -> Self {
        self.after = Some((last.since, last.name.clone()));
        self
    }

    /// At most so many; 100 if not set.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// The statuses that are asked for.
    pub fn statuses(&self) -> &[ThreadStatus] {
        if self.statuses.is_empty() { &ThreadStatus::ALL } else { &self.statuses }
    }

    /// Whether it says in which statuses.
    pub fn names_statuses(&self) -> bool {
        !self.statuses.is_empty()
    }

    /// How names begin; empty for all.
    pub fn name_prefix(&self) -> &str {
        &self.prefix
    }

    /// The order that is asked for.
    pub fn in_order(&self) -> Order {
        self.order
    }

    /// Time and name of the line to go on behind.
    pub fn place(&self) -> Option<(Timestamp, &ThreadName)> {
        self.after.as_ref().map(|(since, name)| (*since, name))
    }

    /// How many lines at most.
    pub fn most(&self) -> usize {
        self.limit
    }

    /// Whether a thread belongs on this page or a later one.
    pub fn selects(&self, thread: &ThreadInfo) -> bool {
        self.statuses().contains(&thread.status)
            && thread.name.as_str().starts_with(&self.prefix)
            && self.before.is_none_or(|time| thread.since < time)
            && self.place().is_none_or(|place| self.is_behind(thread, place))
    }

    fn is_behind(&self, thread: &ThreadInfo, place: (Timestamp, &ThreadName)) -> bool {
        let here = (thread.since, &thread.name);
        match self.order {
            Order::Name => here.1 > place.1,
            Order::OldestFirst => here > place,
            Order::NewestFirst => here < place,
        }
    }

    /// Sorts what was found, and cuts it to a page: for a store that has no order of its own.
    pub fn page(&self, mut found: Vec<ThreadInfo>) -> Vec<ThreadInfo> {
        found.retain(|thread| self.selects(thread));
        match self.order {
            Order::Name => found.sort_by(|a, b| a.name.cmp(&b.name)),
            Order::OldestFirst => found.sort_by(|a, b| (a.since, &a.name).cmp(&(b.since, &b.name))),
            Order::NewestFirst => found.sort_by(|a, b| (b.since, &b.name).cmp(&(a.since, &a.name))),
        }
        found.truncate(self.limit);
        found
    }
}
