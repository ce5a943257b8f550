//! Model calls inside nodes: each one an effect, so that an answer that was recorded is not paid for again.

use std::sync::Arc;

use ferrata::{Class, Context, NodeError};

use crate::error::ModelError;
use crate::model::{ChatModel, ChatReply, ChatRequest};
use crate::summary::{RollingSummary, SummaryError};
use crate::tokens::Tiktoken;

/// Calls the model once, as a repeatable effect of the node: when the node runs again, the recorded answer comes back. What it cost in
/// tokens goes to the thread's report, as far as the endpoint tells.
///
/// Not guaranteed: if the process dies between the answer and its record, the request is sent again.
///
/// # Errors
///
/// What the model says, classified for the node's retry policy: transient ones as transient, with the delay that was asked for, all
/// others as deterministic.
pub async fn call(ctx: &Context, model: &dyn ChatModel, request: &ChatRequest) -> Result<ChatReply, NodeError> {
    let send = |_key: String| async { model.chat(request).await.map_err(node_error) };
    ctx.effect("chat", send).repeatable().tokens(|reply| reply.usage.map_or((0, 0), |u| (u.input_tokens, u.output_tokens))).await
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
    let result = summary.condense_document(text, tokens_max, &Tiktoken::default(), calls(ctx, model)).await;
    result.map_err(summary_error)
}

type Calling = std::pin::Pin<Box<dyn Future<Output = Result<ChatReply, NodeError>> + Send>>;

/// The model's calls as what a summary wants.
pub(crate) fn calls(ctx: &Context, model: &Arc<dyn ChatModel>) -> impl FnMut(ChatRequest) -> Calling + Send + use<> {
    let (ctx, model) = (ctx.clone(), Arc::clone(model));
    move |request| {
        let (ctx, model) = (ctx.clone(), Arc::clone(&model));
        Box::pin(async move { call(&ctx, &*model, &request).await })
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
