//! The rolling summary as a node.

use std::sync::Arc;

use ferrata::state::{FieldRef, Message, Rule, Update};
use ferrata::{Context, IntoNode, Node, StaticState, View};

use crate::call::{calls, summary_error};
use crate::counted::TokenCache;
use crate::model::ChatModel;
use crate::rewritten::rewritten;
use crate::summary::RollingSummary;

impl RollingSummary {
    /// A node that keeps that field of the state under the budget. A conversation that fits costs no call and no change.
    ///
    /// Tokens are counted with the o200k vocabulary, each message once. Each model call is a repeatable effect by the name `summary`, so that the log says how many
    /// there were; a summary that fails changes nothing. In a field under the rule `messages`, what other nodes add in the same step stays.
    ///
    /// A run ends with the error of a summary that fails. Where the conversation should go on without it, say `.fallback(|_: &Chat, _| Chat::update())`: a
    /// [`ContextPlan`](crate::ContextPlan) leaves out what does not fit then, and the next turn tries again.
    ///
    /// ```
    /// use ferrata::state::Message;
    /// use ferrata::store::MemoryStore;
    /// use ferrata::{END, Graph, Runner, START, State};
    /// use ferrata_nodes::{Extractive, RollingSummary, Tiktoken, TokenCounter};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Chat { #[state(messages)] messages: Vec<Message> }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let summary = RollingSummary::new().budget(500).over(Chat::MESSAGES, Extractive::new());
    /// let graph = Graph::<Chat>::new("chat").node("summary", summary).edge(START, "summary").edge("summary", END).build()?;
    /// let said: Vec<_> = (0..50).map(|n| Message::user(format!("Remark {n}: the log of thread {n} is kept in order."))).collect();
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let state = runner.thread("t").run(Chat::update().messages(said)).await?.done().unwrap();
    ///
    /// let counter = Tiktoken::default();
    /// assert!(state.messages.iter().map(|m| counter.count_message(m)).sum::<usize>() <= 500);
    /// assert_eq!(state.messages[0].content, "Remark 0: the log of thread 0 is kept in order."); // the first task stays
    /// # Ok(()) }
    /// ```
    pub fn over<S: StaticState>(self, field: FieldRef<S, Vec<Message>>, model: impl ChatModel + 'static) -> Node<S> {
        let model: Arc<dyn ChatModel> = Arc::new(model);
        let counter = TokenCache::default();
        let by_id = S::schema().field(field.name()).is_some_and(|field| field.rule == Rule::Messages);
        let node = move |state: View<S>, ctx: Context| {
            let (summary, model, counter) = (self.clone(), Arc::clone(&model), counter.clone());
            async move {
                let folded = summary.fold(field.get(&state), &counter, calls("summary", &ctx, &model)).await;
                Ok(match folded.map_err(summary_error)? {
                    Some(messages) if by_id => rewritten(field.name(), field.get(&state), &messages),
                    Some(messages) => Update::new().overwrite(field.name(), &messages),
                    None => Update::new(),
                })
            }
        };
        node.into_node()
    }
}
