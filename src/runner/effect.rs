//! Effects as nodes declare them; how they are performed is told by `perform.rs`.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;

use super::context::{Attempt, Use};
use super::perform::perform;
use crate::error::NodeError;
use crate::id::EffectId;
use crate::log::{Arguments, EffectTerms, InDoubt};
use crate::state::to_value;

/// An effect that is performed when it is awaited. Made by [`Context::effect`](crate::Context::effect).
#[must_use = "an effect is performed when it is awaited"]
pub struct Effect<'f, T> {
    pub(super) attempt: Arc<Attempt>,
    pub(super) key: Arc<str>,
    /// Taken out when it is performed.
    pub(super) perform: Option<Perform<'f, T>>,
    pub(super) check: Option<Check<'f, T>>,
    pub(super) repeatable: bool,
    pub(super) tokens: Option<Count<T>>,
    pub(super) terms: EffectTerms,
    /// What it was given cannot be recorded.
    pub(super) refused: Option<NodeError>,
}

type Count<T> = fn(&T) -> (u64, u64);

type Performing<'f, T> = Pin<Box<dyn Future<Output = Result<T, NodeError>> + Send + 'f>>;
type Perform<'f, T> = Box<dyn FnOnce(String) -> Performing<'f, T> + Send + 'f>;
type Check<'f, T> = Box<dyn Fn(String) -> Performing<'f, Performed<T>> + Send + Sync + 'f>;

/// Whether an effect was performed, as a [check](Effect::check) found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Performed<T> {
    /// It was, and this is its result.
    Yes(T),
    /// It certainly was not, and will not be by itself any more: it may be performed.
    No,
    /// There is no telling: a person is asked.
    Unknown,
}

impl<'f, T> Effect<'f, T> {
    pub(crate) fn new<F, Fut>(attempt: Arc<Attempt>, key: Arc<str>, perform: F) -> Self
    where
        F: FnOnce(String) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, NodeError>> + Send + 'f,
    {
        let perform: Perform<'f, T> = Box::new(move |key| Box::pin(perform(key)));
        let terms = EffectTerms::default();
        Self { attempt, key, perform: Some(perform), check: None, repeatable: false, tokens: None, terms, refused: None }
    }

    /// Says that it may simply be done again if its result was not recorded: a read, a model call, or a call that is safe by its key.
    ///
    /// It is never in doubt, and costs one append in place of two.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Lets a function find out whether the effect was performed, where that is not known: by asking the other side about the idempotency key.
    /// Without one, a person is asked.
    ///
    /// The function is called in the place of the effect when the node runs again after a crash, a time-out or a cancelled run, and at once when
    /// `perform` fails with an error that does not say [`not_performed`](NodeError::not_performed). Nothing is performed before it says
    /// [`Performed::No`]. If it fails itself, the attempt fails with a transient error, to be tried again as the node's policy says, and else a person
    /// is asked. It has no part in an effect that is [`repeatable`](Self::repeatable).
    ///
    /// # Not guaranteed
    ///
    /// The other side may still be at work on the first try: `Performed::No` has to mean that nothing will come of it any more.
    ///
    /// ```
    /// # use ferrata::{Context, END, Graph, NodeError, Performed, Runner, START, State, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Order { receipt: Option<String> }
    /// async fn pay(ctx: Context) -> ferrata::Result<OrderUpdate> {
    ///     let pay = |_key| async { Err(NodeError::new("the connection broke after the bank had paid")) };
    ///     let look_up = |key: String| async move { Ok(Performed::Yes(format!("receipt for {}", &key[..0]))) };
    ///     Ok(Order::update().receipt(ctx.effect("pay", pay).check(look_up).await?))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Order>::new("order").node("pay", pay).edge(START, "pay").edge("pay", END).build()?;
    /// let order = Runner::new(graph, MemoryStore::new()).thread("o").run(Order::update()).await?.done().unwrap();
    /// assert_eq!(order.receipt.as_deref(), Some("receipt for "));
    /// # Ok(()) }
    /// ```
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'f,
        Fut: Future<Output = Result<Performed<T>, NodeError>> + Send + 'f,
    {
        self.check = Some(Box::new(move |key| Box::pin(check(key))));
        self.terms.in_doubt = InDoubt::Check;
        self
    }

    /// Says what the effect is performed with. A fingerprint is recorded; if the node comes back with other arguments for an effect that was started
    /// or performed, it fails with an error that shows both (code `effect-arguments`), and gets no old result for them.
    pub fn arguments<A: Serialize + ?Sized>(mut self, arguments: &A) -> Self {
        match to_value(arguments) {
            Ok(value) => self.terms.arguments = Some(Arguments::of(&value)),
            Err(error) => {
                let text = format!("the arguments of effect \"{}\" cannot be recorded: {error}", self.key);
                self.refused = Some(NodeError::new(text).deterministic());
            }
        }
        self
    }

    /// Says how many tokens it took, as (sent, written), for the report.
    pub fn tokens(mut self, count: fn(&T) -> (u64, u64)) -> Self {
        self.tokens = Some(count);
        self
    }
}

impl<T> fmt::Debug for Effect<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effect").field("key", &self.key).field("repeatable", &self.repeatable).finish_non_exhaustive()
    }
}

impl<'f, T> IntoFuture for Effect<'f, T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'f,
{
    type Output = Result<T, NodeError>;
    type IntoFuture = Performing<'f, T>;

    fn into_future(self) -> Self::IntoFuture {
        let occurrence = self.attempt.next_use(Use::Effect, &self.key);
        let id = EffectId { task: self.attempt.start.task.clone(), key: Arc::clone(&self.key), occurrence };
        let span = tracing::info_span!("effect", key = &*self.key, occurrence);
        Box::pin(perform(self, id).instrument(span))
    }
}
