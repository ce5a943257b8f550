//! Traffic with a model, to a file and back: so that a test runs without the model, and sees what is asked of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatFuture, ChatModel, ChatReply, ChatRequest, Delta, Tell, Usage};

/// One request and what came of it: a line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Exchange {
    request: ChatRequest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<ChatReply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RecordedError>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedError {
    class: ModelErrorClass,
    status: Option<u16>,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

impl RecordedError {
    fn of(error: &ModelError) -> Self {
        Self {
            class: error.class(),
            status: error.status(),
            message: error.to_string(),
            code: error.code().map(str::to_owned),
            retry_after_ms: error.retry_after().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            partial_text: error.partial_text().map(str::to_owned),
            usage: error.usage(),
        }
    }

    fn into_error(self) -> ModelError {
        let error = ModelError::new(self.class, self.message);
        let error = self.status.into_iter().fold(error, ModelError::with_status);
        let error = self.code.into_iter().fold(error, ModelError::with_code);
        let wait = self.retry_after_ms.map(Duration::from_millis);
        let error = wait.into_iter().fold(error, ModelError::with_retry_after);
        let error = self.partial_text.into_iter().fold(error, ModelError::with_partial_text);
        self.usage.into_iter().fold(error, ModelError::with_usage)
    }
}

/// Writes each request and its answer to a file, a line of JSON for each, and changes nothing.
///
/// Keys are in no request and so in no file; what the conversation says is. An answer whose line cannot be written is an error: it would be missing later.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatModel, ChatRequest, Recording, Replay, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let file = folder.path().join("talk.jsonl");
/// let request = ChatRequest::new([Message::user("What is a log?")]);
/// Recording::to_file(Scripted::new([Ok("A list that only grows.")]), &file)?.chat(&request).await?;
///
/// let replay = Replay::from_file(&file)?;
/// assert_eq!(replay.chat(&request).await?.content, "A list that only grows.");
/// assert_eq!(replay.left(), 0);
/// // Another request than the recorded one is told, with where it differs.
/// let replay = Replay::from_file(&file)?;
/// let error = replay.chat(&ChatRequest::new([Message::user("What is a tree?")])).await.unwrap_err();
/// assert!(error.to_string().contains("/messages/0/content"), "{error}");
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Recording {
    model: Arc<dyn ChatModel>,
    file: Mutex<File>,
    path: PathBuf,
}

impl Recording {
    /// Records what goes to and comes from that model at the end of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn to_file(model: impl ChatModel + 'static, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(Self { model: Arc::new(model), file: Mutex::new(file), path })
    }

    fn keep(&self, request: &ChatRequest, answered: Result<ChatReply, ModelError>) -> Result<ChatReply, ModelError> {
        let error = answered.as_ref().err().map(RecordedError::of);
        let exchange = Exchange { request: request.clone(), reply: answered.as_ref().ok().cloned(), error };
        let line = serde_json::to_string(&exchange).map_err(io::Error::other);
        let written = line.and_then(|line| {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(format!("{line}\n").as_bytes())
        });
        written.map_err(|error| {
            let message = format!("the answer could not be recorded in {}: {error}", self.path.display());
            ModelError::new(ModelErrorClass::BadRequest, message).with_source(error)
        })?;
        answered
    }
}

impl ChatModel for Recording {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async move { self.keep(request, self.model.chat(request).await) })
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        Box::pin(async move { self.keep(request, self.model.chat_streamed(request, tell).await) })
    }
}

/// Answers from a file of [`Recording`], and holds each request to what was recorded.
///
/// A request gets the first answer that has not been given yet and was recorded for exactly this request, so that requests at the same time may come in any order.
/// The ids of messages do not count, since no model sees them.
#[derive(Debug)]
#[must_use]
pub struct Replay {
    path: PathBuf,
    left: Mutex<Vec<Exchange>>,
}

impl Replay {
    /// Reads a recorded file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or one of its lines is none of [`Recording`]'s.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let text = std::fs::read_to_string(&path)?;
        let exchanges = text.lines().enumerate().map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} line {}: {error}", path.display(), number + 1))
            })
        });
        let left = Mutex::new(exchanges.collect::<io::Result<_>>()?);
        Ok(Self { path, left })
    }

    /// How many recorded answers were not asked for yet.
    pub fn left(&self) -> usize {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn answer(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let sent = request.as_sent();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = left.iter().position(|exchange| exchange.request.as_sent() == sent) else {
            let where_to = match left.first() {
                None => "every recorded answer has been given".to_owned(),
                Some(next) => {
                    format!("it differs from the next one that was recorded at {}", difference(&next.request.as_sent(), &sent))
                }
            };
            let message = format!("{} has no answer to that request: {where_to}; record it again", self.path.display());
            return Err(ModelError::new(ModelErrorClass::BadRequest, message));
        };
        let Exchange { reply, error, .. } = left.remove(place);
        match (reply, error) {
            (Some(reply), _) => Ok(reply),
            (None, Some(error)) => Err(error.into_error()),
            (None, None) => {
                let message = format!("{} has a request without an answer; record it again", self.path.display());
                Err(ModelError::new(ModelErrorClass::BadRequest, message))
            }
        }
    }
}

/// The first place at which two requests differ, with what is there.
fn difference(recorded: &ChatRequest, sent: &ChatRequest) -> String {
    let value = |request| serde_json::to_value(request).unwrap_or_default();
    differs(String::new(), &value(recorded), &value(sent)).unwrap_or_else(|| "no place".to_owned())
}

fn differs(path: String, recorded: &Value, sent: &Value) -> Option<String> {
    match (recorded, sent) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let none = &Value::Null;
            keys.into_iter()
                .find_map(|key| differs(format!("{path}/{key}"), a.get(key).unwrap_or(none), b.get(key).unwrap_or(none)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(index, (a, b))| differs(format!("{path}/{index}"), a, b))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path}: {} was recorded, {} is sent", shortened(a), shortened(b))),
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push_str("..");
    }
    short
}

impl ChatModel for Replay {
    fn name(&self) -> &str {
        "replay"
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async move { self.answer(request) })
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        Box::pin(async move {
            match self.answer(request) {
                Ok(reply) => {
                    reply.tell(tell);
                    Ok(reply)
                }
                Err(error) => {
                    if let Some(text) = error.partial_text().filter(|text| !text.is_empty()) {
                        tell(Delta::Text(text));
                    }
                    Err(error)
                }
            }
        })
    }
}
