//! Reads what a server sends, as a whole or as a stream.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use super::assemble::Assembly;
use super::failure::Asked;
use super::sse::{Event, Events};
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
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_stream = kind.to_ascii_lowercase().contains("event-stream");
    let whole = Whole { request, asked };
    match tell {
        Some(tell) => Stream::new(response, whole, is_stream).read(tell).await,
        // A server that streams although nobody asked.
        None if is_stream => Stream::new(response, whole, is_stream).read(&mut |_| {}).await,
        None => whole.read(response).await,
    }
}

/// An answer that comes as a whole.
#[derive(Clone, Copy)]
struct Whole<'s> {
    request: &'s ChatRequest,
    asked: Asked<'s>,
}

impl Whole<'_> {
    async fn read(self, mut response: Response) -> Result<ChatReply, ModelError> {
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.asked.broke_off(error))? {
            bytes.extend_from_slice(&part);
            if bytes.len() > BODY_BYTES_MAX {
                return Err(self.asked.too_large(BODY_BYTES_MAX));
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match text.trim_start_matches('\u{feff}').trim() {
            "" => Err(self.asked.empty()),
            text => self.of_text(text, &mut |_| {}),
        }
    }

    fn of_text(self, text: &str, tell: &mut Tell<'_>) -> Result<ChatReply, ModelError> {
        let Self { request, asked } = self;
        let body = parse(text).map_err(|error| asked.no_json(text, error))?;
        if let Some(error) = asked.in_success(&body, false) {
            return Err(error);
        }
        if body.pointer("/choices/0").is_none() {
            let message =
                "the answer has no `choices`; check that OPENAI_BASE_URL is the root of a chat API, such as https://host/v1";
            return Err(ModelError::new(ModelErrorClass::Protocol, message).with_status(200));
        }
        let mut assembly = Assembly::default();
        assembly.take_whole(&body, tell);
        assembly.draft.reply(request, asked.model)
    }
}

/// A stream that is being read.
struct Stream<'s> {
    response: Response,
    whole: Whole<'s>,
    /// Whether the server says that it is one.
    is_stream: bool,
    events: Events,
    assembly: Assembly,
    /// What came before the first event, in case it is none.
    head: Vec<u8>,
    bytes_total: usize,
    has_events: bool,
    is_over: bool,
}

impl<'s> Stream<'s> {
    fn new(response: Response, whole: Whole<'s>, is_stream: bool) -> Self {
        let (events, assembly, head) = (Events::default(), Assembly::default(), Vec::new());
        Self { response, whole, is_stream, events, assembly, head, bytes_total: 0, has_events: false, is_over: false }
    }

    async fn read(mut self, tell: &mut Tell<'_>) -> Result<ChatReply, ModelError> {
        match self.take_all(tell).await {
            Ok(()) => self.end(tell),
            Err(error) => Err(self.assembly.draft.came_before(error)),
        }
    }

    fn has_end(&self) -> bool {
        self.is_over || self.assembly.draft.finish.is_some()
    }

    async fn take_all(&mut self, tell: &mut Tell<'_>) -> Result<(), ModelError> {
        let mut is_closed = false;
        while !self.has_end() && !is_closed {
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.take_bytes(&bytes, tell)?,
                Ok(None) => is_closed = true,
                Err(error) => return Err(self.whole.asked.broke_off(error)),
            }
        }
        if !is_closed {
            // The answer is there; only the goodbye may be missing.
            let rest = async {
                while let (false, Ok(Some(bytes))) = (self.is_over, self.response.chunk().await) {
                    self.take_bytes(&bytes, tell)?;
                }
                Ok::<_, ModelError>(())
            };
            tokio::time::timeout(AFTER_THE_END, rest).await.unwrap_or(Ok(()))?;
        }
        match std::mem::take(&mut self.events).finish() {
            Some(event) => self.take(&event, true, tell),
            None => Ok(()),
        }
    }

    fn take_bytes(&mut self, bytes: &[u8], tell: &mut Tell<'_>) -> Result<(), ModelError> {
        self.bytes_total += bytes.len();
        if self.bytes_total > BODY_BYTES_MAX {
            return Err(self.whole.asked.too_large(BODY_BYTES_MAX));
        }
        if !self.has_events {
            self.head.extend_from_slice(bytes);
        }
        for event in self.events.push(bytes) {
            self.take(&event, false, tell)?;
        }
        Ok(())
    }

    /// `is_last`: the stream ended within it.
    fn take(&mut self, event: &Event, is_last: bool, tell: &mut Tell<'_>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if self.is_over || data.is_empty() {
            return Ok(());
        }
        self.has_events = true;
        if data == "[DONE]" {
            self.is_over = true;
            return Ok(());
        }
        let (asked, is_error) = (self.whole.asked, event.kind == "error");
        let chunk = match parse(data) {
            Ok(chunk) => chunk,
            Err(_) if is_error => Value::from(data),
            // Behind the end there is nothing that the answer lacks; and an event that was cut is none.
            Err(_) if is_last || self.has_end() => return Ok(()),
            Err(error) => return Err(asked.no_json(data, error)),
        };
        let had_begun = self.assembly.draft.has_begun();
        let failed = asked.in_success(&chunk, had_begun);
        if let Some(error) = failed.or_else(|| is_error.then(|| asked.of_event(&chunk, had_begun))) {
            return Err(error);
        }
        self.assembly.take(&chunk, tell);
        Ok(())
    }

    fn end(self, tell: &mut Tell<'_>) -> Result<ChatReply, ModelError> {
        let (has_end, Whole { request, asked }) = (self.has_end(), self.whole);
        if !self.has_events {
            // No stream at all: a whole answer under another name, a page of a proxy, or nothing.
            let text = String::from_utf8_lossy(&self.head);
            let text = text.trim_start_matches('\u{feff}').trim();
            let is_other = if self.is_stream { text.starts_with(['{', '[', '<']) } else { !text.lines().all(is_of_stream) };
            return if is_other { self.whole.of_text(text, tell) } else { Err(asked.truncated()) };
        }
        if has_end {
            return self.assembly.draft.reply(request, asked.model);
        }
        Err(self.assembly.draft.came_before(asked.truncated()))
    }
}

/// Whether a line that is in no event may be one of a stream, or its beginning: servers send comments while they think.
fn is_of_stream(line: &str) -> bool {
    let field = line.split_once(':').map_or(line, |(field, _)| field).trim_end();
    ["data", "event", "id", "retry"].iter().any(|name| name.starts_with(field))
}

/// JSON in which half of a character counts as a sign that stands for it: servers that cut between the halves write such texts.
fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| serde_json::from_str(&without_halves(text)).map_err(|_| error))
}

/// The text with `\ufffd` for each escape of half a character that has no other half.
fn without_halves(text: &str) -> String {
    let half = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok().filter(|unit| (0xD800..0xE000).contains(unit))
    };
    let (mut clean, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(next) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let len = match (half(at), half(at + 6)) {
            (Some(0xD800..0xDC00), Some(0xDC00..)) => 12,
            (Some(_), _) => {
                clean.push_str("\\ufffd");
                at += 6;
                continue;
            }
            // An escaped backslash begins no escape.
            _ if next == '\\' => (text.len() - at).min(2),
            _ => next.len_utf8(),
        };
        let end = (at + len..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
        clean.push_str(&text[at..end]);
        at = end;
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_characters_lose_no_answer() {
        for (json, expected) in [
            (r#""a\ud83cb""#, Some("a\u{fffd}b")),
            (r#""\udf24""#, Some("\u{fffd}")),
            (r#""\ud83c\ud83c\udf24""#, Some("\u{fffd}🌤")),
            (r#""\\ud83c 气\ud83c""#, Some("\\ud83c 气\u{fffd}")),
            (r#""\ud83c"#, None),
            ("\\", None),
        ] {
            assert_eq!(parse(json).ok().as_ref().and_then(Value::as_str), expected, "{json}");
        }
    }
}
