//! Cutting text to a size, so that a reader sees that it was cut.

use crate::tokens::{TokenCounter, boundary_below};

/// Stands where text was cut off.
pub(crate) const CUT_MARK: &str = "[…]";

/// The beginning of a text that does not fit, with a mark at its end, in at most `tokens_max` tokens.
///
/// It is cut at a space if one is near. Where not even the mark fits, what fits comes without it; that may be nothing.
pub(crate) fn cut_to(text: &str, tokens_max: usize, counter: &dyn TokenCounter) -> String {
    let mut room = tokens_max;
    while room > 0 {
        let part = at_word(text, counter.truncate(text, room).len());
        if part.is_empty() {
            break;
        }
        let marked = format!("{part} {CUT_MARK}");
        let tokens = counter.count(&marked);
        if tokens <= tokens_max {
            return marked;
        }
        room = room.saturating_sub(tokens - tokens_max);
    }
    counter.truncate(text, tokens_max).trim_end().to_owned()
}

/// The beginning up to `end`, or up to the last space in the last quarter of it.
pub(crate) fn at_word(text: &str, end: usize) -> &str {
    let part = &text[..end];
    let ends_word = end == text.len() || text[end..].starts_with(char::is_whitespace);
    let near = boundary_below(part, end - end / 4);
    match part.rfind(char::is_whitespace).filter(|at| !ends_word && *at >= near && *at > 0) {
        Some(at) => part[..at].trim_end(),
        None => part.trim_end(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Tiktoken;

    #[test]
    fn cut_text_fits_and_shows_it() {
        let counter = Tiktoken::default();
        for text in [
            "The agent saved a checkpoint after every node. ".repeat(20),
            "检查点".repeat(90),
            "🌤️👩‍💻".repeat(40),
            "x".repeat(900),
        ] {
            for tokens_max in 1..40 {
                let cut = cut_to(&text, tokens_max, &counter);
                assert!(counter.count(&cut) <= tokens_max, "{tokens_max} {cut}");
                assert!(tokens_max < 12 || cut.ends_with(CUT_MARK), "{tokens_max} {cut}");
            }
        }
        assert_eq!(cut_to("The agent saved a checkpoint after every node", 6, &counter), "The agent saved a […]");
    }
}
