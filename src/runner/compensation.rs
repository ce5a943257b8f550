//! Compensation: how a graph says what undoes its effects, and how a thread is told to.

use std::future::Future;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::Context;
use super::effect::Effect;
use super::error::Error;
use super::outcome::Outcome;
use super::stream::Announcer;
use super::thread::Thread;
use crate::error::NodeError;
use crate::graph::{Compensates, GraphBuilder, IntoNode};
use crate::id::NodeName;
use crate::log::Compensation;
use crate::machine::Begin;
use crate::policy::Retry;
use crate::state::{State, Update, to_value};

/// How often a compensation is tried at most, where its failures are transient.
const ATTEMPTS_MAX: u32 = 3;

/// An effect that is to be compensated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastEffect {
    /// The node that performed it.
    pub node: NodeName,
    /// What the node calls it.
    pub effect: String,
    /// The key that it was performed under.
    pub idempotency_key: String,
    given: Value,
    result: Option<Value>,
}

impl PastEffect {
    /// What it gave. Nothing if it is not known whether it was performed: only what [reconciles](GraphBuilder::reconcile) is called then.
    pub fn result<T: DeserializeOwned>(&self) -> Result<Option<T>, NodeError> {
        self.result.as_ref().map(|value| self.read("result", value)).transpose()
    }

    /// What the node handed over for this case, with [`Effect::compensate`].
    pub fn given<T: DeserializeOwned>(&self) -> Result<T, NodeError> {
        self.read("given value", &self.given)
    }

    fn read<T: DeserializeOwned>(&self, what: &str, value: &Value) -> Result<T, NodeError> {
        let unfit = |error| NodeError::new(format!("the {what} of effect \"{}\" is not what is expected: {error}", self.effect));
        T::deserialize(value).map_err(|error| unfit(error).deterministic())
    }
}

impl<S: State> GraphBuilder<S> {
    /// Declares what undoes effects that name it with [`Effect::compensate`]: a function of the effect and an idempotency key of its own. It is
    /// called for effects that certainly were performed, is itself an effect, and what it leaves in doubt a person is asked about. After a
    /// transient error it is tried three times in all; when it has failed for good the run fails, and resuming the thread goes on with it.
    ///
    /// Effects in graphs inside find it here too: compensations are those of the outermost graph.
    ///
    /// ```
    /// use ferrata::{Context, END, Graph, NodeError, PastEffect, Runner, START, State, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Trip { hotel: Option<String> }
    ///
    /// async fn book(ctx: Context) -> ferrata::Result<TripUpdate> {
    ///     let hotel = ctx.effect("hotel", |_key| async { Ok("room 7".to_owned()) }).compensate("cancel", "Alpenrose").await?;
    ///     Ok(Trip::update().hotel(hotel))
    /// }
    ///
    /// async fn fly() -> ferrata::Result<TripUpdate> {
    ///     Err(NodeError::new("no seats").deterministic())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let (told, hear) = std::sync::mpsc::channel();
    /// let cancel = move |done: PastEffect, _key: String| {
    ///     let told = told.clone();
    ///     async move {
    ///         told.send(format!("cancel {} in the {}", done.result::<String>()?.unwrap_or_default(), done.given::<String>()?))?;
    ///         Ok(())
    ///     }
    /// };
    /// let graph = Graph::<Trip>::new("trip")
    ///     .node("book", book)
    ///     .node("fly", fly)
    ///     .undo("cancel", cancel)
    ///     .edge(START, "book")
    ///     .edge("book", "fly")
    ///     .edge("fly", END)
    ///     .build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let thread = runner.thread("t");
    /// assert_eq!(thread.run(Trip::update()).await.unwrap_err().code(), "node-failed");
    /// thread.compensate().await?;
    /// assert_eq!(hear.try_iter().collect::<Vec<_>>(), ["cancel room 7 in the Alpenrose"]);
    /// assert_eq!(thread.progress().await?.compensated.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn undo<F, Fut>(self, name: &str, undo: F) -> Self
    where
        F: Fn(PastEffect, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), NodeError>> + Send + 'static,
    {
        self.compensating(name, undo, Compensates::Undo)
    }

    /// As [`undo`](Self::undo), for what looks at what is there first: fills in what is missing, removes what is there twice. It is also called for effects of
    /// which nobody knows whether they were performed, which are settled by it, and it may be called again after a crash.
    pub fn reconcile<F, Fut>(self, name: &str, reconcile: F) -> Self
    where
        F: Fn(PastEffect, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), NodeError>> + Send + 'static,
    {
        self.compensating(name, reconcile, Compensates::Reconcile)
    }

    fn compensating<F, Fut>(self, name: &str, compensate: F, how: Compensates) -> Self
    where
        F: Fn(PastEffect, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), NodeError>> + Send + 'static,
    {
        let compensate = Arc::new(compensate);
        let run = move |past: PastEffect, context: Context| {
            let compensate = Arc::clone(&compensate);
            async move {
                let effect = context.effect("compensate", move |key| compensate(past, key));
                match how {
                    Compensates::Undo => effect.await?,
                    Compensates::Reconcile => effect.repeatable().await?,
                }
                Ok(Update::default())
            }
        };
        self.compensation(name, run.into_node().retry(Retry::transient(ATTEMPTS_MAX)), how)
    }
}

impl<T> Effect<'_, T> {
    /// Names what compensates this effect when the thread is given up, as [`GraphBuilder::undo`] or [`GraphBuilder::reconcile`] declared it in the
    /// outermost graph, and hands it a value to work with. It also gets the effect's result.
    ///
    /// A name that is not declared is an error before anything is performed. A [`repeatable`](Self::repeatable) effect is known to the log only when it has a
    /// result: one that was performed just before the process died is compensated only after the thread has been resumed and it was done again.
    pub fn compensate<G: Serialize + ?Sized>(mut self, by: &str, given: &G) -> Self {
        match to_value(given) {
            Ok(given) => self.terms.compensation = Some(Compensation { by: by.into(), given }),
            Err(error) => {
                let text = format!("what effect \"{}\" hands to \"{by}\" cannot be recorded: {error}", self.key);
                self.refused = Some(NodeError::new(text).deterministic());
            }
        }
        self
    }
}

impl<S: State> Thread<S> {
    /// Gives the thread up: what is due is dropped, open questions are closed, and what the thread did outside since its last input is compensated, the
    /// newest effect first, for those effects that [say how](Effect::compensate). Each is a step of its own, recorded before the next one begins; after a
    /// crash or a failure this, or [`resume`](Self::resume), goes on where it stood. The state stays as it is.
    ///
    /// [`progress`](Self::progress) tells what was compensated and what still has to be.
    ///
    /// # Errors
    ///
    /// No such thread; an effect of which nobody knows whether it was performed, if it is not one to be reconciled (`in-doubt`: answer first); a
    /// compensation that fails for good.
    ///
    /// # Not guaranteed
    ///
    /// - An effect that names no compensation stays as it is.
    /// - Lines of history know nothing of each other: what was done before a fork is compensated by each line that is told to.
    pub async fn compensate(&self) -> Result<Outcome<S>, Error> {
        self.spawn(Begin::Compensate { why: None }, Announcer::silent())?.wait().await
    }
}
