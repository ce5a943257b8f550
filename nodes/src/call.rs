//! Model calls inside nodes: each one an effect, so that an answer that was recorded is not paid for again.

use std::sync::Arc;

use ferrata::state::Message;
use ferrata::{Class, Context, NodeError};
use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::model::{ChatModel, ChatReply, ChatRequest, Delta, Usage};
use crate::summary::{RollingSummary, SummaryError, is_summary};
use crate::tokens::{Tiktoken, TokenCounter};

/// Calls the model once, as a repeatable effect of the node: when the node runs again, the recorded answer comes back, and in a later round of
/// [`verify`](ferrata::Node::verify) the same request is not paid for again. What it cost in tokens goes to the thread's report: by the endpoint's word, and where
/// it says nothing, counted ([`Usage::counted`](crate::Usage::counted)). An answer that was of no use and was paid for all the same is in the report, too.
///
/// Not guaranteed: if the process dies between the answer and its record, the request is sent again.
///
/// # Errors
///
/// What the model says, classified for the node's retry policy: transient ones as transient, with the delay that was asked for; a key that is wrong and credit
/// that is spent as terminal; all others as deterministic.
pub async fn call(ctx: &Context, model: &dyn ChatModel, request: &ChatRequest) -> Result<ChatReply, NodeError> {
    let send = |_key: String| async { known(ctx, model.chat(request).await, model, request) };
    ctx.effect("chat", send).repeatable().arguments(request).tokens(tokens).await
}

/// As [`call`] under that name in the log, for an answer that has to be of some kind. One that is not fails inside its effect: recorded, it would come back
/// whenever the thread goes on. What it cost is booked on the attempt.
pub(crate) async fn call_checked(
    name: &str,
    ctx: &Context,
    model: &dyn ChatModel,
    request: &ChatRequest,
    check: impl Fn(&ChatReply) -> Result<(), NodeError> + Send + Sync,
) -> Result<ChatReply, NodeError> {
    let (check, booked) = (&check, ctx);
    let send = |_key: String| async move {
        let reply = known(booked, model.chat(request).await, model, request)?;
        if let Err(error) = check(&reply) {
            let (read, written) = tokens(&reply);
            booked.spend_tokens(read, written);
            return Err(error);
        }
        Ok(reply)
    };
    ctx.effect(name, send).repeatable().arguments(request).tokens(tokens).await
}

async fn call_for_summary(
    name: &str,
    ctx: &Context,
    model: &dyn ChatModel,
    request: &ChatRequest,
) -> Result<ChatReply, NodeError> {
    let no_summary = |what| NodeError::new(format!("the model answered with {what} instead of a summary")).deterministic();
    call_checked(name, ctx, model, request, |reply| is_summary(request, reply).map_err(no_summary)).await
}

/// As [`call`], and tells whoever watches the run of the answer as it comes: as [`ChatDelta`]s, by [`Context::emit`]. Nothing of that is recorded; an answer that
/// comes from the record is not told again.
///
/// # Errors
///
/// As [`call`]. An answer that broke off has been shown in part by then.
pub async fn call_streamed(ctx: &Context, model: &dyn ChatModel, request: &ChatRequest) -> Result<ChatReply, NodeError> {
    let send = |_key: String| async {
        let began = ChatDelta::Began { attempt: ctx.attempt() };
        ctx.emit(&began)?;
        let mut tell = |delta: Delta<'_>| {
            let delta = match delta {
                Delta::Anew => began.clone(),
                Delta::Text(text) => ChatDelta::Text(text.to_owned()),
                Delta::Reasoning(text) => ChatDelta::Reasoning(text.to_owned()),
            };
            // Two texts can always be stored.
            let _ = ctx.emit(&delta);
        };
        let answered = model.chat_streamed(request, &mut tell).await;
        known(ctx, answered, model, request)
    };
    ctx.effect("chat", send).repeatable().arguments(request).tokens(tokens).await
}

/// What [`call_streamed`] tells whoever watches the run, as the value of an [`Event::Custom`](ferrata::Event::Custom).
///
/// ```
/// use ferrata_nodes::ChatDelta;
/// let told = serde_json::json!({"chat_text": "Hello"});
/// assert_eq!(serde_json::from_value::<ChatDelta>(told).unwrap(), ChatDelta::Text("Hello".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChatDelta {
    /// An answer begins. What was told before is void: by an earlier attempt of the task, or by a model whose place another one has taken.
    #[serde(rename = "chat_began")]
    Began {
        /// The attempt of the task, from 1.
        attempt: u32,
    },
    /// More of the answer.
    #[serde(rename = "chat_text")]
    Text(String),
    /// More of what the model thinks.
    #[serde(rename = "chat_reasoning")]
    Reasoning(String),
}

fn tokens(reply: &ChatReply) -> (u64, u64) {
    reply.usage.map_or((0, 0), |usage| (usage.input_tokens, usage.output_tokens))
}

/// An answer whose cost and model are known. What was paid for no answer is booked on the attempt.
fn known(
    ctx: &Context,
    answered: Result<ChatReply, ModelError>,
    model: &dyn ChatModel,
    request: &ChatRequest,
) -> Result<ChatReply, NodeError> {
    let counted = |reasoning: Option<&str>, said: &Message| {
        let counter = Tiktoken::default();
        let written = reasoning.map_or(0, |text| counter.count(text)) + counter.count_message(said);
        Usage::counted(counter.count_request(request), written)
    };
    let mut reply = answered.map_err(|error| {
        let partial = error.partial_text().filter(|text| !text.is_empty());
        let usage = error.usage().or_else(|| partial.map(|text| counted(None, &Message::assistant(text))));
        if let Some(usage) = usage {
            ctx.spend_tokens(usage.input_tokens, usage.output_tokens);
        }
        node_error(error)
    })?;
    if reply.usage.is_none() {
        let mut message = Message::assistant(&reply.content);
        message.tool_calls.clone_from(&reply.tool_calls);
        reply.usage = Some(counted(reply.reasoning.as_deref(), &message));
    }
    if reply.model.is_empty() {
        model.name().clone_into(&mut reply.model);
    }
    Ok(reply)
}

/// Condenses a text of any length to at most `tokens_max` tokens, with each model call an effect of the node.
///
/// # Errors
///
/// As [`call`]; and a deterministic error if the model answers with no summary.
pub async fn condense(
    ctx: &Context,
    model: &Arc<dyn ChatModel>,
    summary: &RollingSummary,
    text: &str,
    tokens_max: usize,
) -> Result<String, NodeError> {
    let result = summary.condense_document(text, tokens_max, &Tiktoken::default(), calls("chat", ctx, model)).await;
    result.map_err(summary_error)
}

type Calling = std::pin::Pin<Box<dyn Future<Output = Result<ChatReply, NodeError>> + Send>>;

/// The model's calls as what a summary wants, under that name in the log.
pub(crate) fn calls(
    name: &'static str,
    ctx: &Context,
    model: &Arc<dyn ChatModel>,
) -> impl FnMut(ChatRequest) -> Calling + Send + use<> {
    let (ctx, model) = (ctx.clone(), Arc::clone(model));
    move |request| {
        let (ctx, model) = (ctx.clone(), Arc::clone(&model));
        Box::pin(async move { call_for_summary(name, &ctx, &*model, &request).await })
    }
}

/// A model's error as the error of a node.
pub(crate) fn node_error(error: ModelError) -> NodeError {
    let class = match error.class() {
        class if class.is_transient() => Class::Transient,
        class if class.is_terminal() => Class::Terminal,
        _ => Class::Deterministic,
    };
    let wait = error.retry_after();
    let error = NodeError::from(error).with_class(class);
    match wait {
        Some(wait) => error.retry_after(wait),
        None => error,
    }
}

pub(crate) fn summary_error(error: SummaryError<NodeError>) -> NodeError {
    match error {
        // Its class decides whether the node is tried again.
        SummaryError::Call { source, .. } => source,
        other => NodeError::new(other.to_string()).deterministic(),
    }
}
