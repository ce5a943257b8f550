//! The best sentences that fit.

use std::collections::BTreeSet;

use super::features::{Features, is_unspaced};
use super::rank::rank;
use super::sentences::{Sentence, raw_lines, sentences};
use crate::cut::cut_to;
use crate::tokens::TokenCounter;

/// After so many sentences in a row that do not fit, the rest is not tried.
const MISSES_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Shortened {
    /// Empty only if not even a character fits.
    pub(super) content: String,
    pub(super) is_cut: bool,
}

/// Shortens a text that is not blank.
pub(super) fn shorten(text: &str, tokens_max: usize, counter: &dyn TokenCounter) -> Shortened {
    // No token is longer than this many bytes, so that a long text need not be counted.
    const TOKEN_BYTES_MAX: usize = 128;
    if text.len() / TOKEN_BYTES_MAX <= tokens_max && counter.count(text) <= tokens_max {
        return Shortened { content: text.to_owned(), is_cut: false };
    }
    let mut found = sentences(text);
    if found.is_empty() {
        found = raw_lines(text);
    }
    let features = Features::of(found.iter().map(|sentence| sentence.text.as_str()));
    let order = rank(&features);
    let chosen = choose(&found, &features, &order, tokens_max, counter);
    if !chosen.is_empty() {
        return Shortened { content: chosen, is_cut: false };
    }
    let best = order.first().map_or(text, |&best| &found[best].text);
    Shortened { content: cut_to(best, tokens_max, counter), is_cut: true }
}

fn choose(found: &[Sentence], features: &Features, order: &[usize], tokens_max: usize, counter: &dyn TokenCounter) -> String {
    let mut chosen: Vec<usize> = Vec::new();
    let (mut tokens, mut misses) = (0, 0);
    for &sentence in order {
        if chosen.iter().any(|&other| features.is_repetition(sentence, other)) {
            continue;
        }
        let gap = if chosen.is_empty() { "" } else { " " };
        let more = counter.count(&format!("{gap}{}", found[sentence].text));
        if tokens + more <= tokens_max {
            tokens += more;
            chosen.push(sentence);
            misses = 0;
        } else if misses == MISSES_MAX {
            break;
        } else {
            misses += 1;
        }
    }
    // Tokens of parts need not add up to those of the whole; the least central go until they do.
    while !chosen.is_empty() {
        let content = joined(found, &chosen);
        if counter.count(&content) <= tokens_max {
            return content;
        }
        chosen.pop();
    }
    String::new()
}

/// The sentences in the order of the text, with a new line where a paragraph ended between them.
fn joined(found: &[Sentence], chosen: &[usize]) -> String {
    let mut content = String::new();
    let mut paragraph = None;
    for sentence in chosen.iter().collect::<BTreeSet<_>>().into_iter().map(|&at| &found[at]) {
        if let Some(last) = content.chars().next_back() {
            let is_spaced = last.is_ascii() || !sentence.text.starts_with(is_unspaced);
            content.push_str(if paragraph != Some(sentence.paragraph) {
                "\n"
            } else if is_spaced {
                " "
            } else {
                ""
            });
        }
        content.push_str(&sentence.text);
        paragraph = Some(sentence.paragraph);
    }
    content
}
