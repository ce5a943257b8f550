//! How room is divided, and how texts are cut to it.

use std::borrow::Cow;

use ferrata::state::Message;

use super::pairs::is_blank;
use crate::cut::{CUT_MARK, cut_to};
use crate::tokens::TokenCounter;

/// Tokens of a text that is cut, at least: a few words and the mark.
const CUT_TOKENS_MIN: usize = 8;

/// What a layer asks for, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// With all that it has.
    pub(super) wants: usize,
    /// Cut as far as it can be.
    pub(super) least: usize,
    /// What it gets before the others get more than theirs.
    pub(super) share: usize,
}

/// Divides room among layers, the weightiest first: each gets its share if it wants so much, and what is left over goes round. If the shares do not fit,
/// the lightest give way. `None` if not even the least fits.
pub(super) fn divide<const N: usize>(room: usize, demands: [Demand; N]) -> Option<[usize; N]> {
    let mut given = demands.map(|demand| demand.wants.min(demand.share).max(demand.least));
    for at in (0..N).rev() {
        let over = given.iter().sum::<usize>().saturating_sub(room);
        given[at] -= over.min(given[at] - demands[at].least);
    }
    let mut left = room.checked_sub(given.iter().sum())?;
    for at in 0..N {
        let more = left.min(demands[at].wants.saturating_sub(given[at]));
        given[at] += more;
        left -= more;
    }
    Some(given)
}

/// The fewest tokens that these messages can be cut to.
pub(super) fn least(messages: &[Cow<'_, Message>], counter: &dyn TokenCounter) -> usize {
    let tokens = |message: &Cow<'_, Message>| frame(message, counter) + counter.count(&message.content).min(CUT_TOKENS_MIN);
    messages.iter().map(tokens).sum()
}

/// The messages with their texts cut, the longest most, until they have at most so many tokens together, and which ones were cut. `None` if their calls and
/// frames are too large, or nothing would be left of a text.
pub(super) fn cut<'m>(
    messages: &[Cow<'m, Message>],
    tokens_max: usize,
    counter: &dyn TokenCounter,
) -> Option<(Vec<Cow<'m, Message>>, Vec<usize>)> {
    let sizes: Vec<usize> = messages.iter().map(|message| counter.count(&message.content)).collect();
    let frames: usize = messages.iter().map(|message| frame(message, counter)).sum();
    let mut room = tokens_max.checked_sub(frames)?;
    loop {
        let mut places = Vec::new();
        let fitted: Vec<_> = (messages.iter().zip(&sizes).zip(levelled(&sizes, room)).enumerate())
            .map(|(at, ((message, size), most))| {
                if *size <= most {
                    return message.clone();
                }
                places.push(at);
                Cow::Owned(Message { content: cut_text(&message.content, most, counter), ..Message::clone(message) })
            })
            .collect();
        // Tokens of a message's parts need not add up to its own.
        let tokens: usize = fitted.iter().map(|message| counter.count_message(message)).sum();
        if tokens <= tokens_max {
            return Some((fitted, places)).filter(|(fitted, _)| !fitted.iter().any(|message| is_blank(message)));
        }
        room = room.checked_sub(tokens - tokens_max)?;
    }
}

/// The beginning of a text, and at least the mark.
fn cut_text(text: &str, tokens_max: usize, counter: &dyn TokenCounter) -> String {
    let cut = cut_to(text.trim_start(), tokens_max, counter);
    let needs_mark = cut.trim().is_empty() && counter.count(CUT_MARK) <= tokens_max;
    if needs_mark { CUT_MARK.to_owned() } else { cut }
}

fn frame(message: &Message, counter: &dyn TokenCounter) -> usize {
    counter.count_message(message).saturating_sub(counter.count(&message.content))
}

/// The most for each, so that all fit and none that is cut is shorter than another one that is cut.
fn levelled(sizes: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&at| sizes[at]);
    let (mut most, mut left) = (vec![0; sizes.len()], room);
    for (done, &at) in order.iter().enumerate() {
        most[at] = sizes[at].min(left / (sizes.len() - done));
        left -= most[at];
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(wants: usize, least: usize, share: usize) -> Demand {
        Demand { wants, least, share }
    }

    #[test]
    fn what_one_does_not_take_goes_round_in_order() {
        assert_eq!(divide(100, [demand(10, 5, 30), demand(90, 0, 30), demand(90, 0, 40)]), Some([10, 50, 40]));
        assert_eq!(divide(40, [demand(30, 20, 30), demand(90, 0, 30), demand(90, 0, 40)]), Some([30, 10, 0]));
        assert_eq!(divide(25, [demand(30, 20, 30), demand(90, 0, 30)]), Some([25, 0]));
        assert_eq!(divide(15, [demand(30, 20, 30), demand(90, 0, 30)]), None);
        assert_eq!(divide(15, [demand(30, 10, 5)]), Some([15]));
    }

    #[test]
    fn something_is_left_of_a_text_that_is_cut() {
        let counter = crate::Tiktoken::default();
        let message = Message::assistant(" \n".repeat(200) + "The agent saved a checkpoint after every node.");
        let (cut, places) = cut(&[Cow::Borrowed(&message)], 12, &counter).unwrap();
        assert_eq!((cut[0].content.as_str(), places), ("The agent saved a checkpoint after every […]", vec![0]));
        assert_eq!(cut_text("𓀀𓀁", 2, &counter), CUT_MARK);
    }

    #[test]
    fn the_longest_texts_give_way() {
        assert_eq!(levelled(&[100, 5, 40], 65), [30, 5, 30]);
        assert_eq!(levelled(&[1, 2], 65), [1, 2]);
        assert_eq!(levelled(&[], 65), [0; 0]);
    }
}
