//! Requests and answers as JSON.
//!
//! Answers are read from raw values: a typed reader refuses a whole answer for one field that is missing or of another type.

use ferrata::state::{Message, Role, ToolCall};
use serde_json::{Map, Value, json};

use super::http::host_of;
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
        match (request.settings.get("stream_options"), body.as_object_mut()) {
            // For a server that refuses the very name.
            (Some(Value::Null), Some(fields)) => drop(fields.remove("stream_options")),
            (Some(_), _) => {}
            (None, _) => body["stream_options"] = json!({ "include_usage": true }),
        }
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
        body[if is_openai(base_url) { "max_completion_tokens" } else { "max_tokens" }] = tokens.into();
    }
    body
}

fn is_openai(base_url: &str) -> bool {
    let host = host_of(base_url);
    host == "api.openai.com" || host.ends_with(".api.openai.com") || host.ends_with(".openai.azure.com")
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
    // What was wrong with them is told in its result.
    let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    let arguments = if is_object { &call.arguments } else { "{}" };
    json!({ "id": call.id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// An answer before anybody has looked whether it is one.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) content: String,
    pub(super) reasoning: String,
    /// Whether the content says why the model refuses.
    pub(super) refused: bool,
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
    pub(super) fn reply(mut self, request: &ChatRequest, model: &str) -> Result<ChatReply, ModelError> {
        // Some servers announce a call, and then make none.
        self.calls.retain(|call| !(call.name.is_empty() && call.arguments.trim().is_empty()));
        let finish = read_finish(self.finish.as_deref().unwrap_or_default(), !self.calls.is_empty());
        if let Some(error) = self.fault(&finish) {
            return Err(self.came_before(error.with_status(200)));
        }
        let tool_calls = with_ids(self.calls, request);
        let reasoning = Some(self.reasoning).filter(|text| !text.is_empty());
        let model = self.model.unwrap_or_else(|| model.to_owned());
        Ok(ChatReply { content: self.content, reasoning, refused: self.refused, tool_calls, model, finish, usage: self.usage })
    }

    /// The error with what had come of the answer before it, and what that cost.
    pub(super) fn came_before(self, error: ModelError) -> ModelError {
        self.usage.into_iter().fold(error.with_partial_text(self.content), ModelError::with_usage)
    }

    /// Whether anything has come that a server sends only when it has taken the request.
    pub(super) fn has_begun(&self) -> bool {
        !(self.content.is_empty() && self.reasoning.is_empty() && self.calls.is_empty())
    }

    /// Why it is no answer. Where calls are cut, or may be, nothing may be called.
    fn fault(&self, finish: &Finish) -> Option<ModelError> {
        use ModelErrorClass as C;
        let (is_blank, has_calls) = (self.content.trim().is_empty(), !self.calls.is_empty());
        let limit = |before| {
            format!("the answer ran into its limit before {before}; raise `output_tokens_max`, or use a model that thinks less")
        };
        let (class, message) = match finish {
            Finish::Other(word) if word == "error" => {
                (C::Server, "the endpoint broke the answer off with an error; try again later".to_owned())
            }
            Finish::Length if has_calls => (C::OutputLimit, limit("it had told which tools to call")),
            Finish::Length if is_blank => (C::OutputLimit, limit("it had any text")),
            Finish::ContentFilter if is_blank || has_calls => {
                (C::ContentFilter, "the endpoint's content filter held the answer back; change the request".to_owned())
            }
            _ if is_blank && !has_calls => (C::EmptyResponse, "the answer is empty; try again".to_owned()),
            _ if self.calls.iter().any(|call| call.name.is_empty()) => {
                (C::EmptyResponse, "the answer wants a tool called and does not say which; try again".to_owned())
            }
            _ => return None,
        };
        Some(ModelError::new(class, message))
    }
}

/// A text, if there is any.
pub(super) fn text_of(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The text of a content: a string, or parts. What a model thinks is none of it, even where it comes as a part.
pub(super) fn content_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(content_of).collect(),
        Value::Object(part) => match part.get("type").and_then(Value::as_str) {
            None | Some("text" | "output_text") => part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
            Some(_) => String::new(),
        },
        _ => String::new(),
    }
}

/// The text with which a model refuses: a field of its own, or parts of the content.
pub(super) fn refusal_of(message: &Value) -> String {
    let parts = message["content"].as_array().into_iter().flatten();
    let texts = parts.map(|part| &part["refusal"]).chain([&message["refusal"]]);
    texts.filter_map(Value::as_str).filter(|text| message["content"].as_str() != Some(text)).collect()
}

fn read_finish(word: &str, has_calls: bool) -> Finish {
    match word.to_ascii_lowercase().as_str() {
        "" | "stop" if has_calls => Finish::ToolCalls,
        "" | "stop" => Finish::Stop,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "content_filter" => Finish::ContentFilter,
        "error" => Finish::Other("error".to_owned()),
        _ => Finish::Other(word.to_owned()),
    }
}

/// Usage, wherever servers put it, if both numbers are there: a half would make the other look like nothing.
pub(super) fn read_usage(body: &Value) -> Option<Usage> {
    ["/usage", "/choices/0/usage", "/x_groq/usage"].iter().find_map(|place| {
        let usage = body.pointer(place)?;
        let cached = usage.pointer("/prompt_tokens_details/cached_tokens").or_else(|| usage.get("prompt_cache_hit_tokens"));
        let cached_tokens = cached.and_then(tokens_of).unwrap_or_default();
        let (read, written) = (tokens_of(&usage["prompt_tokens"])?, tokens_of(&usage["completion_tokens"])?);
        // Nobody reads nothing: some servers fill the fields in and do not count.
        (read > 0 || written > 0).then_some(Usage { cached_tokens, ..Usage::told(read, written) })
    })
}

/// A number of tokens; some languages write every number with a fraction.
fn tokens_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let text = value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0)?.to_string();
        text.parse().ok()
    })
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
        for (base_url, name) in [
            ("https://api.openai.com/v1", "max_completion_tokens"),
            ("https://eu.api.openai.com/v1", "max_completion_tokens"),
            ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens"),
            ("https://api.openai.com.elsewhere.com/v1", "max_tokens"),
        ] {
            assert_eq!(request_body(&request, "m", base_url, false)[name], 9, "{base_url}");
        }
        let streamed = |request: &ChatRequest| request_body(request, "m", "http://localhost/v1", true);
        assert_eq!(streamed(&request)["stream_options"], json!({ "include_usage": true }));
        assert_eq!(streamed(&request.setting("stream_options", Value::Null)).get("stream_options"), None);
    }

    #[test]
    fn arguments_that_are_no_object_are_sent_inside_of_one() {
        for (written, sent) in [(r#"{"a":1}"#, r#"{"a":1}"#), (r#"{"a":"#, "{}"), ("7", "{}")] {
            let call = ToolCall { id: "c".into(), name: "x".into(), arguments: written.into() };
            assert_eq!(call_body(&call)["function"]["arguments"], sent);
        }
    }

    #[test]
    fn ids_that_are_made_up_are_free() {
        let mut asked = Message::assistant("");
        asked.tool_calls.push(ToolCall { id: "call-1".into(), name: "x".into(), arguments: "{}".into() });
        let call = || DraftCall { name: "y".to_owned(), ..DraftCall::default() };
        let calls = with_ids(vec![call(), call()], &ChatRequest::new([asked]));
        let ids: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
        assert_eq!(ids, [("call-2", "{}"), ("call-3", "{}")]);
    }

    #[test]
    fn what_is_no_answer_is_an_error_that_tells_what_it_cost() {
        use ModelErrorClass::{ContentFilter, EmptyResponse, OutputLimit, Server};
        let call = |name: &str, arguments: &str| DraftCall { id: None, name: name.to_owned(), arguments: arguments.to_owned() };
        let cases = [
            ("stop", " \n", vec![], EmptyResponse),
            ("length", " \n", vec![], OutputLimit),
            ("MAX_TOKENS", "", vec![call("pay", "{\"sum")], OutputLimit),
            ("content_filter", "", vec![], ContentFilter),
            ("content_filter", "I will", vec![call("pay", "{\"sum\":1}")], ContentFilter),
            ("error", "half of", vec![], Server),
            ("stop", "", vec![call("", "")], EmptyResponse),
            ("tool_calls", "", vec![call("", "{\"sum\":1}")], EmptyResponse),
        ];
        for (finish, content, calls, class) in cases {
            let (finish, usage) = (Some(finish.to_owned()), Some(Usage::told(3, 4)));
            let draft = Draft { content: content.to_owned(), calls, finish, usage, ..Draft::default() };
            let shown = format!("{draft:?}");
            let error = draft.reply(&ChatRequest::new([]), "m").expect_err(&shown);
            assert_eq!((error.class(), error.usage(), error.partial_text()), (class, usage, Some(content)), "{shown}");
        }
    }

    #[test]
    fn thoughts_and_refusals_in_parts_are_kept_apart() {
        let content = json!([{ "type": "thinking", "text": "hm" }, { "type": "text", "text": "a" }, "b", { "text": "c" }, 7]);
        assert_eq!(content_of(&content), "abc");
        assert_eq!(content_of(&content[1]), "a");
        assert_eq!(refusal_of(&json!({ "content": [{ "type": "refusal", "refusal": "No." }] })), "No.");
        assert_eq!(refusal_of(&json!({ "content": "No.", "refusal": "No." })), "", "it is said already");
    }

    #[test]
    fn usage_is_never_made_up() {
        assert_eq!(read_usage(&json!({})), None);
        for usage in [
            json!(null),
            json!({}),
            json!({ "prompt_tokens": 4 }),
            json!({ "prompt_tokens": 0, "completion_tokens": 0 }),
            json!({ "prompt_tokens": 4, "completion_tokens": -1 }),
            json!({ "prompt_tokens": 4, "completion_tokens": 1.5 }),
            json!({ "prompt_tokens": 4, "completion_tokens": 1e30 }),
        ] {
            assert_eq!(read_usage(&json!({ "usage": usage })), None, "{usage}");
        }
        let both = json!({ "prompt_tokens": 4, "completion_tokens": 0.0 });
        for body in [
            json!({ "usage": both }),
            json!({ "choices": [{ "usage": both }] }),
            json!({ "usage": null, "x_groq": { "usage": both } }),
        ] {
            assert_eq!(read_usage(&body), Some(Usage::told(4, 0)), "{body}");
        }
    }
}
