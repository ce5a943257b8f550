//! Calls and their results: a list in which one lacks the other is refused by every endpoint.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use ferrata::state::{Message, Role};

/// Stands for the result of a call that has none.
pub(super) const NO_RESULT: &str = "[This call has no result: it was never answered.]";

/// Messages that are sent together: one alone, or one with calls and the results of all of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// The message that is alone or has the calls.
    pub(super) first: usize,
    /// For each of its calls, in their order, the place of its result; `None` if it has none.
    pub(super) results: Vec<Option<usize>>,
    /// The last place of them all.
    pub(super) last: usize,
}

impl Unit {
    fn of(first: usize, calls: usize) -> Self {
        Self { first, results: vec![None; calls], last: first }
    }

    /// The messages as they are sent: results right behind their calls, and a word in the place of one that is missing.
    pub(super) fn sent<'m>(&self, messages: &'m [Message]) -> Vec<Cow<'m, Message>> {
        let caller = sendable(&messages[self.first]);
        let results: Vec<_> = caller
            .tool_calls
            .iter()
            .zip(&self.results)
            .map(|(call, result)| match result {
                Some(at) => sendable(&messages[*at]),
                None => {
                    let mut message = Message::new(Role::Tool, NO_RESULT);
                    message.tool_call_id = Some(call.id.clone());
                    Cow::Owned(message)
                }
            })
            .collect();
        [caller].into_iter().chain(results).collect()
    }

    /// Ids of calls that have no result.
    pub(super) fn unanswered<'m>(&self, messages: &'m [Message]) -> Vec<Cow<'m, str>> {
        let missing = self.results.iter().enumerate().filter(|(_, result)| result.is_none());
        let caller = sendable(&messages[self.first]);
        missing.map(|(call, _)| Cow::Owned(caller.tool_calls[call].id.clone())).collect()
    }
}

/// The messages at these places as units, in order, and the places of results that have no call.
pub(super) fn units(messages: &[Message], places: impl Iterator<Item = usize>) -> (Vec<Unit>, Vec<usize>) {
    let (mut units, mut stray): (Vec<Unit>, Vec<usize>) = (Vec::new(), Vec::new());
    // Calls that wait, by id: of two with one id the newest gets the result.
    let mut open: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    for at in places {
        let message = &messages[at];
        if message.role == Role::Tool {
            let call = message.tool_call_id.as_deref().and_then(|id| open.get_mut(id)?.pop());
            match call {
                Some((unit, call)) => {
                    units[unit].results[call] = Some(at);
                    units[unit].last = at;
                }
                None => stray.push(at),
            }
            continue;
        }
        let mut calls = 0;
        if message.role == Role::Assistant {
            for call in distinct(message) {
                open.entry(call).or_default().push((units.len(), calls));
                calls += 1;
            }
        }
        units.push(Unit::of(at, calls));
    }
    (units, stray)
}

/// The ids of a message's calls; of two with one id the first counts, since no result could say which one it is of.
fn distinct(message: &Message) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    message.tool_calls.iter().map(|call| call.id.as_str()).filter(move |id| seen.insert(*id))
}

/// The message without what its role cannot have.
pub(super) fn sendable(message: &Message) -> Cow<'_, Message> {
    let may_call = message.role == Role::Assistant;
    let is_odd = message.tool_call_id.is_some() && message.role != Role::Tool || !may_call && !message.tool_calls.is_empty();
    if !is_odd && (message.tool_calls.len() < 2 || distinct(message).count() == message.tool_calls.len()) {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    if message.role != Role::Tool {
        message.tool_call_id = None;
    }
    let mut seen = HashSet::new();
    message.tool_calls.retain(|call| may_call && seen.insert(call.id.clone()));
    Cow::Owned(message)
}

/// Whether there is nothing in it that could be sent.
pub(super) fn is_blank(message: &Message) -> bool {
    message.role != Role::Tool
        && message.content.trim().is_empty()
        && (message.role != Role::Assistant || message.tool_calls.is_empty())
}

#[cfg(test)]
mod tests {
    use ferrata::state::ToolCall;

    use super::*;

    fn calls(ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCall { id: (*id).to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        Message { tool_calls: ids.iter().map(call).collect(), ..Message::assistant("") }
    }

    fn result(id: &str) -> Message {
        Message { tool_call_id: Some(id.to_owned()), ..Message::new(Role::Tool, "r") }
    }

    #[test]
    fn results_go_to_the_newest_call_that_waits() {
        let messages = [calls(&["a", "b"]), calls(&["a"]), result("a"), result("a"), result("a"), result("x")];
        let (units, stray) = units(&messages, 0..messages.len());
        assert_eq!(units[0].results, [Some(3), None]);
        assert_eq!(units[1].results, [Some(2)]);
        assert_eq!((units[0].last, stray), (3, vec![4, 5]));
        let sent = units[0].sent(&messages);
        assert_eq!(sent[2].content, NO_RESULT);
        assert_eq!(units[0].unanswered(&messages), ["b"]);
    }

    #[test]
    fn what_a_role_cannot_have_is_not_sent() {
        let user = Message { role: Role::User, content: "Hi".to_owned(), tool_call_id: Some("a".to_owned()), ..calls(&["a"]) };
        assert_eq!(*sendable(&user), Message::user("Hi"));
        assert_eq!(sendable(&calls(&["a", "a"])).tool_calls.len(), 1);
        assert!(is_blank(&Message::user(" \n")) && !is_blank(&calls(&["a"])) && !is_blank(&result("a")));
    }
}
