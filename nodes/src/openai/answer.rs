//! Reads what a server sends, as a whole or as a stream.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use super::assemble::Assembly;
use super::failure::Asked;
use super::sse::{Event, Events};
use super::wire::{self, Draft};
use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatReply, ChatRequest, Tell};

/// The most that is read of one answer.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a stream may stay silent once the answer has its end: what may still come is what it cost.
const AFTER_THE_END: Duration = Duration::from_secs(1);

/// The answer in a response of success. `tell`: the client asked for a stream.
pub(super) async fn read(
    response: Response,
    request: &ChatRequest,
    asked: Asked<'_>,
    tell: Option<&mut Tell<'_>>,
) -> Result<ChatReply, ModelError> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    match tell {
        // A server that cannot stream answers as a whole.
        Some(tell) if !kind.contains("json") => Stream::new(response, request, asked).read(tell).await,
        tell => {
            let reply = whole(response, request, asked).await?;
            if let Some(tell) = tell.filter(|_| !reply.content.is_empty()) {
                tell(crate::model::Delta::Text(&reply.content));
            }
            Ok(reply)
        }
    }
}

async fn whole(mut response: Response, request: &ChatRequest, asked: Asked<'_>) -> Result<ChatReply, ModelError> {
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| asked.broke_off(error, None))? {
        bytes.extend_from_slice(&part);
        if bytes.len() > BODY_BYTES_MAX {
            return Err(asked.too_large(BODY_BYTES_MAX));
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    of_text(text.trim_start_matches('\u{feff}'), request, asked)
}

fn of_text(text: &str, request: &ChatRequest, asked: Asked<'_>) -> Result<ChatReply, ModelError> {
    let body: Value = serde_json::from_str(text).map_err(|error| asked.no_json(text, error))?;
    if let Some(error) = asked.in_success(&body, None) {
        return Err(error);
    }
    wire::read_reply(&body, request, asked.model)
}

/// A stream that is being read.
struct Stream<'s> {
    response: Response,
    request: &'s ChatRequest,
    asked: Asked<'s>,
    assembly: Assembly,
    /// What came before the first event, in case it is none.
    head: Vec<u8>,
    has_events: bool,
    is_over: bool,
}

impl<'s> Stream<'s> {
    fn new(response: Response, request: &'s ChatRequest, asked: Asked<'s>) -> Self {
        Self { response, request, asked, assembly: Assembly::default(), head: Vec::new(), has_events: false, is_over: false }
    }

    async fn read(mut self, tell: &mut Tell<'_>) -> Result<ChatReply, ModelError> {
        let (mut events, mut total) = (Events::default(), 0);
        while !self.is_over {
            let Some(bytes) = self.next().await? else { break };
            total += bytes.len();
            if total > BODY_BYTES_MAX || events.waiting() > BODY_BYTES_MAX {
                return Err(self.asked.too_large(BODY_BYTES_MAX));
            }
            if !self.has_events {
                self.head.extend_from_slice(&bytes);
            }
            for event in events.push(&bytes) {
                self.take(&event, tell)?;
            }
        }
        if !self.is_over
            && let Some(event) = events.finish()
        {
            self.take(&event, tell)?;
        }
        self.end()
    }

    /// More bytes; `None` when there are no more, or none that are worth waiting for.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ModelError> {
        let has_end = self.assembly.draft.finish.is_some();
        let chunk = self.response.chunk();
        let chunk = if has_end {
            match tokio::time::timeout(AFTER_THE_END, chunk).await {
                Ok(chunk) => chunk,
                Err(_) => return Ok(None),
            }
        } else {
            chunk.await
        };
        match chunk {
            Ok(chunk) => Ok(chunk.map(Into::into)),
            // The answer is there; only the goodbye is missing.
            Err(_) if has_end => Ok(None),
            Err(error) => Err(self.asked.broke_off(error, Some(&self.assembly.draft.content))),
        }
    }

    fn take(&mut self, event: &Event, tell: &mut Tell<'_>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if self.is_over || data.is_empty() {
            return Ok(());
        }
        self.has_events = true;
        if data == "[DONE]" {
            self.is_over = true;
            return Ok(());
        }
        let so_far = self.assembly.draft.content.as_str();
        let chunk: Value = match serde_json::from_str(data) {
            Ok(chunk) => chunk,
            Err(error) => return Err(self.asked.no_json(data, error).with_partial_text(so_far)),
        };
        let failed = self.asked.in_success(&chunk, Some(so_far));
        if let Some(error) = failed.or_else(|| (event.kind == "error").then(|| self.asked.of_event(&chunk, Some(so_far)))) {
            return Err(error);
        }
        self.assembly.take(&chunk, tell);
        Ok(())
    }

    fn end(self) -> Result<ChatReply, ModelError> {
        let Self { request, asked, assembly: Assembly { draft, .. }, head, has_events, is_over, .. } = self;
        if !has_events {
            // No stream at all: a whole answer under another name, a page of a proxy, or nothing.
            let text = String::from_utf8_lossy(&head);
            let text = text.trim_start_matches('\u{feff}').trim();
            return if text.is_empty() { Err(truncated(asked, &Draft::default())) } else { of_text(text, request, asked) };
        }
        if draft.finish.is_none() && !is_over {
            return Err(truncated(asked, &draft));
        }
        draft.reply(request, asked.model)
    }
}

fn truncated(asked: Asked<'_>, draft: &Draft) -> ModelError {
    let message = format!("the answer from {} broke off before its end; try again", asked.url());
    ModelError::new(ModelErrorClass::Truncated, message).with_status(200).with_partial_text(&draft.content)
}
