//! Graphs inside graphs: as nodes, and called from nodes.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::Arc;

use super::context::{Context, Use};
use super::driver::Runnable;
use super::handler::startable;
use super::rule::checkable;
use crate::error::{ClassOf, NodeError};
use crate::graph::{Graph, GraphBuilder, Handlers, IntoNode, Keeps, Node, NodeReturn, NodeShape, Shape, Subgraph};
use crate::id::{NodeName, Path};
use crate::machine::{Call, CallInput, CallOutcome};
use crate::state::{Change, State, Update, View};

/// How the nodes of a graph run, and those of the graphs inside it.
pub(crate) struct Runnables {
    pub(crate) nodes: Box<[Runnable]>,
    inner: BTreeMap<Arc<str>, Arc<Self>>,
    shape: Arc<Shape>,
    /// Whether a node here or further inside has to give signs of life.
    has_idle_limits: bool,
}

impl Runnables {
    pub(crate) fn of<S: State>(graph: &Graph<S>) -> Self {
        let schema = &graph.shape.schema;
        let runnable = |(handlers, shape): (&Handlers<S>, &NodeShape)| Runnable {
            start: startable(handlers.node.clone(), handlers.sees.clone(), schema),
            on_error: handlers.on_error.clone().map(|handler| startable(handler, handlers.sees.clone(), schema)),
            rule: handlers.rule.clone().map(|rule| checkable(rule, schema)),
            policy: shape.policy.clone(),
        };
        let nodes = graph.handlers.iter().zip(&graph.shape.nodes).map(runnable).collect();
        let inner = |subgraph: &Subgraph| Arc::clone(&subgraph.nodes).downcast().expect("made by `subgraph` below");
        let inner: BTreeMap<Arc<str>, Arc<Self>> =
            graph.subgraphs.iter().map(|(key, subgraph)| (Arc::clone(key), inner(subgraph))).collect();
        let has_idle_limits =
            graph.shape.nodes.iter().any(|node| node.policy.idle.is_some()) || inner.values().any(|inner| inner.has_idle_limits);
        Self { nodes, inner, shape: Arc::clone(&graph.shape), has_idle_limits }
    }

    pub(crate) fn has_idle_limits(&self) -> bool {
        self.has_idle_limits
    }

    /// Says of errors that nobody has classified which class they are.
    pub(crate) fn classifiers(&self) -> &[ClassOf] {
        &self.shape.classifiers
    }

    /// Those of the graph that runs at `path`.
    pub(crate) fn classifiers_at(self: &Arc<Self>, path: &Path) -> &[ClassOf] {
        self.at(path).map_or(&[], |runnables| runnables.classifiers())
    }

    /// Whether the graph declares something of that name that compensates effects.
    pub(crate) fn compensates(&self, name: &NodeName) -> bool {
        self.shape.index(name).is_some_and(|node| self.shape.nodes[node].compensates.is_some())
    }

    /// The nodes of the graph that runs at `path`, if there is one.
    pub(crate) fn at<'r>(self: &'r Arc<Self>, path: &Path) -> Option<&'r Arc<Self>> {
        path.frames().iter().try_fold(self, |runnables, frame| runnables.inner.get(runnables.shape.kind.key(frame.key())))
    }
}

fn subgraph<T: State>(graph: &Graph<T>, is_shared: bool) -> Subgraph {
    let nodes = Arc::new(Runnables::of(graph));
    Subgraph { shape: Arc::clone(&graph.shape), keeps: graph.keeps, is_shared, nodes }
}

impl<T: State> Graph<T> {
    /// As a subgraph, goes on with the state of its last call on the thread, where it would else begin with an empty one each time.
    ///
    /// Each node that is or calls it has one of its own, and so has each n-th call of it in one node. It cannot be at work for two tasks at once: the
    /// second call fails. Where the thread goes back in time, so does that state.
    #[must_use]
    pub fn continued(mut self) -> Self {
        self.keeps = Keeps::Continued;
        self
    }

    /// As a subgraph, has its steps not stored: fewer bytes, but an interrupted call begins anew, from its first node.
    ///
    /// Answers and effects are recorded all the same, and found again.
    #[must_use]
    pub fn unstored(mut self) -> Self {
        self.keeps = Keeps::Unstored;
        self
    }

    /// Makes the graph a node of another one over the same state: it begins with that state, and what it changes is the node's update. An item
    /// it appends is appended there; of a field it sets, the last value counts.
    pub fn shared(self) -> Node<T> {
        let subgraph = subgraph(&self, true);
        let fields = self.shape.schema.fields().to_vec();
        let run = move |state: View<T>, context: Context| {
            let fields = fields.clone();
            async move {
                // What was sent to the node takes the place of the state outside.
                let mut sent = Vec::new();
                if context.attempt.start.payload.is_some() {
                    for field in &fields {
                        let value = state.read(&field.name)?;
                        sent.extend(value.map(|value| Change::new(field.name.clone(), crate::state::Op::Overwrite(value))));
                    }
                }
                let (_, changes) = call::<T>(&context, None, CallInput::Shared(sent)).await?;
                Ok(Update::from_changes(changes))
            }
        };
        with_subgraph(run.into_node(), subgraph)
    }

    /// Makes the graph a node of a graph over another state: `input` says what it begins with, `output` what comes of its last state. What `input` gave
    /// first counts, in later attempts and rounds of the node as well: it should depend on the state alone.
    ///
    /// ```
    /// use ferrata::{Context, END, Graph, Runner, START, State, View, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Word { text: String, letters: Option<usize> }
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Page { title: String, #[state(append)] notes: Vec<String> }
    ///
    /// async fn count(word: View<Word>) -> ferrata::Result<WordUpdate> {
    ///     Ok(Word::update().letters(word.text.chars().count()))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let letters = Graph::<Word>::new("letters").node("count", count).edge(START, "count").edge("count", END).build()?;
    /// let measure = letters.mapped(
    ///     |page: &Page| Word::update().text(&*page.title),
    ///     |_, word| Page::update().note(format!("{:?} letters", word.letters)),
    /// );
    /// let graph = Graph::<Page>::new("page").node("measure", measure).edge(START, "measure").edge("measure", END).build()?;
    /// let page = Runner::new(graph, MemoryStore::new()).thread("t").run(Page::update().title("Summit")).await?.done().unwrap();
    /// assert_eq!(page.notes, ["Some(6) letters"]);
    /// # Ok(()) }
    /// ```
    pub fn mapped<S: State>(
        self,
        input: impl Fn(&S) -> T::Update + Send + Sync + 'static,
        output: impl Fn(&S, &T) -> S::Update + Send + Sync + 'static,
    ) -> Node<S> {
        let subgraph = subgraph(&self, false);
        let maps = Arc::new((input, output));
        let run = move |state: View<S>, context: Context| {
            let maps = Arc::clone(&maps);
            async move {
                let update: Update = maps.0(&state).into();
                let (ended, _) = call::<T>(&context, None, CallInput::Changes(update.into_changes()?)).await?;
                let update: Update = maps.1(&state, &ended).into();
                Ok(update)
            }
        };
        with_subgraph(run.into_node(), subgraph)
    }
}

fn with_subgraph<S>(mut node: Node<S>, subgraph: Subgraph) -> Node<S> {
    node.subgraph = Some(subgraph);
    node
}

impl<S: State> GraphBuilder<S> {
    /// Declares a graph that nodes of this one call by that key, with [`Context::call`].
    pub fn callable<T: State>(self, key: &str, graph: Graph<T>) -> Self {
        let subgraph = subgraph(&graph, false);
        self.with_callable(key, subgraph)
    }
}

impl Context {
    /// Runs a graph that [`GraphBuilder::callable`] declared, and gives the state it ends with. Questions and failures inside are the node's own.
    ///
    /// Steps of the graph are recorded as those of the thread are. When this node runs again, after a crash, a failure or an answer, the graph goes on
    /// where it stands, and one that has ended gives its result again. The n-th call of a key in one node is the n-th run of the graph, so the
    /// input and the order of calls must not depend on anything but the state and earlier results. A node that comes back with another input for a
    /// call it made fails with an error that shows both (code `effect-arguments`), and gets no old result for it. For another input, call the graph
    /// once more, or by another key. A later round of [`Node::verify`](crate::Node::verify), which has [`feedback`](Self::feedback), needs
    /// neither: with another input it runs the graph anew, with effects and questions of its own.
    ///
    /// ```
    /// use ferrata::{Context, END, Graph, Runner, START, State, View, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Square { of: u64, is: u64 }
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Total { sides: Vec<u64>, area: u64 }
    ///
    /// async fn add(total: View<Total>, ctx: Context) -> ferrata::Result<TotalUpdate> {
    ///     let mut area = 0;
    ///     for side in &total.sides {
    ///         area += ctx.call::<Square>("square", Square::update().of(*side)).await?.is;
    ///     }
    ///     Ok(Total::update().area(area))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let multiply = |s: View<Square>| async move { Ok(Square::update().is(s.of * s.of)) };
    /// let square = Graph::<Square>::new("square").node("multiply", multiply).edge(START, "multiply").edge("multiply", END).build()?;
    /// let graph = Graph::<Total>::new("total")
    ///     .callable("square", square)
    ///     .node("add", add)
    ///     .edge(START, "add")
    ///     .edge("add", END)
    ///     .build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let total = runner.thread("t").run(Total::update().sides(vec![3, 4])).await?.done().unwrap();
    /// assert_eq!(total.area, 25);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// A key that was not declared, another state type, an input that does not fit or is another one than before; whatever the graph fails of, in that failure's class.
    pub async fn call<T: State>(&self, key: &str, input: impl Into<Update> + Send) -> Result<View<T>, NodeError> {
        let input: Update = input.into();
        let (state, _) = call::<T>(self, Some(key.into()), CallInput::Changes(input.into_changes()?)).await?;
        Ok(state)
    }
}

/// Runs a graph inside the node. Comes back only with a result: where the graph waits, so does the node.
fn call<T: State>(
    context: &Context,
    graph: Option<Arc<str>>,
    input: CallInput,
) -> impl Future<Output = Result<(View<T>, Vec<Change>), NodeError>> + Send + use<T> {
    let attempt = Arc::clone(&context.attempt);
    async move {
        let key = graph.clone().unwrap_or_else(|| attempt.start.task.node.as_str().into());
        let Some(in_flight) = attempt.enter() else { return pending().await };
        let call = Call {
            place: attempt.start.place.clone(),
            graph,
            call: attempt.next_use(Use::Call, &key),
            on_error: attempt.start.handling.is_some(),
            expects: TypeId::of::<T>(),
            input,
        };
        match attempt.call(call).await {
            Some(CallOutcome::Done { state, output: None, changes }) => return Ok((state.view(), changes)),
            Some(CallOutcome::Done { state, output: Some(fields), mut changes }) => {
                let is_output = |name: &str| fields.iter().any(|field| field == name);
                changes.retain(|change| is_output(&change.field));
                return Ok((View::new(state.view::<T>().only(&is_output)), changes));
            }
            Some(CallOutcome::Failed(failure)) => return Err(NodeError::of_failure(failure)),
            Some(CallOutcome::Handed { changes, goto }) => {
                let goto = (!goto.is_empty()).then_some(goto);
                let update = Update::from_changes(changes);
                attempt.seal_for_call(Some(NodeReturn { update, goto, ..NodeReturn::default() }));
            }
            Some(CallOutcome::Paused) => attempt.seal_for_call(None),
            // The attempt is over.
            None => {}
        }
        drop(in_flight);
        pending().await
    }
}
