//! What a run is handed in and nodes work with: clients, settings. Never stored.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::context::Context;
use crate::error::NodeError;
use crate::graph::Need;

/// Something that was handed in with [`Runner::provide`](crate::Runner::provide) or [`Thread::provide`](crate::Thread::provide), as the argument of a
/// node. It is never stored.
///
/// A run in which something is missing that a node asks for is refused before anything is recorded, with the code `dependency-missing`.
///
/// ```
/// use ferrata::{Dep, END, Graph, Runner, START, State, View, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Order { id: String, price: Option<u64> }
///
/// struct Shop { prices: Vec<(&'static str, u64)> }
///
/// async fn look_up(order: View<Order>, shop: Dep<Shop>) -> ferrata::Result<OrderUpdate> {
///     Ok(Order::update().price(shop.prices.iter().find(|(id, _)| *id == order.id).map(|(_, price)| *price)))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let graph = Graph::<Order>::new("order").node("look_up", look_up).edge(START, "look_up").edge("look_up", END).build()?;
/// let runner = Runner::new(graph, MemoryStore::new());
/// assert_eq!(runner.thread("a").run(Order::update().id("7")).await.unwrap_err().code(), "dependency-missing");
///
/// let runner = runner.provide(Shop { prices: vec![("7", 42)] });
/// assert_eq!(runner.thread("a").run(Order::update().id("7")).await?.done().unwrap().price, Some(42));
/// # Ok(()) }
/// ```
pub struct Dep<T>(Arc<T>);

impl<T: 'static> Dep<T> {
    /// One of a value of one's own, for calling a node in a test.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    pub(crate) fn as_need() -> Need {
        Need { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

impl<T> Clone for Dep<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Dep<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Dep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything that is handed in, by type.
#[derive(Clone, Default)]
pub(crate) struct Dependencies(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Dependencies {
    /// A second one of the same type takes the place of the first.
    pub(crate) fn add<T: Send + Sync + 'static>(&mut self, value: T) {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn has(&self, id: TypeId) -> bool {
        self.0.contains_key(&id)
    }
}

impl Context {
    /// What was handed in of that type, for nodes that cannot take it as an argument.
    ///
    /// # Errors
    ///
    /// Nothing of that type was handed in.
    pub fn dependency<T: Send + Sync + 'static>(&self) -> Result<Dep<T>, NodeError> {
        let found = self.attempt.run.dependencies.0.get(&TypeId::of::<T>()).cloned().and_then(|any| any.downcast().ok());
        found.map(Dep).ok_or_else(|| {
            let text = format!("no {} was handed in; use `.provide(..)` on the runner or on the thread", type_name::<T>());
            NodeError::new(text).deterministic()
        })
    }
}
