//! Answers that were given before.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blake3::Hash;

use crate::error::ModelError;
use crate::model::{ChatFuture, ChatModel, ChatReply, ChatRequest, Finish, Tell};

/// How many answers are kept if nobody says otherwise.
const ANSWERS_MAX: usize = 1_000;

/// Gives the same answer to the same request, without asking the model again.
///
/// Two requests are the same if all they say is: messages, tools, schema, settings. The ids of messages do not count, since no model sees them. Only whole answers are kept: no errors, no refusals, none that ran into a limit; the oldest
/// one goes when there are too many. They are kept in memory, by this value and its clones. What came from here says a usage of 0, since nothing was paid.
///
/// Not guaranteed: two equal requests at the same time both reach the model.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{Cached, ChatModel, ChatRequest, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ferrata_nodes::ModelError> {
/// let model = Cached::new(Scripted::new([Ok("first"), Ok("second")]));
/// let request = ChatRequest::new([Message::user("Hi")]);
/// assert_eq!(model.chat(&request).await?.content, "first");
/// assert_eq!(model.chat(&request).await?.content, "first");
/// assert_eq!(model.chat(&request.clone().setting("seed", 2)).await?.content, "second");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Cached {
    model: Arc<dyn ChatModel>,
    answers: Arc<Mutex<Answers>>,
    answers_max: usize,
}

#[derive(Default)]
struct Answers {
    known: HashMap<Hash, ChatReply>,
    order: VecDeque<Hash>,
}

impl Cached {
    /// A cache in front of that model.
    pub fn new(model: impl ChatModel + 'static) -> Self {
        Self { model: Arc::new(model), answers: Arc::default(), answers_max: ANSWERS_MAX }
    }

    /// How many answers are kept, at least 1; 1,000 if not set.
    pub fn answers_max(mut self, answers: usize) -> Self {
        self.answers_max = answers.max(1);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: &ChatRequest, tell: Option<&mut Tell<'_>>) -> Result<ChatReply, ModelError> {
        let key = serde_json::to_vec(&request.as_sent()).map(|text| blake3::hash(&text)).ok();
        let known = key.and_then(|key| self.lock().known.get(&key).cloned());
        if let Some(mut reply) = known {
            reply.usage = Some(crate::model::Usage::default());
            if let Some(tell) = tell {
                reply.tell(tell);
            }
            return Ok(reply);
        }
        let reply = match tell {
            Some(tell) => self.model.chat_streamed(request, tell).await?,
            None => self.model.chat(request).await?,
        };
        if let (Finish::Stop | Finish::ToolCalls, false, Some(key)) = (&reply.finish, reply.refused, key) {
            let mut answers = self.lock();
            if answers.known.insert(key, reply.clone()).is_none() {
                answers.order.push_back(key);
            }
            if answers.order.len() > self.answers_max
                && let Some(oldest) = answers.order.pop_front()
            {
                answers.known.remove(&oldest);
            }
        }
        Ok(reply)
    }
}

impl ChatModel for Cached {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(self.answer(request, None))
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        Box::pin(self.answer(request, Some(tell)))
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("model", &self.model).field("answers", &self.lock().order.len()).finish_non_exhaustive()
    }
}
