//! How states are made whose Rust type nobody here knows: the graph's, and those of the graphs inside it.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Schema, State, StateCell, StateError, Upgrades, Values, View};
use crate::id::Path;

type Decode = fn(&Schema, Map<String, Value>) -> Result<StateCell, StateError>;

/// The kind of state a graph has, and those of its subgraphs by their keys.
pub(crate) struct StateKind {
    pub(crate) schema: Arc<Schema>,
    fingerprint: String,
    told: Schema,
    state: (TypeId, &'static str),
    empty: StateCell,
    decode: Decode,
    has_secrets: bool,
    inner: BTreeMap<Arc<str>, Arc<StateKind>>,
    past: Past,
    /// Whether it is of a thread as it was recorded: every graph that may have been in there has a kind.
    is_recorded: bool,
}

/// What a graph knows of its own past.
#[derive(Clone, Default)]
pub(crate) struct Past {
    pub(crate) upgrades: Upgrades,
    /// The keys of subgraphs, by those that they had earlier.
    pub(crate) renamed: BTreeMap<Arc<str>, Arc<str>>,
}

impl StateKind {
    pub(crate) fn of<S: State>(schema: Arc<Schema>, inner: BTreeMap<Arc<str>, Arc<Self>>, past: Past) -> Self {
        let empty = StateCell::new(S::empty(&schema));
        let state = (TypeId::of::<S>(), std::any::type_name::<S>());
        let decode: Decode = |schema, values| Ok(StateCell::new(S::decode(schema, values)?));
        // A value that cannot be stored is told by whoever stores the state.
        let told = (*schema).clone().filled(&empty.values(&schema).unwrap_or_default());
        Self {
            fingerprint: schema.fingerprint(),
            has_secrets: schema.has_secrets(),
            told,
            schema,
            state,
            empty,
            decode,
            inner,
            past,
            is_recorded: false,
        }
    }

    /// The kind of a graph as it was recorded, whatever the program knows of it now.
    pub(crate) fn recorded(schema: Schema, inner: BTreeMap<Arc<str>, Arc<Self>>) -> Self {
        let kind = Self::of::<Values>(Arc::new(schema), inner, Past::default());
        Self { is_recorded: true, ..kind }
    }

    /// Whether it is the kind of a graph as it was recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Whether its states take whatever they are given.
    pub(super) fn is_open(&self) -> bool {
        self.other_than(TypeId::of::<Values>()).is_none()
    }

    /// The schema's fingerprint.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The schema as it is stored: it also tells what the fields hold before anything is written.
    pub(crate) fn told(&self) -> &Schema {
        &self.told
    }

    /// The name of its Rust type, if that is not `S`.
    pub(crate) fn other_than(&self, expected: TypeId) -> Option<&'static str> {
        (self.state.0 != expected).then_some(self.state.1)
    }

    /// The state before anything is written.
    pub(crate) fn empty(&self) -> StateCell {
        self.empty.clone()
    }

    pub(crate) fn decode(&self, values: Map<String, Value>) -> Result<StateCell, StateError> {
        (self.decode)(&self.schema, values)
    }

    /// Whether it has fields whose values are secrets. Those of the graphs inside do not count.
    pub(crate) fn has_secrets(&self) -> bool {
        self.has_secrets
    }

    /// The names of the fields whose values are secrets, here and in the graphs inside.
    pub(crate) fn secret_names(&self) -> std::collections::BTreeSet<&str> {
        let own = self.schema.fields().iter().filter(|field| field.secret).map(|field| &*field.name);
        own.chain(self.inner.values().flat_map(|inner| inner.secret_names())).collect()
    }

    /// The fields of a state of this kind that are not absent.
    pub(crate) fn values(&self, state: &StateCell) -> Result<Map<String, Value>, StateError> {
        // What was recorded may have fields that its schema does not tell of.
        if self.is_recorded { Ok(state.view::<Values>().to_object()) } else { state.values(&self.schema) }
    }

    /// The kind of the graph that runs at `path`, if there is one.
    pub(crate) fn at(self: &Arc<Self>, path: &Path) -> Option<Arc<Self>> {
        path.frames().iter().try_fold(Arc::clone(self), |kind, frame| kind.inner(frame.key()))
    }

    /// The kind of the graph with that key.
    pub(crate) fn inner(&self, key: &str) -> Option<Arc<Self>> {
        let inner = self.inner.get(self.key(key)).cloned();
        inner.or_else(|| self.is_recorded.then(|| Arc::new(Self::recorded(Schema::unknown(), BTreeMap::new()))))
    }

    /// The key that a graph inside has now.
    pub(crate) fn key<'k>(&'k self, key: &'k str) -> &'k str {
        self.past.renamed.get(key).map_or(key, |key| &**key)
    }

    /// The kinds of the graphs inside, by their keys.
    pub(crate) fn inners(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Self>)> {
        self.inner.iter()
    }

    /// The upgrades for the states of the graph at `path`: its own, or those of the nearest graph around it with the same type of state.
    pub(crate) fn upgrades_at(self: &Arc<Self>, path: &Path) -> Upgrades {
        let mut kinds = vec![Arc::clone(self)];
        for frame in path.frames() {
            let inner = kinds.last().and_then(|kind| kind.inner(frame.key()));
            kinds.extend(inner);
        }
        let state = kinds.last().map(|kind| kind.state.0);
        let has = |kind: &&Arc<Self>| Some(kind.state.0) == state && !kind.past.upgrades.is_empty();
        kinds.iter().rev().find(has).map(|kind| kind.past.upgrades.clone()).unwrap_or_default()
    }
}

/// The state of a graph whose type depends on which graph of a thread it is.
///
/// ```
/// use ferrata::{END, Event, Graph, Runner, START, State, View, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Count { n: u64 }
///
/// async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> {
///     Ok(Count::update().n(s.n + 1))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let inner = Graph::<Count>::new("inner").node("add", add).edge(START, "add").edge("add", END).build()?;
/// let graph = Graph::<Count>::new("outer").node("count", inner.shared()).edge(START, "count").edge("count", END).build()?;
/// let runner = Runner::new(graph, MemoryStore::new());
/// let mut events = runner.thread("t").stream(Count::update().n(1))?;
/// let mut seen = Vec::new();
/// while let Some(event) = events.next().await {
///     if let Event::InnerValues { path, state, .. } = event {
///         seen.push((path.to_string(), state.view::<Count>().unwrap().n));
///     }
/// }
/// assert_eq!(seen, [("count@1/".to_owned(), 1), ("count@1/".to_owned(), 2)]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct AnyState {
    state: StateCell,
    kind: Arc<StateKind>,
}

impl AnyState {
    pub(crate) fn new(state: StateCell, kind: Arc<StateKind>) -> Self {
        Self { state, kind }
    }

    /// The state, if it is of that type.
    pub fn view<S: State>(&self) -> Option<View<S>> {
        self.kind.other_than(TypeId::of::<S>()).is_none().then(|| self.state.view())
    }

    /// Its fields that are not absent, as JSON.
    ///
    /// # Errors
    ///
    /// A value that has no form in JSON.
    pub fn to_object(&self) -> Result<Map<String, Value>, StateError> {
        self.kind.values(&self.state)
    }
}

impl fmt::Debug for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateKind").field("name", &self.schema.name()).field("inner", &self.inner).finish_non_exhaustive()
    }
}
