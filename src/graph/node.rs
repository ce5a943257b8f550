//! Nodes as a graph sees them: a policy, and a handler it knows nothing of.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::question_node::QuestionNode;
use super::shape::{Compensates, Keeps, Shape};
use crate::error::Failure;
use crate::id::NodeName;
use crate::policy::{Guard, NodePolicy, Retry, Uses};
use crate::state::{State, Update};

/// What a node takes besides the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

impl PayloadType {
    pub(crate) fn of<T: 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: std::any::type_name::<T>() }
    }
}

/// Something that a node needs to be handed in.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

/// A graph inside another one. How its nodes run is the runner's business.
#[derive(Clone)]
pub(crate) struct Subgraph {
    pub(crate) shape: Arc<Shape>,
    pub(crate) keeps: Keeps,
    /// Whether it works on the state of the graph outside.
    pub(crate) is_shared: bool,
    pub(crate) nodes: Arc<dyn Any + Send + Sync>,
}

pub(crate) enum Handler<S> {
    /// An async function; what it is is the runner's business.
    Function {
        call: Arc<dyn Any + Send + Sync>,
        payload: Option<PayloadType>,
    },
    Question(QuestionNode<S>),
}

impl<S> Clone for Handler<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Function { call, payload } => Self::Function { call: Arc::clone(call), payload: *payload },
            Self::Question(question) => Self::Question(question.clone()),
        }
    }
}

/// A node with its settings. Functions become one by themselves; see [`IntoNode`].
#[must_use]
pub struct Node<S> {
    pub(crate) handler: Handler<S>,
    pub(crate) policy: NodePolicy,
    pub(crate) payload: Option<PayloadType>,
    pub(crate) needs: Vec<Need>,
    /// What its result has to keep to.
    pub(crate) rule: Option<Rule<S>>,
    pub(crate) irreversible: bool,
    /// Whether it compensates effects, and is no part of the way through the graph.
    pub(crate) compensates: Option<Compensates>,
    pub(crate) unguarded: Option<String>,
    pub(crate) reads: Option<Vec<String>>,
    pub(crate) leads_to: Vec<NodeName>,
    pub(crate) on_error: Option<Handler<S>>,
    pub(crate) on_error_leads_to: Vec<NodeName>,
    /// The graph that the node is.
    pub(crate) subgraph: Option<Subgraph>,
    /// Whether its error handler is a graph, which it cannot be.
    pub(crate) on_error_is_graph: bool,
    /// What holds it back.
    pub(crate) when: Option<super::When>,
}

/// What the result of a node has to keep to: the state before it, and with what it wrote.
pub(crate) type Rule<S> = Arc<dyn Fn(&S, &S) -> Result<(), String> + Send + Sync>;

/// How often a node is tried in all if nobody says otherwise, when its results break its rule.
const ROUNDS: u32 = 3;

impl<S: State> Node<S> {
    /// Holds the node to a rule over the state before it and the state with what it wrote. A result that breaks it is not taken: the node runs again and
    /// finds the rule's text in [`Context::feedback`](crate::Context::feedback), three times in all if [`rounds`](Self::rounds) says nothing else. Then the
    /// node's error handler takes over, or a person is asked, who takes the result as it is ([`Approval::approve`](crate::Approval::approve); the
    /// node runs once more and finds what it did, and if it comes to another result that breaks the rule, the person is asked about that one), or says what is
    /// wrong with it ([`Approval::reject`](crate::Approval::reject)), which is the next feedback. Nothing passes in silence: a rule that panics fails the
    /// node.
    ///
    /// Effects of earlier rounds keep their results. A repeatable effect that comes with other [arguments](crate::Effect::arguments) in a later round is done
    /// again, as an effect of its own with its own idempotency key: so a model sees the feedback, and what has not changed is not paid for again. So it is with a
    /// graph that the node [calls](crate::Context::call) with another input in a later round: it runs anew, effects and questions in it included, while the same
    /// input gives the result there is. Answers stay what they are, and so does a node that is a graph: a rule on it goes to a person with the same result each
    /// time.
    ///
    /// ```
    /// use ferrata::{Context, END, Graph, IntoNode, Runner, START, State, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Ad { text: String }
    ///
    /// async fn write(ctx: Context) -> ferrata::Result<AdUpdate> {
    ///     let text = match ctx.feedback() {
    ///         None => "Buy, buy, buy, buy, buy!", // a model would be asked here
    ///         Some(_) => "Buy!",
    ///     };
    ///     Ok(Ad::update().text(text))
    /// }
    ///
    /// fn is_short(_: &Ad, ad: &Ad) -> Result<(), String> {
    ///     if ad.text.len() > 10 { Err(format!("{} letters are too many", ad.text.len())) } else { Ok(()) }
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let graph = Graph::<Ad>::new("ad").node("write", write.verify(is_short)).edge(START, "write").edge("write", END).build()?;
    /// assert_eq!(Runner::new(graph, MemoryStore::new()).thread("t").run(Ad::update()).await?.done().unwrap().text, "Buy!");
    /// # Ok(()) }
    /// ```
    pub fn verify<E: fmt::Display>(mut self, rule: impl Fn(&S, &S) -> Result<(), E> + Send + Sync + 'static) -> Self {
        self.rule = Some(Arc::new(move |before, after| rule(before, after).map_err(|error| error.to_string())));
        if self.policy.rounds == 0 {
            self.policy.rounds = ROUNDS;
        }
        self
    }

    /// How often the node is tried in all, when its result breaks its rule or it fails with a [violation](crate::NodeError::violation), before its error handler
    /// or a person gets it. At least 1. Attempts that failed of something else are counted for themselves. A violation that the node itself fails with is no
    /// result: a person cannot take it, only say what has to change. Without this and without a rule, a violation is a failure as any other.
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.policy.rounds = rounds.max(1);
        self
    }

    /// Lets another function take over when the last attempt has failed: what it returns is the node's result, and the edges of the node
    /// are not taken. It finds the failure in [`Context::failure`](crate::Context::failure). If it fails too, the run fails.
    pub fn on_error<Args>(mut self, handler: impl IntoNode<S, Args>) -> Self {
        let mut handler = handler.into_node();
        // Where the node takes a payload, the state is no payload for its handler either.
        if let (Handler::Function { payload: Some(sent), .. }, Handler::Function { payload: takes @ None, .. }) =
            (&self.handler, &mut handler.handler)
        {
            *takes = Some(*sent);
        }
        self.on_error_leads_to = handler.leads_to;
        self.on_error_is_graph = handler.subgraph.is_some();
        self.needs.extend(handler.needs);
        self.on_error = Some(handler.handler);
        (self.policy.handled, self.policy.degrades) = (true, false);
        self
    }
}

impl<S> Node<S> {
    pub(crate) fn new(handler: Handler<S>, payload: Option<PayloadType>) -> Self {
        Self {
            handler,
            policy: NodePolicy::default(),
            payload,
            needs: Vec::new(),
            rule: None,
            irreversible: false,
            compensates: None,
            unguarded: None,
            reads: None,
            leads_to: Vec::new(),
            on_error: None,
            on_error_leads_to: Vec::new(),
            subgraph: None,
            on_error_is_graph: false,
            when: None,
        }
    }

    /// Tries again after failures. The default is one attempt. Of several policies the first one that is for the class of a failure decides.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retries.push(retry);
        self
    }

    /// Longest time for one attempt, effects included; one that takes longer fails as transient, and an effect under way that is not
    /// repeatable is in doubt then. The default is none.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.policy.timeout = Some(limit);
        self
    }

    /// Longest time for one attempt without a sign of life: an effect that begins or ends, [`Context::mark`](crate::Context::mark),
    /// [`emit`](crate::Context::emit) or [`heartbeat`](crate::Context::heartbeat), also in a graph that it called. An effect that takes longer is silent. A silent attempt fails as one that timed out, after once to twice this time; one that shows life may take as
    /// long as [`timeout`](Self::timeout) allows. The default is none.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.policy.idle = Some(limit);
        self
    }

    /// How long an attempt of the node may give no sign of life before a [supervisor](crate::Runner::supervise) looks at it, instead of what [that one says](crate::Supervise::patience); `None` for
    /// as long as it takes. Without a supervisor nobody looks. A node that works for long is left alone as long as it gives signs of life: those of
    /// [`idle_timeout`](Self::idle_timeout).
    pub fn patience(mut self, time: Option<Duration>) -> Self {
        self.policy.patience = Some(time);
        self
    }

    /// Longest time for all attempts of a task together, with the delays between them, counted from its first attempt and over restarts (of an attempt that a
    /// restart cut off nothing is on record: it does not count). When it is over, or would be before the next attempt, the task fails for good; resuming the
    /// thread gives it all its time again, and so does the answer of a person. What takes over for the node is not bound by it. The default is none.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.policy.total = Some(limit);
        self
    }

    /// Lets the node say itself where to go, with [`Next::goto`](crate::Next::goto): to one or more of these. It has no edges then.
    pub fn leads_to<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.leads_to = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// Shows the node only these fields, private ones among them. Works on states whose fields can be absent.
    pub fn reads<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.reads = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Lets the node wait until nothing else is due.
    pub fn deferred(mut self) -> Self {
        self.policy.deferred = true;
        self
    }

    /// Lets each attempt of the node use a [`Resource`](crate::Resource) of the runner: it waits for its turn, and while the resource's breaker is open. The
    /// time-outs of an attempt count from there; the total time counts on.
    pub fn uses(mut self, resource: impl Into<String>) -> Self {
        self.policy.uses.push(Uses { resource: resource.into(), waits: true });
        self
    }

    /// As [`uses`](Self::uses), but while the resource's breaker is open the node fails at once, without another attempt: for its error handler or its fallback.
    pub fn uses_or_fails(mut self, resource: impl Into<String>) -> Self {
        self.policy.uses.push(Uses { resource: resource.into(), waits: false });
        self
    }

    /// How many tasks of this node run at once, at least 1. The default is all that are due.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.policy.concurrency = Some(tasks.max(1));
        self
    }

    /// Says that what the node does cannot be undone: the graph is built only if an approval lies on every path to it.
    pub fn irreversible(mut self) -> Self {
        self.irreversible = true;
        self
    }

    /// Says that an irreversible node needs no approval, and why. The reason is drawn in the diagram.
    pub fn unguarded(mut self, reason: impl Into<String>) -> Self {
        self.unguarded = Some(reason.into());
        self
    }
}

impl<S> Node<S> {
    /// Where the node or its error handler may go by itself.
    pub(crate) fn gotos(&self) -> impl Iterator<Item = &NodeName> {
        self.leads_to.iter().chain(&self.on_error_leads_to)
    }
}

impl<S> fmt::Debug for Node<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("policy", &self.policy).field("payload", &self.payload).finish_non_exhaustive()
    }
}

/// What can be a node: async functions and closures, of up to three arguments.
///
/// An argument is a [`View`](crate::View) of the state, a [`Context`](crate::Context), or, for a node that a fan-out leads to, the payload: any type that can
/// be deserialized. The result is [`Result`](crate::Result) of the state's update type.
///
/// ```
/// use ferrata::{Context, IntoNode, Retry, State, View};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Trip { goal: String, #[state(append)] notes: Vec<String> }
///
/// async fn plan(state: View<Trip>) -> ferrata::Result<TripUpdate> {
///     Ok(Trip::update().note(format!("pack for {}", state.goal)))
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Leg { to: String }
///
/// async fn book(leg: Leg, ctx: Context) -> ferrata::Result<TripUpdate> {
///     Ok(Trip::update().note(format!("{} for {}", ctx.node(), leg.to)))
/// }
///
/// let plan = plan.retry(Retry::transient(3)); // settings turn a function into a node
/// let book = book.concurrency(4);
///
/// // What a node works with, a client or a setting, is captured: a closure clones it for each call.
/// let greeting = std::sync::Arc::new("Servus".to_owned());
/// let greet = move |state: View<Trip>| {
///     let greeting = std::sync::Arc::clone(&greeting);
///     async move { Ok(Trip::update().note(format!("{greeting}, {}", state.goal))) }
/// };
/// # let greet = greet.irreversible();
/// # is_node(greet);
/// # fn is_node(_: ferrata::Node<Trip>) {}
/// # is_node(plan);
/// # is_node(book);
/// ```
///
/// # Long computations
///
/// The first poll of a node is made by the loop of its run, so that a quick node costs little. A node that computes for long before it first waits
/// holds up the other tasks of the run meanwhile (later tasks of it run beside the loop): hand such work to `tokio::task::spawn_blocking`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a node of a graph over `{S}`",
    label = "not a node",
    note = "a node is an async function of up to three arguments out of `View<{S}>`, `Context` and a payload that is `Deserialize`",
    note = "and returns `ferrata::Result` of the update type that `#[derive(State)]` made"
)]
pub trait IntoNode<S: State, Args>: Sized {
    /// The node, with default settings.
    fn into_node(self) -> Node<S>;

    /// See [`Node::retry`].
    fn retry(self, retry: Retry) -> Node<S> {
        self.into_node().retry(retry)
    }

    /// See [`Node::timeout`].
    fn timeout(self, limit: Duration) -> Node<S> {
        self.into_node().timeout(limit)
    }

    /// See [`Node::idle_timeout`].
    fn idle_timeout(self, limit: Duration) -> Node<S> {
        self.into_node().idle_timeout(limit)
    }

    /// See [`Node::total_timeout`].
    fn total_timeout(self, limit: Duration) -> Node<S> {
        self.into_node().total_timeout(limit)
    }

    /// See [`Node::patience`].
    fn patience(self, time: Option<Duration>) -> Node<S> {
        self.into_node().patience(time)
    }

    /// See [`Node::when`].
    fn when(self, what: &str, holds: impl Fn(&S) -> bool + Send + Sync + 'static) -> Node<S> {
        self.into_node().when(what, holds)
    }

    /// See [`Node::verify`].
    fn verify<E: fmt::Display>(self, rule: impl Fn(&S, &S) -> Result<(), E> + Send + Sync + 'static) -> Node<S> {
        self.into_node().verify(rule)
    }

    /// See [`Node::rounds`].
    fn rounds(self, rounds: u32) -> Node<S> {
        self.into_node().rounds(rounds)
    }

    /// See [`Node::guard`].
    fn guard(self, guard: Guard) -> Node<S> {
        self.into_node().guard(guard)
    }

    /// See [`Node::uses`].
    fn uses(self, resource: impl Into<String>) -> Node<S> {
        self.into_node().uses(resource)
    }

    /// See [`Node::uses_or_fails`].
    fn uses_or_fails(self, resource: impl Into<String>) -> Node<S> {
        self.into_node().uses_or_fails(resource)
    }

    /// See [`Node::concurrency`].
    fn concurrency(self, tasks: usize) -> Node<S> {
        self.into_node().concurrency(tasks)
    }

    /// See [`Node::on_error`].
    fn on_error<Other>(self, handler: impl IntoNode<S, Other>) -> Node<S> {
        self.into_node().on_error(handler)
    }

    /// See [`Node::fallback`].
    fn fallback<U: Into<Update>>(self, value: impl Fn(&S, &Failure) -> U + Send + Sync + 'static) -> Node<S> {
        self.into_node().fallback(value)
    }

    /// See [`Node::leads_to`].
    fn leads_to<N: Into<NodeName>>(self, nodes: impl IntoIterator<Item = N>) -> Node<S> {
        self.into_node().leads_to(nodes)
    }

    /// See [`Node::deferred`].
    fn deferred(self) -> Node<S> {
        self.into_node().deferred()
    }

    /// See [`Node::irreversible`].
    fn irreversible(self) -> Node<S> {
        self.into_node().irreversible()
    }

    /// See [`Node::unguarded`].
    fn unguarded(self, reason: impl Into<String>) -> Node<S> {
        self.into_node().unguarded(reason)
    }
}

/// Marks a node that is one already.
#[derive(Debug)]
pub struct Ready;

#[diagnostic::do_not_recommend]
impl<S: State> IntoNode<S, Ready> for Node<S> {
    fn into_node(self) -> Node<S> {
        self
    }
}
