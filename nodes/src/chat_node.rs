//! A node that lets a model go on with a conversation.

use std::sync::Arc;

use ferrata::state::{FieldRef, Message, Update};
use ferrata::{Context, IntoNode, Node, NodeError, State, View};

use crate::call::{call, call_streamed};
use crate::context::ContextPlan;
use crate::model::{ChatModel, ChatRequest, ToolSpec};
use crate::rewritten::rewritten;
use crate::tools::settled;

/// A node that sends a conversation to a model and adds the answer to it.
///
/// The call is a repeatable effect: an answer that was recorded is not paid for again. Retries are the business of the node's policy, and of nobody
/// else: the models of this crate send each request once.
///
/// A call of a tool that has no result, because new input came before it had one, gets one that says so, in the request and in the state: endpoints
/// refuse a conversation in which one is missing.
///
/// What is added is the text, also that of a refusal, and one that ran into its limit: why an answer ended is in the log, and in the reply of
/// [`call`] for a node of one's own.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata::store::MemoryStore;
/// use ferrata::{END, Graph, IntoNode, Retry, Runner, START, State};
/// use ferrata_nodes::{ChatNode, Scripted};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Chat { #[state(messages)] messages: Vec<Message> }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let chat = ChatNode::new(Scripted::new([Ok("Forty-two.")])).over(Chat::MESSAGES).retry(Retry::transient(3));
/// let graph = Graph::<Chat>::new("chat").node("chat", chat).edge(START, "chat").edge("chat", END).build()?;
/// let runner = Runner::new(graph, MemoryStore::new());
/// let state = runner.thread("t").run(Chat::update().message(Message::user("What is it?"))).await?.done().unwrap();
/// assert_eq!(state.messages[1].content, "Forty-two.");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChatNode {
    model: Arc<dyn ChatModel>,
    instructions: Option<String>,
    tools: Vec<ToolSpec>,
    output_tokens_max: Option<u32>,
    streams: bool,
    context: Option<ContextPlan>,
}

impl ChatNode {
    /// A node that asks this model.
    pub fn new(model: impl ChatModel + 'static) -> Self {
        let (instructions, tools, output_tokens_max) = (None, Vec::new(), None);
        Self { model: Arc::new(model), instructions, tools, output_tokens_max, streams: false, context: None }
    }

    /// A system message that goes before the conversation and is not part of it.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Tells the model of these tools: mostly [`ToolsNode::specs`](crate::ToolsNode::specs), whose node calls those that the model wants called.
    pub fn tools(mut self, tools: impl IntoIterator<Item = ToolSpec>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// The most tokens the answer may have; the model's own limit if not set.
    pub fn output_tokens_max(mut self, tokens: u32) -> Self {
        self.output_tokens_max = Some(tokens);
        self
    }

    /// Tells whoever watches the run of the answer as it comes; see [`call_streamed`].
    pub fn streamed(mut self) -> Self {
        self.streams = true;
        self
    }

    /// Sends what the plan makes of the conversation, and not all of it; a conversation that the plan cannot fit is a deterministic error, before anything is
    /// sent. What was wrong with the node's last answer ([`Context::feedback`]) is shown to the model.
    ///
    /// ```
    /// use ferrata::state::Message;
    /// use ferrata::store::MemoryStore;
    /// use ferrata::{END, Graph, Runner, START, State};
    /// use ferrata_nodes::{ChatNode, ContextPlan, Scripted, Tiktoken, TokenCounter};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Chat { #[state(messages)] messages: Vec<Message> }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let model = std::sync::Arc::new(Scripted::new([Ok("Forty-two.")]));
    /// let chat = ChatNode::new(model.clone()).context(ContextPlan::new(200)).over(Chat::MESSAGES);
    /// let graph = Graph::<Chat>::new("chat").node("chat", chat).edge(START, "chat").edge("chat", END).build()?;
    /// let said = (0..100).map(|n| Message::user(format!("Remark {n}"))).collect::<Vec<_>>();
    /// let state = Runner::new(graph, MemoryStore::new()).thread("t").run(Chat::update().messages(said)).await?.done().unwrap();
    /// assert_eq!(state.messages.len(), 101);
    /// assert!(Tiktoken::default().count_request(&model.requests()[0]) <= 200);
    /// # Ok(()) }
    /// ```
    pub fn context(mut self, plan: ContextPlan) -> Self {
        self.context = Some(plan);
        self
    }

    /// The node, over that field of the state.
    pub fn over<S: State>(self, field: FieldRef<S, Vec<Message>>) -> Node<S> {
        let node = move |state: View<S>, ctx: Context| {
            let this = self.clone();
            async move {
                let settled = settled(field.get(&state));
                let request = this.request(settled.as_ref().unwrap_or_else(|| field.get(&state)), &ctx)?;
                let reply = if this.streams {
                    call_streamed(&ctx, &*this.model, &request).await?
                } else {
                    call(&ctx, &*this.model, &request).await?
                };
                let reply = reply.into_message();
                Ok(match settled {
                    Some(before) => rewritten(field.name(), field.get(&state), &[before, vec![reply]].concat()),
                    None => Update::new().put(field.name(), &[reply]),
                })
            }
        };
        node.into_node()
    }

    fn request(&self, messages: &[Message], ctx: &Context) -> Result<ChatRequest, NodeError> {
        let request = ChatRequest::new(self.instructions.as_ref().map(Message::system)).tools(self.tools.clone());
        let mut request = self.output_tokens_max.into_iter().fold(request, ChatRequest::output_tokens_max);
        let Some(plan) = &self.context else {
            request.messages.extend_from_slice(messages);
            return Ok(request);
        };
        let plan = ctx.feedback().into_iter().fold(plan.clone(), |plan, wrong| plan.feedback(wrong.to_string()));
        let context = plan.assemble(messages, request).map_err(|error| NodeError::from(error).deterministic())?;
        Ok(context.request)
    }
}
