//! Any amount of text into a few tokens, piece by piece.

use std::future::Future;

use ferrata::state::Message;

use super::error::SummaryError;
use super::structured::{Form, Summary};
use crate::cut::{CUT_MARK, at_word, cut_to};
use crate::model::{ChatReply, ChatRequest, Finish};
use crate::tokens::TokenCounter;

/// Tokens for the tags around the summary so far and the next piece.
const TAGS_TOKENS: usize = 24;

/// A reply that begins with `Error` and is no longer than this is taken for a message of the server, not for a summary.
const ERROR_TEXT_BYTES_MAX: usize = 200;

/// What a reply is that is no summary of the schema.
const NO_FIT: &str = "what does not fit the schema";

/// How often one piece is asked for, if the answers do not fit the schema.
const ROUNDS: usize = 2;

/// What is condensed, and to what size.
#[derive(Debug)]
pub(super) struct Task<'a> {
    pub(super) instructions: &'a str,
    /// The most tokens of text in one request, the summary so far included.
    pub(super) chunk: usize,
    /// The most tokens of the result.
    pub(super) tokens_max: usize,
    /// The form of the result, if it is not plain text.
    pub(super) form: Option<Form>,
    pub(super) counter: &'a dyn TokenCounter,
}

impl Task<'_> {
    /// Condenses the texts, in order, on top of what has been condensed before.
    pub(super) async fn run<E, F, Fut>(&self, before: String, texts: &[String], mut call: F) -> Result<String, SummaryError<E>>
    where
        F: FnMut(ChatRequest) -> Fut,
        Fut: Future<Output = Result<ChatReply, E>>,
    {
        if self.tokens_max == 0 {
            // No answer could be kept, so that none is paid for.
            let what = "the share of the summary is nothing, and it has at least".to_owned();
            return Err(SummaryError::CannotFit { what, tokens: 1, over: 1, budget: 0 });
        }
        // A summary made under another setting can be too long to stand beside a piece; then it is condensed like any other text.
        let (mut summary, mut texts) = (before, texts.to_vec());
        if self.counter.count(&summary) > self.tokens_max {
            texts.insert(0, std::mem::take(&mut summary));
        }
        let pieces = self.pieces(&texts);
        let mut may_condense_again = true;
        for (at, piece) in pieces.iter().enumerate() {
            let together = if summary.is_empty() { piece.clone() } else { format!("{summary}\n\n{piece}") };
            if self.form.is_none() && self.counter.count(&together) <= self.tokens_max {
                summary = together;
                continue;
            }
            let place = (at + 1, pieces.len());
            summary = self.answered(self.request(&summary, piece), place, &mut call).await?;
            if self.counter.count(&summary) > self.tokens_max && may_condense_again {
                // The summary has outgrown its share: a summary of the summary. A model that does not keep to a limit then is not asked to again.
                let whole = cut_to_fit(&summary, self.chunk, self.counter);
                summary = self.answered(self.request("", &whole), place, &mut call).await?;
                may_condense_again = self.counter.count(&summary) <= self.tokens_max;
            }
            summary = self.fitted(summary);
            if summary.is_empty() {
                let what = "a text of which not one character fits";
                return Err(SummaryError::NoSummary { piece: place.0, pieces: place.1, what });
            }
        }
        Ok(summary)
    }

    /// The text of the model's answer, not yet cut to size.
    async fn answered<E, F, Fut>(
        &self,
        mut request: ChatRequest,
        (piece, pieces): (usize, usize),
        call: &mut F,
    ) -> Result<String, SummaryError<E>>
    where
        F: FnMut(ChatRequest) -> Fut,
        Fut: Future<Output = Result<ChatReply, E>>,
    {
        let mut what = "";
        for _ in 0..if self.form.is_some() { ROUNDS } else { 1 } {
            let reply = call(request.clone()).await.map_err(|source| SummaryError::Call { piece, pieces, source })?;
            let text = checked(&reply).map_err(|what| SummaryError::NoSummary { piece, pieces, what })?;
            let Some(form) = &self.form else { return Ok(text) };
            match form.read(&text) {
                Ok(text) => return Ok(text),
                Err(wrong) => {
                    what = NO_FIT;
                    let again = format!(
                        "That is not what was asked for: {wrong}. Answer with JSON that fits the schema, and nothing else."
                    );
                    let said = cut_to_fit(&reply.content, self.tokens_max, self.counter);
                    request = request.message(Message::assistant(said)).message(Message::user(again));
                }
            }
        }
        Err(SummaryError::NoSummary { piece, pieces, what })
    }

    fn request(&self, summary: &str, piece: &str) -> ChatRequest {
        let text = match summary {
            "" => piece.to_owned(),
            summary => format!("<summary-so-far>\n{summary}\n</summary-so-far>\n<next>\n{piece}\n</next>"),
        };
        let request = ChatRequest::condense(self.instructions, text, u32::try_from(self.tokens_max).unwrap_or(u32::MAX));
        match &self.form {
            Some(form) => request.schema("summary", form.schema.clone()),
            None => request,
        }
    }

    /// The summary cut to size if it is too long.
    fn fitted(&self, summary: String) -> String {
        if self.counter.count(&summary) <= self.tokens_max {
            return summary;
        }
        let parts = self.form.as_ref().and_then(|_| Summary::read(&summary)?.fitted(self.tokens_max, self.counter));
        parts.unwrap_or_else(|| cut_to(&summary, self.tokens_max, self.counter))
    }

    /// The texts packed and split into pieces that leave room for the summary so far.
    fn pieces(&self, texts: &[String]) -> Vec<String> {
        let room = self.chunk.saturating_sub(self.tokens_max + TAGS_TOKENS).max(1);
        let mut packing = Packing::default();
        for text in texts {
            let tokens = self.counter.count(text) + 1;
            if tokens <= room {
                packing.add(text, tokens, room);
            } else {
                packing.end_piece();
                self.split(text, room, &mut packing.pieces);
            }
        }
        packing.end_piece();
        packing.pieces
    }

    /// Splits a text that is too long for one piece, at the end of a paragraph, line or word if one is near.
    fn split(&self, text: &str, room: usize, pieces: &mut Vec<String>) {
        let mut rest = text.trim();
        while !rest.is_empty() {
            let fitting = self.counter.truncate(rest, room).len();
            // A single character can have more tokens than there is room for; it must not hold up the rest.
            let end = fitting.max(rest.chars().next().map_or(0, char::len_utf8));
            let piece = at_break(rest, end);
            pieces.push(piece.to_owned());
            rest = rest[piece.len()..].trim_start();
        }
    }
}

/// Whether a reply is one to go on with: a summary, or something else than what was asked for, if the model can be told so once more.
pub(crate) fn is_summary(request: &ChatRequest, reply: &ChatReply) -> Result<(), &'static str> {
    let text = checked(reply)?;
    let is_last = request.messages.len() > 2;
    if is_last && request.schema.is_some() && Form::new().read(&text).is_err() { Err(NO_FIT) } else { Ok(()) }
}

/// The text of a reply; else what it is instead of a summary.
fn checked(reply: &ChatReply) -> Result<String, &'static str> {
    let text = reply.content.trim();
    if reply.finish == Finish::ContentFilter {
        return Err("what its content filter left");
    }
    if reply.refused {
        return Err("a refusal");
    }
    if text.is_empty() {
        return Err("no text");
    }
    if text.len() <= ERROR_TEXT_BYTES_MAX && text.to_ascii_lowercase().starts_with("error") {
        return Err("an error text");
    }
    let is_cut = reply.finish == Finish::Length && !text.ends_with(CUT_MARK);
    Ok(if is_cut { format!("{text} {CUT_MARK}") } else { text.to_owned() })
}

fn cut_to_fit(text: &str, tokens_max: usize, counter: &dyn TokenCounter) -> String {
    if counter.count(text) <= tokens_max { text.to_owned() } else { cut_to(text, tokens_max, counter) }
}

/// The beginning up to `end`, or to the last break in its last quarter. Never empty for a text that does not start with a space.
fn at_break(text: &str, end: usize) -> &str {
    let part = &text[..end];
    if end == text.len() {
        return part;
    }
    let best = ["\n\n", "\n", "。", ". "]
        .into_iter()
        .find_map(|mark| part.rfind(mark).map(|at| at + mark.len()).filter(|at| *at > end - end / 4));
    let piece = best.map_or_else(|| at_word(text, end), |at| part[..at].trim_end());
    if piece.is_empty() { part } else { piece }
}

/// Small texts gathered until a piece is full.
#[derive(Default)]
struct Packing {
    pieces: Vec<String>,
    piece: String,
    tokens: usize,
}

impl Packing {
    fn add(&mut self, text: &str, tokens: usize, room: usize) {
        if self.tokens + tokens > room {
            self.end_piece();
        }
        if !self.piece.is_empty() {
            self.piece.push('\n');
        }
        self.piece.push_str(text);
        self.tokens += tokens;
    }

    fn end_piece(&mut self) {
        if !self.piece.is_empty() {
            self.pieces.push(std::mem::take(&mut self.piece));
        }
        self.tokens = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Tiktoken;

    fn task(chunk: usize, tokens_max: usize) -> Task<'static> {
        Task { instructions: "", chunk, tokens_max, form: None, counter: const { &Tiktoken::o200k() } }
    }

    #[test]
    fn pieces_lose_nothing_and_fit() {
        let texts =
            ["User: short".to_owned(), "检查点保存完成，等待批准。".repeat(100), "a b\n\nc. ".repeat(300), "🌤️👩‍💻".repeat(50)];
        let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        for (chunk, tokens_max) in [(60, 20), (100, 30), (400, 100), (100_000, 10)] {
            let task = task(chunk, tokens_max);
            let pieces = task.pieces(&texts);
            assert_eq!(letters(&pieces.concat()), letters(&texts.concat()), "{chunk}");
            for piece in pieces {
                let request = task.request(&"summary ".repeat(tokens_max - 1), &piece);
                assert!(task.counter.count(&request.messages[1].content) <= chunk, "{chunk}");
            }
        }
    }

    #[test]
    fn replies_that_are_no_summary() {
        let task = task(100, 20);
        for content in ["", " \n", "Error: timeout", "error 503"] {
            assert!(checked(&ChatReply::new(content)).is_err(), "{content}");
        }
        assert!(checked(&ChatReply::new("half").finish(Finish::ContentFilter)).is_err());
        let refusal = ChatReply { refused: true, ..ChatReply::new("I cannot help with that.") };
        assert_eq!(checked(&refusal), Err("a refusal"));
        assert_eq!(checked(&ChatReply::new(" A table for 6. ")).unwrap(), "A table for 6.");
        assert_eq!(checked(&ChatReply::new("A table for").finish(Finish::Length)).unwrap(), "A table for […]");
        let cut = task.fitted("A table for 6. ".repeat(20));
        assert!(cut.ends_with(CUT_MARK) && task.counter.count(&cut) <= 20, "{cut}");
    }
}
