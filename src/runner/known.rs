//! What a node can see of its own earlier attempts.

use super::context::Context;

impl Context {
    /// How many [effects](Self::effect) with that key are on record from earlier attempts of the task, be it in another process: those that were performed, and those
    /// that were begun. A node whose code has changed since, and that comes to fewer of them now, sees by it that it must not say that nothing was done.
    ///
    /// ```
    /// use ferrata::{Ask, Context, END, Graph, Outcome, Runner, START, State, store::MemoryStore, Answer};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Mail { before: u64 }
    /// async fn send(ctx: Context) -> ferrata::Result<MailUpdate> {
    ///     let before = ctx.effects_known("mail");
    ///     ctx.effect("mail", |_key| async { Ok(()) }).await?;
    ///     ctx.ask("more", Ask::<bool>::new("Send another one?")).await?;
    ///     Ok(Mail::update().before(before as u64))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Mail>::new("mail").node("send", send).edge(START, "send").edge("send", END).build()?;
    /// let thread = Runner::new(graph, MemoryStore::new()).thread("t");
    /// let Outcome::Waiting(questions) = thread.run(Mail::update()).await? else { panic!("it asks") };
    /// assert_eq!(thread.answer(questions[0].id, Answer::new(false)).await?.done().unwrap().before, 1);
    /// # Ok(()) }
    /// ```
    pub fn effects_known(&self, key: &str) -> usize {
        let key = self.own_key(key);
        self.attempt.start.journal.effects.iter().filter(|known| known.key == key).count()
    }

    /// Whether a [question](Self::ask) with that key was answered, or expired, before this attempt of the task: asking it once more gives the answer at once.
    ///
    /// ```
    /// use ferrata::{Answer, Ask, Context, END, Graph, Outcome, Runner, START, State, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Mail { sure: bool }
    /// async fn send(ctx: Context) -> ferrata::Result<MailUpdate> {
    ///     let was_asked = ctx.is_answered("sure");
    ///     ctx.ask("sure", Ask::<bool>::new("Send it?")).await?;
    ///     Ok(Mail::update().sure(was_asked))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Mail>::new("mail").node("send", send).edge(START, "send").edge("send", END).build()?;
    /// let thread = Runner::new(graph, MemoryStore::new()).thread("t");
    /// let Outcome::Waiting(questions) = thread.run(Mail::update()).await? else { panic!("it asks") };
    /// assert!(thread.answer(questions[0].id, Answer::new(true)).await?.done().unwrap().sure);
    /// # Ok(()) }
    /// ```
    pub fn is_answered(&self, key: &str) -> bool {
        let (key, journal) = (self.own_key(key), &self.attempt.start.journal);
        journal.answers.iter().any(|(known, ..)| *known == key) || journal.expired.iter().any(|(known, _)| *known == key)
    }
}
