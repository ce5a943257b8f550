//! Requests and answers as JSON.
//!
//! Answers are read from raw values: a typed reader refuses a whole answer for one field that is missing or of another type.

use ferrata::state::{Message, Role, ToolCall};
use serde_json::{Map, Value, json};

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatReply, ChatRequest, Finish, ToolSpec, Usage};
use crate::names::{NAME_MAX, as_name};

/// The body of a request.
pub(super) fn request_body(request: &ChatRequest, model: &str, base_url: &str, streams: bool) -> Value {
    let messages: Vec<_> = request.messages.iter().map(message_body).collect();
    let mut body = json!({ "model": model, "messages": messages });
    for (name, value) in &request.settings {
        body[name] = value.clone();
    }
    if streams {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool_body).collect();
    }
    if let Some(schema) = &request.schema {
        let schema = json!({ "name": schema.name, "schema": schema.schema });
        body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
    }
    if let Some(tokens) = request.output_tokens_max {
        // OpenAI's newer models refuse the old name, and most other servers know no other.
        let is_openai = base_url.starts_with("https://api.openai.com");
        body[if is_openai { "max_completion_tokens" } else { "max_tokens" }] = tokens.into();
    }
    body
}

fn tool_body(tool: &ToolSpec) -> Value {
    let function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.arguments });
    json!({ "type": "function", "function": function })
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

/// A call as it is sent back. It stays in the conversation: servers that refuse its name, or read its arguments, would refuse every later request.
fn call_body(call: &ToolCall) -> Value {
    let mut name = as_name(&call.name);
    name.truncate(NAME_MAX);
    let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    // What was wrong with them is told in its result.
    let arguments = if is_object { &call.arguments } else { "{}" };
    json!({ "id": call.id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// The answer in a body.
pub(super) fn read_reply(body: &Value, request: &ChatRequest, model: &str) -> Result<ChatReply, ModelError> {
    let choice = body.pointer("/choices/0").ok_or_else(|| {
        let message =
            "the answer has no `choices`; check that OPENAI_BASE_URL is the root of a chat API, such as https://host/v1";
        ModelError::new(ModelErrorClass::Protocol, message).with_status(200)
    })?;
    let message = &choice["message"];
    let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|field| message[*field].as_str());
    let draft = Draft {
        content: content_of(&message["content"]),
        reasoning: reasoning.unwrap_or_default().to_owned(),
        refusal: message["refusal"].as_str().unwrap_or_default().to_owned(),
        calls: read_calls(message),
        finish: text_of(&choice["finish_reason"]),
        usage: read_usage(&body["usage"]),
        model: text_of(&body["model"]),
    };
    draft.reply(request, model)
}

/// An answer before anybody has looked whether it is one.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) refusal: String,
    pub(super) calls: Vec<DraftCall>,
    /// Why it ended, in the server's word.
    pub(super) finish: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) model: Option<String>,
}

/// A call as far as the server has spelled it out.
#[derive(Debug, Default)]
pub(super) struct DraftCall {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Draft {
    /// The answer, if it is one.
    pub(super) fn reply(self, request: &ChatRequest, model: &str) -> Result<ChatReply, ModelError> {
        let finish = read_finish(self.finish.as_deref().unwrap_or_default(), !self.calls.is_empty());
        if finish == Finish::Length && !self.calls.is_empty() {
            // What it would be called with is cut: nothing may be called.
            return Err(limit("it had told which tools to call").with_partial_text(self.content));
        }
        let refused = self.content.trim().is_empty() && !self.refusal.is_empty();
        // A refusal is what the model says, too.
        let content = if refused { self.refusal } else { self.content };
        if content.trim().is_empty() && self.calls.is_empty() {
            return Err(empty(&finish));
        }
        let tool_calls = with_ids(self.calls, request);
        let reasoning = Some(self.reasoning).filter(|text| !text.is_empty());
        let model = self.model.unwrap_or_else(|| model.to_owned());
        Ok(ChatReply { content, reasoning, refused, tool_calls, model, finish, usage: self.usage })
    }
}

fn limit(before: &str) -> ModelError {
    let message =
        format!("the answer ran into its limit before {before}; raise `output_tokens_max`, or use a model that thinks less");
    ModelError::new(ModelErrorClass::OutputLimit, message).with_status(200)
}

fn empty(finish: &Finish) -> ModelError {
    let (class, message) = match finish {
        Finish::Length => return limit("it had any text"),
        Finish::ContentFilter => {
            (ModelErrorClass::ContentFilter, "the endpoint's content filter held the answer back; change the request")
        }
        _ => (ModelErrorClass::EmptyResponse, "the answer is empty; try again"),
    };
    ModelError::new(class, message).with_status(200)
}

/// A text, if there is any.
pub(super) fn text_of(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The text of a content: a string, or a list of parts.
pub(super) fn content_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.as_str().or_else(|| part["text"].as_str())).collect(),
        _ => String::new(),
    }
}

fn read_finish(word: &str, has_calls: bool) -> Finish {
    match word {
        "" | "stop" if has_calls => Finish::ToolCalls,
        "" | "stop" => Finish::Stop,
        "length" | "max_tokens" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "content_filter" => Finish::ContentFilter,
        other => Finish::Other(other.to_owned()),
    }
}

/// Usage, if both numbers are there: a half would make the other look like nothing.
pub(super) fn read_usage(usage: &Value) -> Option<Usage> {
    let number = |name: &str| usage[name].as_u64();
    let cached_tokens = usage.pointer("/prompt_tokens_details/cached_tokens").and_then(Value::as_u64).unwrap_or_default();
    Some(Usage { cached_tokens, ..Usage::told(number("prompt_tokens")?, number("completion_tokens")?) })
}

fn read_calls(message: &Value) -> Vec<DraftCall> {
    let old = Some(&message["function_call"]).filter(|call| call.is_object());
    let listed = message["tool_calls"].as_array().into_iter().flatten();
    let calls = listed.map(|call| (&call["id"], &call["function"])).chain(old.map(|call| (&Value::Null, call)));
    calls
        .filter_map(|(id, function)| {
            let arguments = match &function["arguments"] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                object => object.to_string(),
            };
            Some(DraftCall { id: text_of(id), name: text_of(&function["name"])?, arguments })
        })
        .collect()
}

/// Calls with ids that no other call of the request has. One without arguments is called with none.
fn with_ids(drafts: Vec<DraftCall>, request: &ChatRequest) -> Vec<ToolCall> {
    let mut calls: Vec<ToolCall> = Vec::new();
    for DraftCall { id, name, arguments } in drafts {
        let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
        let id = id.filter(|id| !is_taken(id, request, &calls)).unwrap_or_else(|| free_id(request, &calls));
        calls.push(ToolCall { id, name, arguments });
    }
    calls
}

fn is_taken(id: &str, request: &ChatRequest, calls: &[ToolCall]) -> bool {
    request.messages.iter().flat_map(|message| &message.tool_calls).chain(calls).any(|call| call.id == id)
}

/// An id for a call that came without one: the same for the same request, and one that no other call in it has.
fn free_id(request: &ChatRequest, calls: &[ToolCall]) -> String {
    let mut number = request.messages.len();
    loop {
        let id = format!("call-{number}");
        if !is_taken(&id, request, calls) {
            return id;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_no_server_takes_do_not_spoil_the_conversation() {
        let sent = |name: &str, arguments: &str| {
            let call = ToolCall { id: "c1".into(), name: name.into(), arguments: arguments.into() };
            let sent = call_body(&call)["function"].clone();
            (sent["name"].as_str().unwrap_or_default().to_owned(), sent["arguments"].as_str().unwrap_or_default().to_owned())
        };
        let pair = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        assert_eq!(sent("functions.add", r#"{"a": 1}"#), pair("functions_add", r#"{"a": 1}"#), "as it was written");
        assert_eq!(sent("", r#"{"a": "#), pair("_", "{}"));
        for none in ["[]", "null", "\"{}\"", "", "7"] {
            assert_eq!(sent("prüfe", none), pair("pr_fe", "{}"), "{none}");
        }
        assert_eq!(sent(&"x".repeat(100), "{}").0.len(), 64);
    }

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
        assert_eq!(request_body(&request, "m", "http://localhost/v1", false), expected);
        assert_eq!(request_body(&request, "m", "https://api.openai.com/v1", false)["max_completion_tokens"], 9);
    }

    #[test]
    fn ids_that_are_made_up_are_free() {
        let mut asked = Message::assistant("");
        asked.tool_calls.push(ToolCall { id: "call-1".into(), name: "x".into(), arguments: "{}".into() });
        let call = json!({ "function": { "name": "y", "arguments": "" } });
        let calls = with_ids(read_calls(&json!({ "tool_calls": [call, call] })), &ChatRequest::new([asked]));
        let ids: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
        assert_eq!(ids, [("call-2", "{}"), ("call-3", "{}")]);
    }

    #[test]
    fn empty_answers_are_errors() {
        for (finish, class) in [
            ("stop", ModelErrorClass::EmptyResponse),
            ("length", ModelErrorClass::OutputLimit),
            ("content_filter", ModelErrorClass::ContentFilter),
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
        assert_eq!(read_usage(&both), Some(Usage::told(4, 0)));
    }
}
