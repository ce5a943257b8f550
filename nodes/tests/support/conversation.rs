//! What tests of conversations share.
#![allow(dead_code, reason = "each test uses a part of it")]

use ferrata::state::{Message, Role, ToolCall};
use ferrata_nodes::ChatRequest;

/// What an endpoint asks of a request, as the strictest of them do.
pub(crate) fn check_valid(request: &ChatRequest) -> Result<(), String> {
    let messages = &request.messages;
    if messages.is_empty() {
        return Err("no message".to_owned());
    }
    let front = messages.iter().take_while(|message| message.role == Role::System).count();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::System && at >= front {
            return Err(format!("message {at} is a system message and not at the front"));
        }
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().ok_or(format!("result {at} names no call"))?;
            let call = open.iter().position(|call| *call == id).ok_or(format!("result {at} follows no call \"{id}\""))?;
            open.remove(call);
        } else {
            if !open.is_empty() {
                return Err(format!("calls before message {at} have no result: {open:?}"));
            }
            if message.tool_call_id.is_some() {
                return Err(format!("message {at} is no result and names a call"));
            }
        }
        if message.role != Role::Assistant && !message.tool_calls.is_empty() {
            return Err(format!("message {at} may not call"));
        }
        if message.role != Role::Tool && message.content.trim().is_empty() && message.tool_calls.is_empty() {
            return Err(format!("message {at} says nothing"));
        }
        open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        if (1..open.len()).any(|at| open[..at].contains(&open[at])) {
            return Err(format!("message {at} has two calls of one id"));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls at the end have no result: {open:?}")) }
}

pub(crate) fn calls(ids: &[&str], arguments: &str) -> Message {
    let call = |id: &&str| ToolCall { id: (*id).to_owned(), name: "search".to_owned(), arguments: arguments.to_owned() };
    Message { tool_calls: ids.iter().map(call).collect(), ..Message::assistant("") }
}

pub(crate) fn result(id: &str, content: impl Into<String>) -> Message {
    Message { tool_call_id: Some(id.to_owned()), ..Message::new(Role::Tool, content) }
}

pub(crate) fn filler(words: usize) -> String {
    "The Heron has no table at this hour. ".repeat(words.div_ceil(8))
}
