//! What comes from outside: the signals that a graph knows, nodes that wait for one or for a time, and conditions that hold a node back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde_json::Value;

use super::question_node::QuestionNode;
use super::validate::Mistake;
use super::{GraphBuilder, Handler, Node, Plan, Shape, typed};
use crate::clock::Timestamp;
use crate::log::{OnExpiry, QuestionKind, QuestionSpec};
use crate::state::{State, StateObject, panic_text};

/// A signal that a graph knows: its name, and the JSON Schema of what it says.
#[derive(Clone, Debug)]
pub(crate) struct SignalShape {
    pub(crate) name: String,
    pub(crate) schema: Value,
}

/// What holds a node back until it holds.
#[derive(Clone)]
pub(crate) struct When {
    /// In words, for the log.
    what: Arc<str>,
    holds: Arc<Holds>,
}

type Holds = dyn Fn(&dyn StateObject) -> bool + Send + Sync;

impl When {
    /// Whether the node may run on this state. A condition that panics does not hold.
    pub(crate) fn holds(&self, state: &dyn StateObject) -> bool {
        let holds = catch_unwind(AssertUnwindSafe(|| (self.holds)(state)));
        holds.unwrap_or_else(|panic| {
            tracing::error!(
                condition = &*self.what,
                panic = panic_text(&*panic),
                "the condition of a node panicked; it does not hold"
            );
            false
        })
    }

    /// What a task that is held back waits for.
    pub(crate) fn spec(&self, node: &str) -> QuestionSpec {
        let text = format!("Node \"{node}\" waits until this holds: {}", self.what);
        Wait { kind: QuestionKind::Condition, text, deadline: None, until: None }.spec("when".into(), 0)
    }
}

/// What a wait node waits for: a time, or a signal.
///
/// ```
/// use ferrata::{Wait, clock::Timestamp};
/// use std::time::Duration;
///
/// let night = Wait::time(Duration::from_secs(8 * 3_600));
/// let new_year = Wait::until(Timestamp(1_798_761_600_000));
/// let payment = Wait::signal("payment").within(Duration::from_secs(14 * 86_400));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Wait {
    kind: QuestionKind,
    text: String,
    deadline: Option<Duration>,
    until: Option<Timestamp>,
}

impl Wait {
    /// Waits so long, counted from when it is recorded.
    pub fn time(time: Duration) -> Self {
        Self { kind: QuestionKind::Time, text: "Waits for a time".to_owned(), deadline: Some(time), until: None }
    }

    /// Waits until that time by the runner's clock; not at all if it has passed.
    pub fn until(time: Timestamp) -> Self {
        Self { until: Some(time), deadline: None, ..Self::time(Duration::ZERO) }
    }

    /// Waits for a signal of that name, which the graph [knows](GraphBuilder::signal): one that has come already and that nothing has waited for, or the next
    /// one.
    pub fn signal(name: impl Into<String>) -> Self {
        let name = name.into();
        let text = format!("Waits for the signal \"{name}\"");
        Self { kind: QuestionKind::Signal(name), text, deadline: None, until: None }
    }

    /// How long it waits for a signal at most. The `expired` edges of a wait node lead on then; inside a node [`NodeError::is_expired`](crate::NodeError::is_expired)
    /// tells.
    pub fn within(mut self, time: Duration) -> Self {
        self.deadline = Some(time);
        self
    }

    /// When it is over at the latest, if at a given time.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        self.until
    }

    pub(crate) fn spec(self, key: Arc<str>, occurrence: u32) -> QuestionSpec {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        QuestionSpec {
            key,
            occurrence,
            kind: self.kind,
            text: self.text,
            show: None,
            schema: Value::Bool(true),
            assignee: None,
            deadline_ms: self.deadline.map(ms),
            until: self.until,
            reminders_ms: Vec::new(),
            on_expiry: OnExpiry::GoOn,
        }
    }
}

impl<S: State> GraphBuilder<S> {
    /// Lets threads of the graph take signals of that name, which say a `T`: [`Thread::signal`](crate::Thread::signal) sends them, wait nodes and
    /// [`Context::signal`](crate::Context::signal) wait for them. One of another name, or that says something else, is refused to its sender.
    ///
    /// ```
    /// use ferrata::{END, Graph, Outcome, Runner, START, Signal, State, Wait, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Order { paid: u64 }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let graph = Graph::<Order>::new("order")
    ///     .signal::<u64>("payment")
    ///     .wait("paid", |_| Wait::signal("payment"))
    ///     .answered("paid", |_, cents: u64| Order::update().paid(cents))
    ///     .edge(START, "paid")
    ///     .edge("paid", END)
    ///     .build()?;
    /// let thread = Runner::new(graph, MemoryStore::new()).thread("order-7");
    /// let Outcome::Outside(waits) = thread.run(Order::update()).await? else { panic!("it waits") };
    /// assert!(waits[0].text.contains("payment"));
    ///
    /// let refused = thread.signal(Signal::new("payment", "a lot")).await.unwrap_err();
    /// assert_eq!(refused.code(), "signal-misfit");
    /// thread.signal(Signal::new("payment", 4_200).id("bank-1")).await?;
    /// thread.signal(Signal::new("payment", 4_200).id("bank-1")).await?; // the bank tells it twice
    /// assert_eq!(thread.resume().await?.done().unwrap().paid, 4_200);
    /// # Ok(()) }
    /// ```
    pub fn signal<T: JsonSchema>(mut self, name: impl Into<String>) -> Self {
        self.plan.signals.push(SignalShape { name: name.into(), schema: schemars::schema_for!(T).to_value() });
        self
    }

    /// Adds a wait node: it waits for a time or for a signal, and does nothing else. The thread takes no room in memory meanwhile, and its process may end. What
    /// becomes of what a signal says is told by [`answered`](Self::answered); without it, nothing does. [`expired`](Self::expired) edges lead on where no signal comes
    /// in time.
    ///
    /// A [supervisor](crate::Runner::supervise) goes on with the thread when the time has come; without one, whoever resumes it then does.
    pub fn wait(self, name: &str, wait: impl Fn(&S) -> Wait + Send + Sync + 'static) -> Self {
        self.node(name, Node::new(Handler::Question(QuestionNode::waiting(wait)), None))
    }
}

impl<S: State> Node<S> {
    /// Holds the node back until a condition over the state holds: while others are due they go first, and it is looked at again after each step. With nothing else due,
    /// the thread waits outside ([`ThreadStatus::Outside`](crate::store::ThreadStatus::Outside)) until the state is changed by [`Thread::update`](crate::Thread::update).
    /// `what` says in words what has to hold. A node that needs a signal waits for it with [`Context::signal`](crate::Context::signal).
    ///
    /// A task that a fan-out or a branch sends to the node belongs to its step, which waits with it.
    ///
    /// ```
    /// use ferrata::{END, Graph, IntoNode, Outcome, Runner, START, State, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Order { in_stock: bool, shipped: bool }
    ///
    /// async fn ship() -> ferrata::Result<OrderUpdate> {
    ///     Ok(Order::update().shipped(true))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let ship = ship.when("it is in stock", |order: &Order| order.in_stock);
    /// let graph = Graph::<Order>::new("order").node("ship", ship).edge(START, "ship").edge("ship", END).build()?;
    /// let thread = Runner::new(graph, MemoryStore::new()).thread("order-7");
    /// assert!(matches!(thread.run(Order::update()).await?, Outcome::Outside(_)));
    /// thread.update(Order::update().in_stock(true), None).await?;
    /// assert!(thread.resume().await?.done().unwrap().shipped);
    /// # Ok(()) }
    /// ```
    pub fn when(mut self, what: &str, holds: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(When { what: what.into(), holds: Arc::new(move |state| holds(typed::<S>(state))) });
        self
    }
}

impl Shape {
    /// The signal of that name, here or in a graph inside.
    pub(crate) fn signal(&self, name: &str) -> Option<&SignalShape> {
        let own = self.signals.iter().find(|signal| signal.name == name);
        own.or_else(|| self.subgraphs.values().find_map(|subgraph| subgraph.shape.signal(name)))
    }

    /// The names of all signals, for errors.
    pub(crate) fn signal_names(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        self.add_signals(&mut names);
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    fn add_signals<'s>(&'s self, names: &mut Vec<&'s str>) {
        names.extend(self.signals.iter().map(|signal| signal.name.as_str()));
        self.subgraphs.values().for_each(|subgraph| subgraph.shape.add_signals(names));
    }
}

/// Signals that are declared twice.
pub(super) fn mistakes<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let known = |place: usize, name: &str| plan.signals[..place].iter().any(|signal| signal.name == name);
    let twice = plan.signals.iter().enumerate().filter(|(place, signal)| known(*place, &signal.name));
    let mistake = |(_, signal): (usize, &SignalShape)| {
        Mistake::new(
            "duplicate-signal",
            format!("there are two signals called \"{}\"", signal.name),
            "give each a name of its own",
        )
    };
    twice.map(mistake).collect()
}
