//! Counting tokens.

use std::fmt::{self, Debug};
use std::sync::Arc;

use ferrata::state::Message;
use tiktoken_rs::CoreBPE;

use crate::model::{AnswerSchema, ChatRequest, ToolSpec};

/// Tokens that the chat format spends around each message and each tool call.
const FRAMING_TOKENS: usize = 4;

/// Tokens that the chat format spends around each tool that is offered.
const TOOL_FRAMING_TOKENS: usize = 8;

/// Tokens that every answer is primed with.
const PRIMING_TOKENS: usize = 3;

/// Texts that are longer are counted in parts: the pattern that splits text gives up on a run of a million spaces or capital letters.
const PART_BYTES: usize = 100_000;

/// Counts tokens, so that what is sent can be kept under a budget.
///
/// ```
/// use ferrata_nodes::TokenCounter;
///
/// /// One token for each character.
/// #[derive(Debug)]
/// struct Chars;
///
/// impl TokenCounter for Chars {
///     fn count(&self, text: &str) -> usize {
///         text.chars().count()
///     }
/// }
///
/// assert_eq!(Chars.truncate("Grüße", 3), "Grü");
/// assert_eq!(Chars.truncate("Grüße", 99), "Grüße");
/// ```
pub trait TokenCounter: Send + Sync + Debug {
    /// The tokens of a text.
    fn count(&self, text: &str) -> usize;

    /// The tokens of a message as sent: its text, its tool calls, and 4 for the frame around it and around each call.
    fn count_message(&self, message: &Message) -> usize {
        let calls = message
            .tool_calls
            .iter()
            .map(|call| FRAMING_TOKENS + self.count(&call.id) + self.count(&call.name) + self.count(&call.arguments));
        let answered = message.tool_call_id.as_deref().map_or(0, |id| self.count(id));
        FRAMING_TOKENS + self.count(&message.content) + answered + calls.sum::<usize>()
    }

    /// The tokens of a request as sent: its messages, its tools and its schema, and 3 that every answer is primed with.
    ///
    /// How a tool is framed differs between models; it is counted as its JSON and 8, which is more than the models of OpenAI take.
    fn count_request(&self, request: &ChatRequest) -> usize {
        let messages: usize = request.messages.iter().map(|message| self.count_message(message)).sum();
        messages + self.count_around(&request.tools, request.schema.as_ref())
    }

    /// What a request takes beside its messages.
    fn count_around(&self, tools: &[ToolSpec], schema: Option<&AnswerSchema>) -> usize {
        let tool = |tool: &ToolSpec| {
            TOOL_FRAMING_TOKENS + self.count(&tool.name) + self.count(&tool.description) + self.count(&tool.arguments.to_string())
        };
        let schema =
            schema.map_or(0, |schema| FRAMING_TOKENS + self.count(&schema.name) + self.count(&schema.schema.to_string()));
        PRIMING_TOKENS + tools.iter().map(tool).sum::<usize>() + schema
    }

    /// A beginning of the text with at most `tokens_max` tokens, cut between characters; the whole text if it fits.
    ///
    /// What is returned never counts more than `tokens_max`. It is as long as possible if a longer text never counts less.
    fn truncate<'t>(&self, text: &'t str, tokens_max: usize) -> &'t str {
        let (mut fits, mut over) = bracket(text, tokens_max, &|part| self.count(part));
        while let Some(middle) = boundary_between(text, fits, over) {
            if self.count(&text[..middle]) <= tokens_max {
                fits = middle;
            } else {
                over = middle;
            }
        }
        &text[..fits]
    }
}

impl<T: TokenCounter + ?Sized> TokenCounter for Arc<T> {
    fn count(&self, text: &str) -> usize {
        (**self).count(text)
    }

    fn count_message(&self, message: &Message) -> usize {
        (**self).count_message(message)
    }

    fn count_request(&self, request: &ChatRequest) -> usize {
        (**self).count_request(request)
    }

    fn count_around(&self, tools: &[ToolSpec], schema: Option<&AnswerSchema>) -> usize {
        (**self).count_around(tools, schema)
    }

    fn truncate<'t>(&self, text: &'t str, tokens_max: usize) -> &'t str {
        (**self).truncate(text, tokens_max)
    }
}

/// Ends of a beginning that fits and of one that does not. Doubling from the budget keeps the cost near the part that is kept: a long
/// text is never counted as a whole.
fn bracket(text: &str, tokens_max: usize, count: &dyn Fn(&str) -> usize) -> (usize, usize) {
    let (mut fits, mut step) = (0, tokens_max.saturating_mul(4).max(16));
    loop {
        let end = boundary_below(text, step);
        if count(&text[..end]) > tokens_max {
            return (fits, end);
        }
        fits = end;
        if end == text.len() {
            return (end, end);
        }
        step = step.saturating_mul(2);
    }
}

/// A character boundary strictly between the two, near the middle.
fn boundary_between(text: &str, low: usize, high: usize) -> Option<usize> {
    let middle = boundary_below(text, low + high.saturating_sub(low) / 2);
    if middle > low {
        return Some(middle);
    }
    (low + 1..high).find(|&at| text.is_char_boundary(at))
}

/// The last character boundary up to there.
pub(crate) fn boundary_below(text: &str, end: usize) -> usize {
    (0..=end.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Counts with the vocabularies of OpenAI's models.
///
/// Text is encoded as ordinary text: `<|endoftext|>` in it is seven tokens of text, never a control token. A vocabulary is loaded once
/// for the whole program, at the first count; it is part of the program, nothing is downloaded. For models with another vocabulary the
/// count is an estimate.
///
/// ```
/// use ferrata_nodes::{Tiktoken, TokenCounter};
/// assert_eq!(Tiktoken::default().count("检查点保存完成，等待批准。"), 8);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Tiktoken {
    vocabulary: Vocabulary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Vocabulary {
    #[default]
    O200k,
    Cl100k,
}

impl Tiktoken {
    /// The vocabulary `o200k_base` of GPT-4o and later.
    pub const fn o200k() -> Self {
        Self { vocabulary: Vocabulary::O200k }
    }

    /// The older vocabulary `cl100k_base` of GPT-4 and GPT-3.5.
    pub const fn cl100k() -> Self {
        Self { vocabulary: Vocabulary::Cl100k }
    }

    fn encoder(self) -> &'static CoreBPE {
        match self.vocabulary {
            Vocabulary::O200k => tiktoken_rs::o200k_base_singleton(),
            Vocabulary::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        }
    }
}

impl TokenCounter for Tiktoken {
    fn count(&self, text: &str) -> usize {
        let (mut rest, mut tokens) = (text, 0);
        while rest.len() > PART_BYTES {
            let (part, behind) = rest.split_at(part_end(rest));
            tokens += self.encoder().count_ordinary(part);
            rest = behind;
        }
        tokens + self.encoder().count_ordinary(rest)
    }
}

/// Where a part of a long text ends: before a space between two letters, where no token stands over it, or at the size itself if there is no such place near.
fn part_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_between =
        |at: &usize| bytes[*at] == b' ' && bytes[at - 1].is_ascii_alphabetic() && bytes[at + 1].is_ascii_alphabetic();
    (PART_BYTES / 2..PART_BYTES).rev().find(is_between).unwrap_or_else(|| boundary_below(text, PART_BYTES))
}

impl Debug for Tiktoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tiktoken").field(&self.vocabulary).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHINESE: &str = "智能体在每个节点之后保存检查点，然后等待人工批准下一步操作。";
    const KOREAN: &str = "에이전트는 각 노드 이후에 체크포인트를 저장하고 승인을 기다립니다.";
    const THAI: &str = "ตัวแทนบันทึกจุดตรวจสอบหลังจากแต่ละโหนดและรอการอนุมัติ";

    /// Texts and their true counts in `o200k_base`.
    fn table() -> Vec<(String, usize)> {
        let long = "检查点保存完成，等待批准。".chars().cycle().take(10_000).collect();
        let rows = [
            ("The agent saved a checkpoint after every node and then waited for a person to approve the next step.", 20),
            (CHINESE, 18),
            ("エージェントは各ノードの後にチェックポイントを保存し、承認を待ちます。", 24),
            (KOREAN, 21),
            (THAI, 25),
            ("🔥🎉💯🧪🚀🌤️👩‍💻", 18),
            (r#"{"id":"4e0b7a52-91cd-4f3e-8a66-0d2c9f17b3e8","qty":12,"price":19.95,"ok":true}"#, 49),
            ("pU3KGCUwux1tEyze1iN7LtkeP3IfyxlxF0SU1kk8nVw0YL4xIB5p/tqg7ui5mX9cfCmZ/a/lkyU81lSvTfrXFCegrrP+6SMv", 70),
            ("31415926535897932384626433832795028841971693993751", 17),
        ];
        rows.map(|(text, tokens)| (text.to_owned(), tokens)).into_iter().chain([(long, 6_154)]).collect()
    }

    #[test]
    fn counts_equal_the_reference() {
        for (text, tokens) in table() {
            assert_eq!(Tiktoken::o200k().count(&text), tokens, "{text:.40}");
        }
        let long = &table()[9].0;
        for (text, tokens) in [(CHINESE, 30), (KOREAN, 37), (THAI, 52), (long, 10_000)] {
            assert_eq!(Tiktoken::cl100k().count(text), tokens, "{text:.40}");
        }
    }

    #[test]
    fn truncated_text_fits_and_is_not_shorter_than_needed() {
        let counter = Tiktoken::default();
        for (text, tokens) in table() {
            for tokens_max in [0, 1, 2, 7, tokens - 1, tokens, tokens + 1] {
                let part = counter.truncate(&text, tokens_max);
                assert!(text.starts_with(part) && counter.count(part) <= tokens_max, "{tokens_max} of {text:.40}");
                assert_eq!(part.len() == text.len(), tokens <= tokens_max, "{tokens_max} of {text:.40}");
                assert!(tokens_max < 2 || counter.count(part) + 3 >= tokens_max.min(tokens), "{tokens_max} of {text:.40}");
            }
        }
    }

    /// A web page can have any of these, and a count that panics would end the thread for good.
    #[test]
    fn texts_of_any_kind_and_length_are_counted() {
        for (text, counter) in [(" ", Tiktoken::o200k()), ("\t", Tiktoken::cl100k())] {
            assert!(counter.count(&(text.repeat(1_100_000) + "x")) > 0, "{text:?}");
        }
    }

    #[test]
    fn parts_of_a_long_text_count_as_the_whole() {
        let text = "The agent's log, 12 entries:\n  saved (twice).  ".repeat(9_000);
        for counter in [Tiktoken::o200k(), Tiktoken::cl100k()] {
            assert!(text.len() > 4 * PART_BYTES);
            assert_eq!(counter.count(&text), counter.encoder().count_ordinary(&text));
        }
    }

    #[test]
    fn control_tokens_are_text() {
        assert_eq!(Tiktoken::default().count("<|endoftext|>"), 7);
    }

    #[test]
    fn any_length_of_white_space_is_counted_and_cut() {
        let text = " ".repeat(1_100_000) + "x";
        let counter = Tiktoken::default();
        assert!((1_000..1_100_000).contains(&counter.count(&text)));
        let part = counter.truncate(&text, 100);
        assert!(text.starts_with(part) && counter.count(part) <= 100);
    }

    #[test]
    fn a_message_counts_its_calls_and_its_frame() {
        let counter = Tiktoken::default();
        let mut message = Message::assistant("");
        assert_eq!(counter.count_message(&message), 4);
        let call = ferrata::state::ToolCall { id: "c".into(), name: "add".into(), arguments: "{}".into() };
        message.tool_calls.push(call);
        assert_eq!(counter.count_message(&message), 11);
    }
}
