//! Ready-made parts for agent graphs: chat models, token counts, and context that stays under a budget.
//!
//! - [`ChatModel`] is what a model is to a node. [`OpenAi`] talks to any endpoint with OpenAI's chat API, [`Scripted`] answers from a
//!   list in tests, and [`Extractive`] shortens text with no model, key, server or download.
//! - [`TokenCounter`] counts tokens; [`Tiktoken`] does it with the vocabularies of OpenAI's models, and [`TokenCache`] once for each message.
//! - [`ContextPlan`] makes the request that a model sees: in layers, never over a budget, and valid for any conversation.
//! - [`RollingSummary`] folds the oldest messages of a conversation into one summary, and condenses documents that are larger than what
//!   a model takes at once. What is [`pinned()`] stays word for word, and [`Originals`] finds again what was folded.
//!
//! - [`ChatNode`], and [`RollingSummary::over`], are nodes made of these. [`call`] and [`condense`] do the same inside a node of one's own:
//!   each model call is an effect, so that an answer that was recorded is not paid for again.
//!
//! - [`Tool`] is a function that a model may want called, [`ToolsNode`] the node that calls it; see below.
//!
//! - [`Webhook`] sends what a supervisor notices to a URL, signed.
//!
//! Nothing here retries. An error says whether sending the same request again makes sense ([`ModelErrorClass`]); whether it is done is
//! the business of the graph's policy, so that a failing endpoint sees no more requests than the policy allows.
//!
//! ```
//! use ferrata_nodes::{ChatModel, ChatRequest, Extractive};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ferrata_nodes::ModelError> {
//! let text = "The log keeps what changed. Each record of the log has a checksum. It rained on Tuesday. \
//!             A damaged record of the log is found by its checksum.";
//! let request = ChatRequest::condense("Keep what matters most.", text, 30);
//! let reply = Extractive::new().chat(&request).await?;
//! assert!(reply.content.contains("checksum"));
//! assert!(!reply.content.contains("Tuesday"));
//! # Ok(())
//! # }
//! ```
//!
//! # Tools
//!
//! A [`Tool`] is made of an async function whose argument has a JSON Schema. Its policy stands beside it: what a call can do ([`Risk`]), how long it may
//! take, a rule for its results, the credentials it gets. [`ToolsNode`] answers all calls of the model's last message at once, and every call gets exactly one
//! result, in a message of its own, whatever is wrong with it: the table there says what becomes of what.
//!
//! | to | write |
//! | --- | --- |
//! | tell the model of the tools | [`ChatNode::tools`] with [`ToolsNode::specs`] |
//! | lead from the model to the tools and back | a route that asks [`ToolsNode::is_wanted`] |
//! | have a person approve, change or refuse calls | [`Risk::Irreversible`], and [`ToolsNode::approvals`] for who and until when |
//! | stop a model that does the same again and again | a [`Guard`](ferrata::Guard) on the node; `steps_max` of the thread stops all others |
//! | keep large results out of the conversation | [`ToolsNode::over_with_artifacts`], with [`Tool::recall`] to read on |
//! | find out whether a call was performed before the crash | [`Tool::check`], by [`ToolContext::idempotency_key`] |
//! | have the tools of an MCP server, with the same policy | `McpServer`, feature `mcp` |
//!
//! What a tool says is data. It reaches the model in the role [`Tool`](ferrata::state::Role::Tool) and nowhere else. That is no protection against a model that obeys
//! it nevertheless: what must not happen has to be forbidden by the allow-list, or approved by a person.
//!
//! Not supported yet: images and audio.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by it"))]

mod ask_for;
mod cached;
mod call;
mod chat_node;
mod context;
mod counted;
mod cut;
mod error;
mod extractive;
mod fits;
#[cfg(feature = "mcp")]
mod mcp;
mod model;
mod names;
mod openai;
mod pinned;
mod prices;
mod recall;
mod recorded;
mod retry_after;
mod rewritten;
mod router;
mod scripted;
mod summary;
mod summary_node;
mod tokens;
mod tools;
mod webhook;

pub use ask_for::ask_for;
pub use cached::Cached;
pub use call::{ChatDelta, call, call_streamed, condense};
pub use chat_node::ChatNode;
pub use context::{Assembled, ContextError, ContextPlan, FEEDBACK_MARKER, Layer, Recent};
pub use counted::{Tally, TokenCache};
pub use error::{ModelError, ModelErrorClass};
pub use extractive::Extractive;
#[cfg(feature = "mcp")]
pub use mcp::{McpClient, McpError, McpServer};
pub use model::{AnswerSchema, ChatFuture, ChatModel, ChatReply, ChatRequest, Delta, Finish, Purpose, Tell, ToolSpec, Usage};
pub use openai::{OpenAi, SettingsError};
pub use pinned::{PINNED_ID, is_pinned, pinned};
pub use prices::{ModelCost, Price, Prices};
pub use recall::{Found, Originals, Similarity, SimilarityFuture};
pub use recorded::{Recording, Replay};
pub use router::{Fallbacks, Router, Tier};
pub use scripted::Scripted;
pub use summary::{RollingSummary, SUMMARY_ID, SUMMARY_MARKER, Summary, SummaryError};
pub use tokens::{Tiktoken, TokenCounter};
pub use tools::{Risk, Tool, ToolContext, ToolsError, ToolsNode};
pub use webhook::{VerifyError, Webhook, WebhookError, WebhookSecret};
