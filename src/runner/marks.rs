//! How far a node has come, by its own words.

use std::future::pending;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use crate::error::NodeError;
use crate::machine::Note;
use crate::state::{to_value, value_bytes};

impl Context {
    /// Notes how far the node has come, durably: a node of an hour that is cut off, fails or is asked to try again need not begin at zero. The last
    /// value of each key counts. Returns when it is recorded, in every durability.
    ///
    /// Marks belong to the task: they are gone when its step is merged, and another line of history begins without them. Each is a record of its own
    /// in the log, so mark every minute or every hundred rows, and not every row.
    ///
    /// ```
    /// # use ferrata::{Context, END, Graph, NodeError, Retry, IntoNode, Runner, START, State, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Table { rows: u64 }
    ///
    /// async fn read(ctx: Context) -> ferrata::Result<TableUpdate> {
    ///     for row in ctx.marked::<u64>("row")?.unwrap_or(0)..1_000 {
    ///         if row % 100 == 0 {
    ///             ctx.mark("row", &row).await?;
    ///         }
    ///         if row == 450 && ctx.attempt() == 1 {
    ///             return Err(NodeError::new("the line went dead").transient());
    ///         }
    ///     }
    ///     Ok(Table::update().rows(ctx.marked::<u64>("row")?.unwrap_or(0)))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Table>::new("table").node("read", read.retry(Retry::transient(2))).edge(START, "read").edge("read", END).build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// assert_eq!(runner.thread("t").run(Table::update()).await?.done().unwrap().rows, 900);
    /// # Ok(()) }
    /// ```
    pub async fn mark<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), NodeError> {
        let (key, value) = (self.own_key(key), to_value(value)?);
        self.attempt.run.check_bytes(|| format!("the mark \"{key}\""), value_bytes(&value))?;
        // Also inside an effect that has to come to its end while the node waits for a person.
        if !self.attempt.note(Note::Mark { key: key.clone(), value: value.clone() }).await {
            return pending().await;
        }
        let mut control = self.attempt.lock();
        control.marks.retain(|(known, _)| *known != key);
        control.marks.push((key, value));
        Ok(())
    }

    /// What [`mark`](Self::mark) noted last under this key, in this attempt or an earlier one; nothing at the beginning.
    ///
    /// # Errors
    ///
    /// It is no `T`: the program has changed.
    pub fn marked<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, NodeError> {
        let key = self.own_key(key);
        let control = self.attempt.lock();
        let value = control
            .marks
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| value)
            .or_else(|| self.attempt.start.journal.mark(&key));
        value.map(|value| T::deserialize(value)).transpose().map_err(|error| {
            NodeError::new(format!("the mark \"{key}\" does not fit what the node expects now: {error}")).deterministic()
        })
    }
}
