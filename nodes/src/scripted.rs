//! A model that does as it is told, for tests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatFuture, ChatModel, ChatReply, ChatRequest};

type Answer = dyn FnMut(&ChatRequest) -> Result<ChatReply, ModelError> + Send;

/// A model that answers from a list or a closure and keeps the requests it got.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatModel, ChatRequest, ModelError, ModelErrorClass, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let model = Scripted::new([Ok("Hello."), Err(ModelError::new(ModelErrorClass::Server, "busy"))]);
/// let request = ChatRequest::new([Message::user("Hi")]);
/// assert_eq!(model.chat(&request).await.unwrap().content, "Hello.");
/// assert!(model.chat(&request).await.unwrap_err().is_transient());
/// assert!(!model.chat(&request).await.unwrap_err().is_transient(), "the list is used up");
/// assert_eq!(model.requests().len(), 3);
/// # }
/// ```
#[must_use]
pub struct Scripted {
    name: String,
    script: Mutex<Script>,
}

struct Script {
    answer: Box<Answer>,
    requests: Vec<ChatRequest>,
}

impl Scripted {
    /// A model that gives these answers in this order, then deterministic errors.
    pub fn new<T: Into<String>>(answers: impl IntoIterator<Item = Result<T, ModelError>>) -> Self {
        Self::replies(answers.into_iter().map(|answer| answer.map(ChatReply::new)))
    }

    /// As [`new`](Self::new), with whole replies.
    pub fn replies(replies: impl IntoIterator<Item = Result<ChatReply, ModelError>>) -> Self {
        let mut rest: VecDeque<_> = replies.into_iter().collect();
        Self::answering(move |_| {
            rest.pop_front().unwrap_or_else(|| {
                Err(ModelError::new(ModelErrorClass::BadRequest, "the script has no more answers; give `Scripted` a longer list"))
            })
        })
    }

    /// A model that answers with what the closure returns.
    pub fn answering(answer: impl FnMut(&ChatRequest) -> Result<ChatReply, ModelError> + Send + 'static) -> Self {
        let script = Script { answer: Box::new(answer), requests: Vec::new() };
        Self { name: "scripted".to_owned(), script: Mutex::new(script) }
    }

    /// The same model under another name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.lock().requests.clone()
    }

    // A closure that panicked fails its own test; what it left behind is still worth reading.
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatModel for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async move {
            let mut script = self.lock();
            script.requests.push(request.clone());
            let reply = (script.answer)(request)?;
            Ok(if reply.model.is_empty() { reply.model(self.name.clone()) } else { reply })
        })
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("name", &self.name)
            .field("requests", &self.lock().requests.len())
            .finish_non_exhaustive()
    }
}
