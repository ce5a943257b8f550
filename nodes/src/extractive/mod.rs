//! Shortening a text by keeping its most central sentences.

mod features;
mod rank;
mod select;
mod sentences;

pub(crate) use self::features::for_each_feature;

use std::sync::Arc;

use ferrata::state::Role;

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatFuture, ChatModel, ChatReply, ChatRequest, Finish, Purpose};
use crate::tokens::{Tiktoken, TokenCounter};

/// The limit of an answer if the request names none, in tokens.
const OUTPUT_TOKENS_DEFAULT: u32 = 300;

/// Shortens text with no model, key, server or download: the default where none is set.
///
/// It is no language model. It keeps the sentences that share most with the others (TextRank), word for word and in their order, as many as
/// `output_tokens_max` allows, and 300 tokens if the request sets no limit. A text that fits is returned as it is. Instructions are not
/// followed. The same text always gives the same answer.
///
/// Sentences may be in any language: words are compared where words are spaced, pairs of characters for Chinese, Japanese, Korean, Thai
/// and others. Code blocks, table rows and headings are left out unless there is nothing else. A sentence that is too long even alone is
/// cut and ends in `[…]`, and the answer's [`Finish`] is then `Length`.
///
/// For [`Purpose::Chat`] it answers with a deterministic error that says what to set. The work is done in the first poll, in time
/// proportional to the length: 2 s for 1 MB without optimization on a machine with two cores. Larger texts belong into chunks, as
/// [`RollingSummary::condense_document`](crate::RollingSummary::condense_document) makes them.
///
/// ```
/// use ferrata_nodes::{ChatModel, ChatRequest, Extractive};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ferrata_nodes::ModelError> {
/// let text = "检查点保存了状态。天气很好。引擎从检查点恢复状态。状态和检查点都在日志里。";
/// let reply = Extractive::new().chat(&ChatRequest::condense("", text, 12)).await?;
/// assert!(reply.content.contains("检查点") && !reply.content.contains("天气"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Extractive {
    counter: Arc<dyn TokenCounter>,
}

impl Default for Extractive {
    fn default() -> Self {
        Self::new()
    }
}

impl Extractive {
    /// A condenser that counts with [`Tiktoken`].
    pub fn new() -> Self {
        Self { counter: Arc::new(Tiktoken::default()) }
    }

    /// The same condenser with another way to count.
    pub fn counter(mut self, counter: impl TokenCounter + 'static) -> Self {
        self.counter = Arc::new(counter);
        self
    }

    fn answer(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let refuse = |message: &str| Err(ModelError::new(ModelErrorClass::BadRequest, message));
        if request.purpose != Purpose::Condense {
            return refuse(
                "no language model is set, and `Extractive` only shortens text; \
                 set OPENAI_MODEL and OPENAI_API_KEY, or OPENAI_BASE_URL for an endpoint of your own",
            );
        }
        let Some(message) = request.messages.iter().rfind(|message| message.role == Role::User) else {
            return refuse("there is no user message to shorten; put the text into one");
        };
        let text = message.content.trim();
        if text.is_empty() {
            return refuse("the user message to shorten is empty; put the text into it");
        }
        let tokens_max = request.output_tokens_max.unwrap_or(OUTPUT_TOKENS_DEFAULT) as usize;
        let shortened = select::shorten(text, tokens_max, &*self.counter);
        if shortened.content.is_empty() {
            return refuse("not one character fits into `output_tokens_max`; raise it");
        }
        let finish = if shortened.is_cut { Finish::Length } else { Finish::Stop };
        Ok(ChatReply::new(shortened.content).finish(finish).model(self.name()))
    }
}

impl ChatModel for Extractive {
    fn name(&self) -> &str {
        "extractive"
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async move { self.answer(request) })
    }
}
