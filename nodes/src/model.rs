//! What a chat model is to the rest of the program.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ferrata::state::{Message, ToolCall};
use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// A model's answer that is on its way.
pub type ChatFuture<'a> = Pin<Box<dyn Future<Output = Result<ChatReply, ModelError>> + Send + 'a>>;

/// Something that answers a conversation.
///
/// An implementation sends each request once: it does not retry, since the policy of the graph does. Dropping the future gives the
/// request up; the endpoint may have received it nevertheless.
///
/// ```
/// use ferrata_nodes::{ChatFuture, ChatModel, ChatReply, ChatRequest};
///
/// #[derive(Debug)]
/// struct Echo;
///
/// impl ChatModel for Echo {
///     fn name(&self) -> &str {
///         "echo"
///     }
///     fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
///         Box::pin(async move { Ok(ChatReply::new(request.messages.last().map_or("", |m| &m.content))) })
///     }
/// }
///
/// let model: std::sync::Arc<dyn ChatModel> = std::sync::Arc::new(Echo);
/// assert_eq!(model.name(), "echo");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a chat model",
    note = "use `ferrata_nodes::OpenAi`, `Extractive` or `Scripted`, or implement `ChatModel`"
)]
pub trait ChatModel: Send + Sync + Debug {
    /// The name under which the model is known, as in reports and traces.
    fn name(&self) -> &str;

    /// Answers the request.
    ///
    /// # Errors
    ///
    /// [`ModelError`], whose class says whether sending the same request again makes sense. An empty answer is an error.
    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a>;
}

impl<T: ChatModel + ?Sized> ChatModel for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        (**self).chat(request)
    }
}

/// What an answer is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Purpose {
    /// Go on with the conversation.
    #[default]
    Chat,
    /// Shorten the text of the last user message, following the instructions before it, to at most `output_tokens_max` tokens.
    Condense,
}

/// A conversation that wants an answer.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatRequest, Purpose};
///
/// let request = ChatRequest::new([Message::system("Be brief."), Message::user("What is a log?")]).output_tokens_max(200);
/// assert_eq!((request.purpose, request.messages.len(), request.output_tokens_max), (Purpose::Chat, 2, Some(200)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct ChatRequest {
    /// What the answer is wanted for.
    #[serde(default)]
    pub purpose: Purpose,
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    /// The most tokens the answer may have; the model's own limit if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

impl ChatRequest {
    /// A request to go on with that conversation.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Self { purpose: Purpose::Chat, messages: messages.into_iter().collect(), output_tokens_max: None }
    }

    /// A request to shorten a text to so many tokens.
    pub fn condense(instructions: impl Into<String>, text: impl Into<String>, output_tokens_max: u32) -> Self {
        let messages = vec![Message::system(instructions), Message::user(text)];
        Self { purpose: Purpose::Condense, messages, output_tokens_max: Some(output_tokens_max) }
    }

    /// The same request with another purpose.
    pub fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    /// The same request with one more message at the end.
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// The same request with that limit to the answer, in tokens.
    pub fn output_tokens_max(mut self, tokens: u32) -> Self {
        self.output_tokens_max = Some(tokens);
        self
    }
}

/// A complete answer.
///
/// ```
/// use ferrata_nodes::{ChatReply, Finish};
/// let reply = ChatReply::new("Forty-two.");
/// assert_eq!((reply.content.as_str(), reply.finish, reply.usage), ("Forty-two.", Finish::Stop, None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatReply {
    /// The text; empty only if there are tool calls.
    pub content: String,
    /// Tools that the model wants called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The model that answered, as it calls itself.
    pub model: String,
    /// Why the answer ended.
    pub finish: Finish,
    /// What it cost; `None` if the endpoint did not say, which is not the same as nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl ChatReply {
    /// An answer that is complete and names no model and no cost.
    pub fn new(content: impl Into<String>) -> Self {
        Self { content: content.into(), tool_calls: Vec::new(), model: String::new(), finish: Finish::Stop, usage: None }
    }

    /// The same answer with another end.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// The same answer from that model.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// The same answer at that cost.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// It was complete.
    Stop,
    /// It ran into the limit of tokens: the text is cut.
    Length,
    /// The model wants tools called.
    ToolCalls,
    /// The endpoint held something back.
    ContentFilter,
    /// A word that we do not know; the run goes on as for `Stop`.
    Other(String),
}

/// Tokens that a request cost, as the endpoint counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}
