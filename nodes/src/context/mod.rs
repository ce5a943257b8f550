//! What a model sees: layers under one hard budget.

mod assemble;
mod error;
mod fit;
mod pairs;
mod parts;
mod recent;

use std::sync::Arc;

use ferrata::state::Message;

pub use self::error::ContextError;
pub use self::recent::Recent;

use self::assemble::Assembly;
use crate::counted::TokenCache;
use crate::model::ChatRequest;
use crate::tokens::TokenCounter;

/// The first line of what tells a model that its last answer was not accepted, so that nobody takes it for something the user said.
pub const FEEDBACK_MARKER: &str = "[A note of the program, not of the user: the last answer was not accepted.]";

/// A part of what a model sees.
///
/// ```
/// use ferrata_nodes::{ContextPlan, Layer};
/// let plan = ContextPlan::new(1_000);
/// assert_eq!((plan.share_of(Layer::Summary), plan.share_of(Layer::Recent)), (200, 350));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// System messages, tools, schema, and what frames a request.
    Instructions,
    /// The first user message that is not pinned, the last one, and what is [`pinned`](crate::pinned()).
    Task,
    /// The running summary ([`SUMMARY_ID`](crate::SUMMARY_ID)).
    Summary,
    /// The other messages.
    Recent,
    /// What came last, if the user said nothing since: calls with their results; and what was wrong with the last answer.
    Feedback,
}

/// What a model sees, in layers under one hard budget.
///
/// | layer | share | |
/// | --- | --- | --- |
/// | [`Instructions`](Layer::Instructions) | 15 % | word for word, first |
/// | [`Task`](Layer::Task) | 15 % | word for word |
/// | [`Summary`](Layer::Summary) | 20 % | behind the task, cut if it has to be |
/// | [`Recent`](Layer::Recent) | 35 % | whole messages, calls always with all results |
/// | [`Feedback`](Layer::Feedback) | 15 % | last; long texts are cut, and show it |
///
/// A layer that wants less than its share leaves the rest to the others: to feedback first, then summary, then recent messages. What must stay word for word
/// takes what it needs, and if the shares no longer fit, recent messages give way first.
///
/// Guaranteed, for any conversation: what [`assemble`](Self::assemble) returns has at most the budget, as
/// [`count_request`](TokenCounter::count_request) counts it; system messages come first, in their order; the others keep their order; each call has exactly one result, right behind it, and each result
/// its call. A call that was never answered gets a result that says so. A result without its call and a message without a text are left out.
///
/// The budget is what may be *sent*: a model's window less what the answer may have.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatRequest, ContextPlan, Tiktoken, TokenCounter};
///
/// let mut messages = vec![Message::system("You book tables."), Message::user("Book a table for 6 at the Heron, budget 80.")];
/// messages.extend((0..200).map(|turn| Message::assistant(format!("Turn {turn}: the Heron has no table for 6 at this hour."))));
///
/// let context = ContextPlan::new(500).assemble(&messages, ChatRequest::new([])).unwrap();
/// assert_eq!(context.tokens, Tiktoken::default().count_request(&context.request));
/// assert!(context.tokens <= 500);
/// assert_eq!(context.request.messages[0], messages[0]);
/// assert_eq!(context.request.messages[1].content, format!("[{} earlier messages are not shown here.]", context.left_out));
/// assert_eq!(context.request.messages[2], messages[1]);
/// assert_eq!(context.request.messages.last(), messages.last());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ContextPlan {
    budget: usize,
    /// In percent: instructions, task, summary, recent, feedback.
    shares: [usize; 5],
    recent: Recent,
    feedback: Option<String>,
    counter: Arc<dyn TokenCounter>,
}

impl ContextPlan {
    /// Contexts of at most so many tokens, with the shares above, counted with the o200k vocabulary and each message once ([`TokenCache`]).
    pub fn new(budget: usize) -> Self {
        let counter = Arc::new(TokenCache::default());
        Self { budget, shares: [15, 15, 20, 35, 15], recent: Recent::newest(), feedback: None, counter }
    }

    /// Another share for a layer, in percent of the budget. It is what the layer gets before others get more than theirs, and no upper
    /// bound. Instructions and task are sent word for word, so that they take what they need, whatever their share.
    ///
    /// ```
    /// use ferrata_nodes::{ContextPlan, Layer};
    /// let plan = ContextPlan::new(8_000).share(Layer::Feedback, 40);
    /// assert_eq!(plan.share_of(Layer::Feedback), 3_200);
    /// ```
    pub fn share(mut self, layer: Layer, percent: usize) -> Self {
        self.shares[layer as usize] = percent.min(100);
        self
    }

    /// The share of a layer, in tokens.
    pub fn share_of(&self, layer: Layer) -> usize {
        self.budget.saturating_mul(self.shares[layer as usize]) / 100
    }

    /// How recent messages are chosen.
    pub fn recent(mut self, recent: Recent) -> Self {
        self.recent = recent;
        self
    }

    /// What was wrong with the model's last answer; it stands at the end, behind [`FEEDBACK_MARKER`].
    ///
    /// ```
    /// use ferrata::state::Message;
    /// use ferrata_nodes::{ChatRequest, ContextPlan, FEEDBACK_MARKER};
    /// let plan = ContextPlan::new(8_000).feedback("the date is in the past");
    /// let context = plan.assemble(&[Message::user("When?")], ChatRequest::new([])).unwrap();
    /// assert_eq!(context.request.messages[1].content, format!("{FEEDBACK_MARKER}\nthe date is in the past"));
    /// ```
    pub fn feedback(mut self, text: impl Into<String>) -> Self {
        self.feedback = Some(text.into());
        self
    }

    /// Another way to count. It has to count a request as the sum of its messages and of what is around them, as
    /// [`count_request`](TokenCounter::count_request) does unless it is overridden.
    pub fn counter(mut self, counter: impl TokenCounter + 'static) -> Self {
        self.counter = Arc::new(counter);
        self
    }

    /// Makes the request that shows this conversation.
    ///
    /// `request` brings tools, schema and settings. Messages that it has already are instructions: they are sent as they are, before all others.
    ///
    /// # Errors
    ///
    /// [`ContextError::TooLarge`] if what must stay word for word does not fit, or the newest calls do not with their results cut to a few words;
    /// [`ContextError::Nothing`] if there is no message to send.
    pub fn assemble(&self, messages: &[Message], request: ChatRequest) -> Result<Assembled, ContextError> {
        let context = Assembly::new(self, messages, request)?.assemble()?;
        tracing::debug!(tokens = context.tokens, budget = self.budget, left_out = context.left_out, "context");
        Ok(context)
    }
}

/// A request that fits, and what became of the conversation in it.
///
/// ```
/// use ferrata::state::{Message, ToolCall};
/// use ferrata_nodes::{ChatRequest, ContextPlan, Layer};
///
/// let call = ToolCall { id: "c1".into(), name: "search".into(), arguments: "{}".into() };
/// let messages = [Message::user("Book."), Message { tool_calls: vec![call], ..Message::assistant("") }, Message::user(""), Message::user("And?")];
/// let context = ContextPlan::new(1_000).assemble(&messages, ChatRequest::new([])).unwrap();
/// assert_eq!((context.unanswered, context.unfit, context.left_out), (vec!["c1".to_owned()], vec![2], 0));
/// assert_eq!(context.layers[Layer::Task as usize], (Layer::Task, 5 + 6 + 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assembled {
    /// The request.
    pub request: ChatRequest,
    /// Its tokens.
    pub tokens: usize,
    /// The tokens of each layer.
    pub layers: Vec<(Layer, usize)>,
    /// How many messages are left out because there is no room; a note in the request says so, where it fits.
    pub left_out: usize,
    /// Places of messages whose text was cut, in the conversation.
    pub cut: Vec<usize>,
    /// Places of messages that no request can have: a result without a call, a message without a text.
    pub unfit: Vec<usize>,
    /// Ids of calls that were never answered, and got a result that says so.
    pub unanswered: Vec<String>,
}
