//! Which calls of a conversation have no result.

use ferrata::state::{Message, Role, ToolCall};

/// What stands for the result of a call that was given up.
const GIVEN_UP: &str =
    "There is no result: the conversation went on before this call came to its end. Whether anything was done is not known.";

/// The calls of the last message of the model that have no result yet; none if somebody has spoken since.
pub(super) fn open_calls(messages: &[Message]) -> Vec<&ToolCall> {
    let Some(asked) = messages.iter().rposition(|message| message.role != Role::Tool) else { return Vec::new() };
    without_result(&messages[asked], &messages[asked + 1..])
}

/// The conversation with a result for each call that was given up, behind its call; `None` if none is missing. Endpoints refuse a
/// conversation with a call that has no result.
pub(crate) fn settled(messages: &[Message]) -> Option<Vec<Message>> {
    let mut missing = Vec::new();
    for (at, message) in messages.iter().enumerate().filter(|(_, message)| !message.tool_calls.is_empty()) {
        let results = messages[at + 1..].iter().take_while(|message| message.role == Role::Tool).count();
        let end = at + 1 + results;
        let open = without_result(message, &messages[at + 1..end]);
        missing.extend(open.into_iter().map(|call| (end, result(call, GIVEN_UP))));
    }
    if missing.is_empty() {
        return None;
    }
    let mut all = messages.to_vec();
    // From the end, so that the places before it stay.
    missing.into_iter().rev().for_each(|(end, result)| all.insert(end, result));
    Some(all)
}

/// The result of a call as a message: data in a role of its own.
pub(super) fn result(call: &ToolCall, content: impl Into<String>) -> Message {
    Message { tool_call_id: Some(call.id.clone()), ..Message::new(Role::Tool, content) }
}

/// Ids are the model's, and some models use one twice: each result is that of one call.
fn without_result<'m>(message: &'m Message, results: &[Message]) -> Vec<&'m ToolCall> {
    let mut ids: Vec<&str> = results.iter().filter_map(|result| result.tool_call_id.as_deref()).collect();
    let mut has_result = |call: &ToolCall| ids.iter().position(|id| *id == call.id).map(|at| ids.remove(at)).is_some();
    message.tool_calls.iter().filter(|call| !has_result(call)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCall { id: (*id).to_owned(), name: "read".to_owned(), arguments: "{}".to_owned() };
        Message { tool_calls: ids.iter().map(call).collect(), ..Message::assistant("") }
    }

    fn told(id: &str) -> Message {
        Message { tool_call_id: Some(id.to_owned()), ..Message::new(Role::Tool, "told") }
    }

    fn ids(messages: &[Message]) -> Vec<&str> {
        open_calls(messages).into_iter().map(|call| call.id.as_str()).collect()
    }

    #[test]
    fn the_last_calls_without_a_result_are_open() {
        assert!(ids(&[]).is_empty() && ids(&[told("a")]).is_empty() && ids(&[Message::user("Hi")]).is_empty());
        assert_eq!(ids(&[calls(&["a", "b", "c"]), told("b")]), ["a", "c"]);
        assert_eq!(ids(&[calls(&["a", "a", ""]), told("a")]), ["a", ""], "an id may be used twice, or be empty");
        assert!(ids(&[calls(&["a"]), Message::user("Stop")]).is_empty(), "somebody spoke since");
        assert!(ids(&[calls(&["a"]), told("a"), Message::assistant("Done.")]).is_empty());
    }

    #[test]
    fn calls_that_were_given_up_get_a_result_behind_them() {
        assert_eq!(settled(&[calls(&["a"]), told("a"), Message::user("Hi"), told("stray")]), None);
        let before = [Message::user("Go"), calls(&["a", "b"]), told("b"), Message::user("Stop"), calls(&["c", "d"])];
        let after = settled(&before).unwrap();
        let shape: Vec<_> = after.iter().map(|message| (message.role, message.tool_call_id.as_deref())).collect();
        use Role::{Assistant, Tool, User};
        let expected = [
            (User, None),
            (Assistant, None),
            (Tool, Some("b")),
            (Tool, Some("a")),
            (User, None),
            (Assistant, None),
            (Tool, Some("c")),
            (Tool, Some("d")),
        ];
        assert_eq!(shape, expected);
        assert_eq!(settled(&after), None);
    }
}
