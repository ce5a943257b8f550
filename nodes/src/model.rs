//! What a chat model is to the rest of the program.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ferrata::state::{Message, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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

    /// As [`chat`](Self::chat), and tells what comes of the answer on its way. What was told is an answer only once this has returned one: a stream that
    /// breaks off is an error, whatever it had told by then. A model that cannot stream tells its whole answer at the end.
    ///
    /// # Errors
    ///
    /// As [`chat`](Self::chat).
    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        Box::pin(async move {
            let reply = self.chat(request).await?;
            reply.tell(tell);
            Ok(reply)
        })
    }
}

/// Who is told of an answer on its way.
pub type Tell<'t> = dyn FnMut(Delta<'_>) + Send + 't;

/// A part of an answer that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<'d> {
    /// More of the text.
    Text(&'d str),
    /// More of what the model thinks, which is no part of the text.
    Reasoning(&'d str),
    /// The answer begins anew, with another model: what was told so far is void.
    Anew,
}

impl<T: ChatModel + ?Sized> ChatModel for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        (**self).chat(request)
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        (**self).chat_streamed(request, tell)
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
    /// Tools that the model may want called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema that the text of the answer has to keep to, under a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<AnswerSchema>,
    /// Other settings, by the names that the endpoint gives them: `temperature`, `seed`, `tool_choice`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does, and when to use it.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub arguments: Value,
}

/// What the text of an answer has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerSchema {
    /// A name for it: letters, digits, `_` and `-`.
    pub name: String,
    /// The JSON Schema.
    pub schema: Value,
}

impl ChatRequest {
    /// A request to go on with that conversation.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        let (messages, settings) = (messages.into_iter().collect(), Map::new());
        Self { purpose: Purpose::Chat, messages, output_tokens_max: None, tools: Vec::new(), schema: None, settings }
    }

    /// A request to shorten a text to so many tokens.
    pub fn condense(instructions: impl Into<String>, text: impl Into<String>, output_tokens_max: u32) -> Self {
        let request = Self::new([Message::system(instructions), Message::user(text)]);
        request.purpose(Purpose::Condense).output_tokens_max(output_tokens_max)
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

    /// The same request with these tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = ToolSpec>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// The same request for an answer that is JSON of that schema. Endpoints that do not know schemas ignore it: what comes has to be checked.
    pub fn schema(mut self, name: impl Into<String>, schema: Value) -> Self {
        self.schema = Some(AnswerSchema { name: name.into(), schema });
        self
    }

    /// The same request with a setting by the endpoint's own name for it. Of two with one name the last one counts.
    ///
    /// ```
    /// use ferrata::state::Message;
    /// let request = ferrata_nodes::ChatRequest::new([Message::user("Hi")]).setting("temperature", 0.2).setting("seed", 7);
    /// assert_eq!(request.settings["seed"], 7);
    /// ```
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// What a model gets to see of it: the ids of messages are ours.
    pub(crate) fn as_sent(&self) -> Self {
        let mut sent = self.clone();
        sent.messages.iter_mut().for_each(|message| message.id.clear());
        sent
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
    /// What the model thought before it answered, if the endpoint tells. It is no part of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Whether the text says why the model refuses to answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
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
        let (content, tool_calls, model) = (content.into(), Vec::new(), String::new());
        Self { content, reasoning: None, refused: false, tool_calls, model, finish: Finish::Stop, usage: None }
    }

    /// Tells of an answer that did not come in parts.
    pub(crate) fn tell(&self, tell: &mut Tell<'_>) {
        if let Some(text) = &self.reasoning {
            tell(Delta::Reasoning(text));
        }
        if !self.content.is_empty() {
            tell(Delta::Text(&self.content));
        }
    }

    /// The answer as a message of the conversation.
    pub fn into_message(self) -> Message {
        Message { tool_calls: self.tool_calls, ..Message::assistant(self.content) }
    }

    /// The same answer with another end.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// The same answer with a tool that the model wants called.
    #[must_use]
    pub fn tool_call(mut self, id: impl Into<String>, name: impl Into<String>, arguments: &Value) -> Self {
        self.tool_calls.push(ToolCall { id: id.into(), name: name.into(), arguments: arguments.to_string() });
        self.finish = Finish::ToolCalls;
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

impl Finish {
    /// A word for it that stays the same; `other` for one that we do not know.
    ///
    /// ```
    /// use ferrata_nodes::Finish;
    /// assert_eq!((Finish::ToolCalls.code(), Finish::Other("eos".to_owned()).code()), ("tool_calls", "other"));
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
            Self::Other(_) => "other",
        }
    }
}

/// Tokens that a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of the tokens read, those that the endpoint had in its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Whether we have counted them, since the endpoint did not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_counted: bool,
}

impl Usage {
    /// What the endpoint says.
    pub fn told(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cached_tokens: 0, is_counted: false }
    }

    /// What we have counted.
    pub fn counted(input_tokens: usize, output_tokens: usize) -> Self {
        Self { is_counted: true, ..Self::told(input_tokens as u64, output_tokens as u64) }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
