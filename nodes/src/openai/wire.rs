//! Requests and answers as JSON.
//!
//! Answers are read from raw values: a typed reader refuses a whole answer for one field that is missing or of another type.

use ferrata::state::{Message, Role, ToolCall};
use serde_json::{Value, json};

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatReply, ChatRequest, Finish, Usage};

/// The body of a request.
pub(super) fn request_body(request: &ChatRequest, model: &str, base_url: &str) -> Value {
    let messages: Vec<_> = request.messages.iter().map(message_body).collect();
    let mut body = json!({ "model": model, "messages": messages });
    if let Some(tokens) = request.output_tokens_max {
        // OpenAI's newer models refuse the old name, and most other servers know no other.
        let is_openai = base_url.starts_with("https://api.openai.com");
        body[if is_openai { "max_completion_tokens" } else { "max_tokens" }] = tokens.into();
    }
    body
}

fn message_body(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut body = json!({ "role": role, "content": message.content });
    if !message.tool_calls.is_empty() {
        body["tool_calls"] = message.tool_calls.iter().map(call_body).collect();
        if message.content.is_empty() {
            body["content"] = Value::Null;
        }
    }
    if let Some(id) = &message.tool_call_id {
        body["tool_call_id"] = id.as_str().into();
    }
    body
}

fn call_body(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}

/// The answer in a body.
pub(super) fn read_reply(body: &Value, request: &ChatRequest, model: &str) -> Result<ChatReply, ModelError> {
    let choice = body.pointer("/choices/0").ok_or_else(|| {
        let message =
            "the answer has no `choices`; check that OPENAI_BASE_URL is the root of a chat API, such as https://host/v1";
        ModelError::new(ModelErrorClass::Deterministic, message)
    })?;
    let message = &choice["message"];
    let tool_calls = read_calls(message, request);
    let finish = read_finish(&choice["finish_reason"], !tool_calls.is_empty());
    let content = read_content(message);
    if content.trim().is_empty() && tool_calls.is_empty() {
        return Err(empty(&finish));
    }
    let model = body["model"].as_str().filter(|name| !name.is_empty()).unwrap_or(model).to_owned();
    Ok(ChatReply { content, tool_calls, model, finish, usage: read_usage(&body["usage"]) })
}

fn empty(finish: &Finish) -> ModelError {
    let (class, message) = match finish {
        Finish::Length => (
            ModelErrorClass::Deterministic,
            "the answer ran into its limit before it had any text; raise `output_tokens_max`, or use a model that thinks less",
        ),
        Finish::ContentFilter => {
            (ModelErrorClass::Deterministic, "the endpoint's content filter held the answer back; change the request")
        }
        _ => (ModelErrorClass::Transient, "the answer is empty; try again"),
    };
    ModelError::new(class, message).with_status(200)
}

/// The text: a string, or a list of parts. A refusal is what the model says, too.
fn read_content(message: &Value) -> String {
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.as_str().or_else(|| part["text"].as_str())).collect(),
        _ => String::new(),
    };
    match message["refusal"].as_str() {
        Some(refusal) if text.is_empty() => refusal.to_owned(),
        _ => text,
    }
}

fn read_finish(word: &Value, has_calls: bool) -> Finish {
    match word.as_str().unwrap_or_default() {
        "" if has_calls => Finish::ToolCalls,
        "" | "stop" => Finish::Stop,
        "length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "content_filter" => Finish::ContentFilter,
        other => Finish::Other(other.to_owned()),
    }
}

/// Usage, if both numbers are there: a half would make the other look like nothing.
fn read_usage(usage: &Value) -> Option<Usage> {
    let number = |name: &str| usage[name].as_u64();
    Some(Usage { input_tokens: number("prompt_tokens")?, output_tokens: number("completion_tokens")? })
}

fn read_calls(message: &Value, request: &ChatRequest) -> Vec<ToolCall> {
    let mut calls: Vec<ToolCall> = Vec::new();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let Some(name) = call["function"]["name"].as_str() else { continue };
        let arguments = match &call["function"]["arguments"] {
            Value::String(text) if !text.trim().is_empty() => text.clone(),
            Value::String(_) | Value::Null => "{}".to_owned(),
            object => object.to_string(),
        };
        let id = match call["id"].as_str() {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => free_id(request, &calls),
        };
        calls.push(ToolCall { id, name: name.to_owned(), arguments });
    }
    calls
}

/// An id for a call that came without one: the same for the same request, and one that no other call in it has.
fn free_id(request: &ChatRequest, calls: &[ToolCall]) -> String {
    let known = |id: &str| request.messages.iter().flat_map(|message| &message.tool_calls).chain(calls).any(|call| call.id == id);
    let mut number = request.messages.len();
    loop {
        let id = format!("call-{number}");
        if !known(&id) {
            return id;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_carry_calls_and_limits() {
        let mut asked = Message::assistant("");
        asked.tool_calls.push(ToolCall { id: "c1".into(), name: "add".into(), arguments: r#"{"a":1}"#.into() });
        let mut result = Message::new(Role::Tool, "2");
        result.tool_call_id = Some("c1".into());
        let request = ChatRequest::new([Message::system("s"), Message::user("u"), asked, result]).output_tokens_max(9);
        let expected = json!({
            "model": "m",
            "max_tokens": 9,
            "messages": [
                { "role": "system", "content": "s" },
                { "role": "user", "content": "u" },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } }
                ] },
                { "role": "tool", "content": "2", "tool_call_id": "c1" },
            ],
        });
        assert_eq!(request_body(&request, "m", "http://localhost/v1"), expected);
        assert_eq!(request_body(&request, "m", "https://api.openai.com/v1")["max_completion_tokens"], 9);
    }

    #[test]
    fn ids_that_are_made_up_are_free() {
        let mut asked = Message::assistant("");
        asked.tool_calls.push(ToolCall { id: "call-1".into(), name: "x".into(), arguments: "{}".into() });
        let call = json!({ "function": { "name": "y", "arguments": "" } });
        let calls = read_calls(&json!({ "tool_calls": [call, call] }), &ChatRequest::new([asked]));
        let ids: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
        assert_eq!(ids, [("call-2", "{}"), ("call-3", "{}")]);
    }

    #[test]
    fn empty_answers_are_errors() {
        for (finish, class) in [
            ("stop", ModelErrorClass::Transient),
            ("length", ModelErrorClass::Deterministic),
            ("content_filter", ModelErrorClass::Deterministic),
        ] {
            let body = json!({ "choices": [{ "message": { "content": " \n" }, "finish_reason": finish }] });
            assert_eq!(read_reply(&body, &ChatRequest::new([]), "m").unwrap_err().class(), class, "{finish}");
        }
        assert!(read_reply(&json!({ "message": "hi" }), &ChatRequest::new([]), "m").is_err());
    }

    #[test]
    fn usage_is_never_made_up() {
        assert_eq!(read_usage(&json!({})), None);
        assert_eq!(read_usage(&json!({ "prompt_tokens": 4 })), None);
        let both = json!({ "prompt_tokens": 4, "completion_tokens": 0 });
        assert_eq!(read_usage(&both), Some(Usage { input_tokens: 4, output_tokens: 0 }));
    }
}
