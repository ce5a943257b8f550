//! What went wrong, from whatever the client or the server says about it.

use async_openai::error::OpenAIError;
use serde_json::Value;

use super::http::{HttpStatus, secrets, without_secrets};
use crate::error::{ModelError, ModelErrorClass, class_of_code, class_of_status};

/// How much of what the server said goes into a message.
const EXCERPT_CHARS: usize = 300;

/// Who was asked, for errors.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) base_url: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) model: &'a str,
}

impl Asked<'_> {
    pub(super) fn url(self) -> String {
        without_secrets(self.base_url)
    }

    /// The error for a request that never had an answer.
    pub(super) fn of_client(self, error: OpenAIError) -> ModelError {
        match error {
            OpenAIError::Reqwest(error) => self.of_transport(error),
            other => {
                let message = format!("the request to {} failed before it was sent; see the cause", self.url());
                ModelError::new(ModelErrorClass::BadRequest, message).with_source(other)
            }
        }
    }

    /// No whole answer came. The request may have been received all the same.
    fn of_transport(self, error: reqwest::Error) -> ModelError {
        let (class, what) = if error.is_builder() {
            (ModelErrorClass::BadRequest, "cannot be built; check the URL and the key")
        } else if error.is_timeout() {
            (ModelErrorClass::Timeout, "got no answer in time; try again, or allow more with `read_timeout`")
        } else if error.is_connect() {
            (ModelErrorClass::Connection, "found no server; check OPENAI_BASE_URL and that the server runs, or try again")
        } else {
            (ModelErrorClass::Connection, "broke off before the answer was complete; try again")
        };
        // The cause would show the whole URL, and its query may hold a key.
        ModelError::new(class, format!("the request to {} {what}", self.url())).with_source(error.without_url())
    }

    /// The connection broke within the answer.
    pub(super) fn broke_off(self, error: reqwest::Error) -> ModelError {
        let is_timeout = error.is_timeout();
        let cut = self.truncated().with_source(error.without_url());
        if is_timeout { cut.with_class(ModelErrorClass::Timeout) } else { cut }
    }

    /// The answer ended before its end.
    pub(super) fn truncated(self) -> ModelError {
        let message = format!("the answer from {} broke off before its end; try again", self.url());
        ModelError::new(ModelErrorClass::Truncated, message).with_status(200)
    }

    pub(super) fn empty(self) -> ModelError {
        let message = format!("{} answered with nothing at all; try again", self.url());
        ModelError::new(ModelErrorClass::EmptyResponse, message).with_status(200)
    }

    pub(super) fn too_large(self, bytes: usize) -> ModelError {
        let message = format!("the answer from {} has more than {bytes} bytes, and was given up", self.url());
        ModelError::new(ModelErrorClass::Protocol, message).with_status(200)
    }

    /// The answer is no JSON; one that was cut off is none either.
    pub(super) fn no_json(self, text: &str, error: serde_json::Error) -> ModelError {
        if error.is_eof() {
            return self.truncated().with_source(error);
        }
        let said = self.excerpt(text);
        let message = format!(
            "{} answered with something that is not JSON ({said}); check OPENAI_BASE_URL or the proxy before it",
            self.url()
        );
        ModelError::new(ModelErrorClass::Protocol, message).with_status(200).with_source(error)
    }

    /// The server answered with a status that is not success.
    pub(super) fn of_status(self, answer: HttpStatus) -> ModelError {
        let object = serde_json::from_str(answer.body.trim_start_matches('\u{feff}'))
            .map(|body: Value| ErrorObject::of(&body))
            .unwrap_or_default();
        let class = object.class().unwrap_or_else(|| class_of_status(answer.status));
        let said = self.excerpt(object.message.as_deref().unwrap_or(&answer.body));
        let message = format!("{} answered {} ({said}); {}", self.url(), answer.status, advice(class, answer.status));
        let mut error = ModelError::new(class, message).with_status(answer.status);
        if let Some(code) = object.codes.into_iter().next() {
            error = error.with_code(self.excerpt(&code));
        }
        if let Some(wait) = answer.retry_after {
            error = error.with_retry_after(wait);
        }
        error.with_source(HttpStatus { body: self.excerpt(&answer.body), ..answer })
    }

    /// The error in a body, or a chunk, that came with a status of success. `had_begun`: a part of an answer came before it.
    pub(super) fn in_success(self, body: &Value, had_begun: bool) -> Option<ModelError> {
        // Gateways put it into the choice.
        let holder = [Some(body), body.pointer("/choices/0")].into_iter().flatten().find(|holder| has_error(holder));
        let is_error = body["object"] == "error";
        holder.or(is_error.then_some(body)).map(|holder| self.of_event(holder, had_begun))
    }

    /// As [`in_success`](Self::in_success), of something that is an error for certain.
    pub(super) fn of_event(self, body: &Value, had_begun: bool) -> ModelError {
        let object = ErrorObject::of(body);
        // A server that had begun to answer had nothing against the request.
        let unknown = if had_begun { ModelErrorClass::Server } else { ModelErrorClass::BadRequest };
        let class = object.class().unwrap_or(unknown);
        let said = self.excerpt(&object.message.unwrap_or_else(|| body.to_string()));
        let message = format!("{} answered 200 with an error ({said}); {}", self.url(), advice(class, 200));
        let error = ModelError::new(class, message).with_status(200);
        match object.codes.into_iter().next() {
            Some(code) => error.with_code(self.excerpt(&code)),
            None => error,
        }
    }

    /// The beginning of what a server said, on one line and without what is secret, which some servers repeat.
    fn excerpt(self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in secrets(self.base_url, self.key) {
            clean = clean.replace(&secret, "(key)");
        }
        shortened(&clean)
    }
}

/// Whether something says that it is an error. Some servers name the field in each answer, and leave it empty.
fn has_error(body: &Value) -> bool {
    match body.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    }
}

fn advice(class: ModelErrorClass, status: u16) -> &'static str {
    use ModelErrorClass as C;
    match class {
        C::RateLimit => "wait and try again, or send fewer requests at once",
        C::Connection | C::Timeout | C::Server | C::Truncated | C::EmptyResponse => "try again later",
        C::ContextLength => "shorten the conversation, for example with `RollingSummary`",
        C::OutputLimit => "raise `output_tokens_max`",
        C::Quota => "the credit or quota is spent: raise it, or use another key",
        C::Auth => "check OPENAI_API_KEY and what it is allowed to do",
        C::Protocol if (300..400).contains(&status) => {
            "it leads elsewhere, and no request follows: set OPENAI_BASE_URL to where the API is"
        }
        C::BadRequest | C::Protocol if status == 404 => "check OPENAI_BASE_URL and the name of the model",
        C::BadRequest | C::Protocol | C::ContentFilter => "change the request: the same one will fail again",
    }
}

/// What servers put under `error`, as far as it is there: an object or a text, a code that is a word or a number.
#[derive(Default)]
struct ErrorObject {
    message: Option<String>,
    codes: Vec<String>,
}

impl ErrorObject {
    fn of(body: &Value) -> Self {
        // Gateways put the object into a list, and codes beside an error that is a text.
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").unwrap_or(body);
        let around = if error.is_string() { body } else { error };
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let field = |name: &str| around.get(name).and_then(text);
        let message = field("message").or_else(|| field("detail")).or_else(|| error.as_str().map(str::to_owned));
        Self { message, codes: ["code", "type", "status"].into_iter().filter_map(field).collect() }
    }

    /// The class of the first code that says something. That the context is too long says more than a number such as 400.
    fn class(&self) -> Option<ModelErrorClass> {
        let classes: Vec<_> = self.codes.iter().filter_map(|code| class_of_code(code)).collect();
        let special = classes.iter().find(|class| matches!(class, ModelErrorClass::ContextLength | ModelErrorClass::Quota));
        special.or(classes.first()).copied()
    }
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return "no text".to_owned();
    }
    let mut short: String = line.chars().take(EXCERPT_CHARS).collect();
    if short.len() < line.len() {
        short.push_str(" […]");
    }
    short
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use ModelErrorClass::{Auth, BadRequest, ContextLength, Protocol, Quota, RateLimit, Server, Timeout};

    const ASKED: Asked<'_> = Asked { base_url: "http://h", key: Some("sk-secret"), model: "m" };

    fn of(status: u16, body: &str) -> ModelError {
        ASKED.of_status(HttpStatus { status, retry_after: None, body: body.to_owned() })
    }

    #[test]
    fn classes_by_status_and_code() {
        for (status, body, class) in [
            (400, r#"{"error":{"message":"no","type":"invalid_request_error","code":null}}"#, BadRequest),
            (400, r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"too long"}}"#, ContextLength),
            (401, "", Auth),
            (403, "<html>", Auth),
            (400, "\u{feff}{\"error\":{\"code\":\"context_length_exceeded\"}}", ContextLength),
            (404, r#"{"detail":"Not Found"}"#, BadRequest),
            (408, "", Timeout),
            (409, "", Server),
            (413, "", BadRequest),
            (422, r#"{"detail":[{"msg":"field required"}]}"#, BadRequest),
            (425, "", Server),
            (429, r#"{"error":{"code":"rate_limit_exceeded"}}"#, RateLimit),
            (429, r#"{"error":{"type":"insufficient_quota"}}"#, Quota),
            (429, r#"{"error":"insufficient credit, slow down"}"#, RateLimit),
            (500, r#"{"object":"error","message":"x","code":50001}"#, Server),
            (503, "", Server),
            (429, r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#, RateLimit),
            (307, "", Protocol),
            (529, r#"{"type":"error","error":{"type":"overloaded_error"}}"#, Server),
        ] {
            assert_eq!(of(status, body).class(), class, "{status} {body}");
        }
    }

    #[test]
    fn errors_in_a_success() {
        for (body, had_begun, class) in [
            (r#"{"error":{"message":"upstream died","code":502}}"#, false, Some(Server)),
            (r#"{"error":{"message":"slow down","code":"429"}}"#, false, Some(RateLimit)),
            (r#"{"error":{"message":"no","code":400}}"#, false, Some(BadRequest)),
            (r#"{"error":"something"}"#, false, Some(BadRequest)),
            (r#"{"error":"something"}"#, true, Some(Server)),
            (r#"{"error":"too busy","code":503}"#, false, Some(Server)),
            (r#"{"object":"error","message":"too long","code":"context_length_exceeded"}"#, false, Some(ContextLength)),
            (r#"{"choices":[{"error":{"code":502,"message":"upstream"},"finish_reason":"error"}]}"#, false, Some(Server)),
            (r#"{"error":null,"choices":[]}"#, false, None),
            (r#"{"error":"","choices":[]}"#, false, None),
            (r#"{"error":{},"choices":[]}"#, false, None),
        ] {
            let error = ASKED.in_success(&serde_json::from_str(body).unwrap(), had_begun);
            assert_eq!(error.map(|error| error.class()), class, "{body}");
        }
    }

    #[test]
    fn a_key_that_the_server_repeats_is_not_shown() {
        let error = of(401, r#"{"error":{"message":"Incorrect key sk-secret","code":"sk-secret"}}"#);
        let shown = format!("{error} {error:?} {:?}", error.source());
        assert!(shown.contains("(key)") && !shown.contains("sk-secret"), "{shown}");
        let asked = Asked { key: Some("x"), ..ASKED };
        let error = asked.of_status(HttpStatus { status: 400, retry_after: None, body: "next example".to_owned() });
        assert!(error.to_string().contains("next example"), "{error}");
    }

    #[test]
    fn secrets_of_the_url_are_not_shown_either() {
        let base_url = "https://user:pass%2Fword@h/v1?api-version=2&key=qu%65ry-secret";
        let asked = Asked { base_url, ..ASKED };
        let body = "Cannot POST https://user:pass%2Fword@h/v1/chat/completions?api-version=2&key=qu%65ry-secret: query-secret of user, 2";
        let error = asked.of_status(HttpStatus { status: 404, retry_after: None, body: body.to_owned() });
        let shown = format!("{error} {error:?} {:?}", error.source());
        assert!(!shown.contains("word") && !shown.contains("ry-secret") && shown.contains("of (key), 2"), "{shown}");
    }
}
