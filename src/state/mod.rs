//! What a thread knows: its state, what changes it, and how changes are merged.

mod change;
mod fingerprint;
mod function;
mod kind;
mod merge;
mod message;
mod schema;
mod secret;
mod size;
pub mod typed;
mod upgrade;
mod value;
mod values;

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use change::{Change, FieldName, Op, Update};
pub(crate) use fingerprint::fingerprint;
pub(crate) use function::panic_text;
pub use function::{FunctionError, MergeFunction, MergeOutcome};
pub use kind::AnyState;
pub(crate) use kind::{Past, StateKind};
pub(crate) use merge::{check, give_ids, resolve};
pub use message::{HasId, Message, Role, ToolCall};
pub use schema::{Field, Rule, Schema};
pub(crate) use secret::{is_empty, is_sealed, sealed, take_sealed};
pub(crate) use size::{changes_bytes, state_bytes, value_bytes};
pub(crate) use upgrade::{Fitted, Unfit, UpgradeFn, Upgrades};
pub(crate) use value::is_within_depth;
pub use value::{DEPTH_MAX, ValueError, to_value};
pub use values::Values;

/// The state of a thread.
///
/// Usually derived, on a struct that is also `Serialize`, `Deserialize`, `JsonSchema`, `Clone` and `Default`. The trait itself needs no static shape: [`Values`] is a state whose fields are known only at run time.
///
/// # What the derive makes
///
/// For each field, methods on the update type `RefundUpdate`, which `Refund::update()` starts:
///
/// | field | methods |
/// | --- | --- |
/// | `order: String` | `.order(value)` |
/// | `#[state(sum)] total: u64`, also `max`, `min` | `.total(operand)`, `.set_total(value)` |
/// | `#[state(with = "longer")] best: String`, a function of one's own | `.best(operand)`, `.set_best(value)` |
/// | `#[state(append)] notes: Vec<String>` | `.note(one)`, `.notes(many)`, `.set_notes(all)` |
/// | `#[state(merge)] prices: BTreeMap<String, u64>` | `.price(key, one)`, `.prices(many)`, `.remove_prices(keys)`, `.set_prices(all)` |
/// | `#[state(messages)] messages: Vec<Message>` | `.message(one)`, `.messages(many)`, `.remove_messages(ids)`, `.set_messages(all)` |
///
/// `secret`, alone or beside a rule, marks a field whose values no store may see: `#[state(append, secret)]`, see
/// [`Runner::secrets`](crate::Runner::secrets).
///
/// Values are taken by `Into`, numbers and `bool` as they are; an `Option` is cleared with `.amount_cents(None::<u64>)`. The method for one item
/// is the field's name without its last `s`, or `push_log` where there is none. A list is replaced by `.set_notes(all)`.
///
/// The operands of one step go into a function in the order of the tasks, whichever finished first: `fn longer(String, String) -> String`
/// takes the field's value and an operand, and returns the new value or a `Result` of it. A path such as `Option::or` is one, too. Where the
/// operand is of another type than the field, say so: `#[state(with = "vote", operand = "String")]`. The path as it is written is what a
/// store keeps of the function. [`MergeFunction`] tells what it may and may not do.
///
/// It also makes a constant `Refund::NOTES`, a [`FieldRef`] that nodes such as a rolling summary take.
///
/// ```
/// use ferrata::{State, StaticState};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Refund {
///     order: String,
///     amount_cents: Option<u64>, // not known yet is not zero
///     #[state(append)]
///     notes: Vec<String>,
/// }
///
/// let update = Refund::update().amount_cents(4_200).note("order 7 costs 42.00");
/// let mut state = Refund::default();
/// for change in update.into_changes().unwrap() {
///     state.apply(&change).unwrap();
/// }
/// assert_eq!(state.amount_cents, Some(4_200));
/// assert_eq!(state.notes, ["order 7 costs 42.00"]);
/// ```
///
/// # Parameters
///
/// The struct may have type and constant parameters, and its update type has the same. They need what the struct's other derives and the
/// fields' merge rules ask of them: a function over `Items<T>` says `where T: StoredField + JsonSchema + Clone + Default + Send + Sync +
/// 'static`, with [`typed::StoredField`]. A state has no lifetime parameters: it outlives every run.
///
/// # Versions
///
/// `#[state(version = 2)]` on the struct says that it is not the first version of this state; without it, it is. What is stored in an earlier one goes
/// through the upgrades of the graph, see [`GraphBuilder::upgrade`](crate::GraphBuilder::upgrade).
///
/// # Another name for this crate
///
/// Where ferrata is renamed in `Cargo.toml`, or comes by way of another crate, the struct says so: `#[state(crate = "::path::to::ferrata")]`, and
/// an enum that is a route `#[route(crate = "..")]`.
///
/// # A function as merge rule
///
///
/// ```
/// use std::collections::BTreeMap;
///
/// use ferrata::{END, Graph, Runner, START, State, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// fn count(mut votes: BTreeMap<String, u64>, vote: String) -> BTreeMap<String, u64> {
///     *votes.entry(vote).or_default() += 1;
///     votes
/// }
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Poll {
///     #[state(with = "count", operand = "String")]
///     votes: BTreeMap<String, u64>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let graph = Graph::<Poll>::new("poll")
///     .node("ann", || async { Ok(Poll::update().votes("yes")) })
///     .node("bob", || async { Ok(Poll::update().votes("yes")) }) // at the same time
///     .edge(START, "ann")
///     .edge(START, "bob")
///     .edge("ann", END)
///     .edge("bob", END)
///     .build()?;
/// let poll = Runner::new(graph, MemoryStore::new()).thread("t").run(Poll::update().votes("no")).await?.done().unwrap();
/// assert_eq!(poll.votes, BTreeMap::from([("no".to_owned(), 1), ("yes".to_owned(), 2)]));
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state",
    label = "not a state",
    note = "put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct"
)]
pub trait State: Clone + Send + Sync + 'static {
    /// What nodes return and runs take: one operation per field.
    type Update: From<Update> + Into<Update> + Clone + Send + 'static;

    /// The state of a thread that has no input yet.
    fn empty(schema: &Schema) -> Self;

    /// Reads a state from its fields.
    fn decode(schema: &Schema, values: Map<String, Value>) -> Result<Self, StateError>;

    /// Applies one resolved change.
    fn apply(&mut self, change: &Change) -> Result<(), StateError>;

    /// One field as JSON; `None` if there is no such field, or it is absent.
    fn read(&self, field: &str) -> Result<Option<Value>, StateError>;

    /// The same state with some fields absent, for nodes that see only a part. A state whose fields cannot be absent shows all of them.
    #[must_use]
    fn only(&self, keep: &dyn Fn(&str) -> bool) -> Self {
        let _ = keep;
        self.clone()
    }
}

/// A state type whose schema is known at compile time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no state with a schema of its own",
    label = "no schema",
    note = "put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on a struct of your own",
    note = "a graph over `Values`, with fields that are known at run time only, begins with `GraphBuilder::with_schema`"
)]
pub trait StaticState: State {
    /// The fields, their merge rules, and the JSON Schema.
    fn schema() -> Schema;
}

/// A field of a state type, to hand to ready-made nodes.
pub struct FieldRef<S, T> {
    name: &'static str,
    get: fn(&S) -> &T,
}

impl<S, T> FieldRef<S, T> {
    /// Made by the derive.
    pub const fn new(name: &'static str, get: fn(&S) -> &T) -> Self {
        Self { name, get }
    }

    /// The field's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The field's value.
    pub fn get<'s>(&self, state: &'s S) -> &'s T {
        (self.get)(state)
    }
}

impl<S, T> Clone for FieldRef<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for FieldRef<S, T> {}

impl<S, T> fmt::Debug for FieldRef<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FieldRef").field(&self.name).finish()
    }
}

/// A shared, unchanging view of the state as it was when the step began. Cloning it copies a pointer.
///
/// ```
/// # use ferrata::View;
/// let view = View::new(vec![1, 2, 3]);
/// assert_eq!(view.len(), 3);
/// ```
pub struct View<S>(Arc<S>);

impl<S> View<S> {
    /// A view of a value of one's own, for calling a node in a test.
    pub fn new(state: S) -> Self {
        Self(Arc::new(state))
    }
}

impl<S> Clone for View<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Deref for View<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: fmt::Debug> fmt::Debug for View<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What can go wrong between a state and its changes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A change names a field that the state does not have.
    #[error("the state has no field `{field}`; it has: {known}")]
    UnknownField {
        /// The name that was given.
        field: String,
        /// The fields there are.
        known: String,
    },
    /// The operation does not fit the field's merge rule.
    #[error("`{verb}` does not fit field `{field}`; use the method that the update type has for it")]
    Misfit {
        /// The field.
        field: String,
        /// The operation.
        verb: &'static str,
    },
    /// Two tasks of one step wrote a field that holds one value.
    #[error(
        "field `{field}` was written by {first} and by {second} in the same step; let one of them write it, run them one after the \
         other, or give the field a merge rule such as #[state(append)]"
    )]
    Conflict {
        /// The field.
        field: String,
        /// One writer.
        first: String,
        /// The other.
        second: String,
    },
    /// A message was to be removed that is not there.
    #[error("field `{field}` has no message with id `{id}` to remove")]
    UnknownMessage {
        /// The field.
        field: String,
        /// The id.
        id: String,
    },
    /// A field's merge function cannot take an operand, panics, or fails. Nothing was merged.
    #[error("function `{function}` of field `{field}` {source}")]
    Function {
        /// The field.
        field: String,
        /// The function's name.
        function: String,
        /// What went wrong.
        source: FunctionError,
    },
    /// A value that cannot be stored.
    #[error("a value cannot be stored: {0}")]
    Value(#[from] ValueError),
    /// A stored value does not fit the Rust type.
    #[error("field `{field}` cannot be read: {source}")]
    Decode {
        /// The field.
        field: String,
        /// What serde says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The stored state does not fit the Rust type.
    #[error("the stored state has the fields {stored}, the program's `{name}` has {known}: {source}")]
    Shape {
        /// Name of the state type.
        name: String,
        /// The fields in the store.
        stored: String,
        /// The fields of the type.
        known: String,
        /// What serde says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StateError {
    /// The stored fields do not make a state.
    pub(crate) fn shape(schema: &Schema, stored: &[String], source: serde_json::Error) -> Self {
        Self::Shape {
            name: schema.name().to_owned(),
            stored: stored.join(", "),
            known: schema.field_names(),
            source: source.into(),
        }
    }
}

/// A state whose type is not known: what machine, log and fold see.
pub(crate) trait StateObject: Any + Send + Sync {
    fn apply(&mut self, change: &Change) -> Result<(), StateError>;
    fn read(&self, field: &str) -> Result<Option<Value>, StateError>;
    fn duplicate(&self) -> Arc<dyn StateObject>;
}

impl<S: State> StateObject for S {
    fn apply(&mut self, change: &Change) -> Result<(), StateError> {
        State::apply(self, change)
    }

    fn read(&self, field: &str) -> Result<Option<Value>, StateError> {
        State::read(self, field)
    }

    fn duplicate(&self) -> Arc<dyn StateObject> {
        Arc::new(self.clone())
    }
}

/// Holds a state of any type, shared with the views of it.
#[derive(Clone)]
pub(crate) struct StateCell(Arc<dyn StateObject>);

impl StateCell {
    pub(crate) fn new<S: State>(state: S) -> Self {
        Self(Arc::new(state))
    }

    /// Changes the state in place; copies it first only if somebody still holds a view. `schema` is that of the state.
    pub(crate) fn apply(&mut self, schema: &Schema, changes: &[Change]) -> Result<(), StateError> {
        if changes.is_empty() {
            return Ok(());
        }
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = self.0.duplicate();
        }
        let state = Arc::get_mut(&mut self.0).expect("a fresh copy has one owner");
        changes.iter().try_for_each(|change| state.apply(change)).map_err(|error| error.hiding(schema))
    }

    /// Writes what one writer says, as a merge of it alone would.
    pub(crate) fn write(&mut self, schema: &Schema, changes: &[Change]) -> Result<(), StateError> {
        let resolved = resolve(schema, self.object(), &[("the task", changes)])?;
        let plain: Vec<Change> =
            changes.iter().filter(|change| resolved.iter().all(|r| r.field != change.field)).cloned().collect();
        self.apply(schema, &plain)?;
        self.apply(schema, &resolved)
    }

    pub(crate) fn object(&self) -> &dyn StateObject {
        &*self.0
    }

    /// The fields that are not absent.
    pub(crate) fn values(&self, schema: &Schema) -> Result<Map<String, Value>, StateError> {
        let mut values = Map::new();
        for field in schema.fields() {
            if let Some(value) = self.0.read(&field.name)? {
                values.insert(field.name.clone(), value);
            }
        }
        Ok(values)
    }

    pub(crate) fn view<S: State>(&self) -> View<S> {
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn StateObject>::clone(&self.0);
        View(any.downcast().expect("a graph's threads hold its state type"))
    }
}

impl fmt::Debug for StateCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateCell")
    }
}
