//! What went wrong, from whatever the client or the server says about it.

use std::error::Error;

use async_openai::error::OpenAIError;
use serde_json::Value;

use super::http::{HttpStatus, without_secrets};
use crate::error::{ModelError, ModelErrorClass, class_of_code, class_of_status};

/// How much of what the server said goes into a message.
const EXCERPT_CHARS: usize = 300;

/// The error for a call that the client gave up.
pub(super) fn of_client(error: OpenAIError, base_url: &str, key: Option<&str>) -> ModelError {
    let url = without_secrets(base_url);
    match error {
        OpenAIError::Reqwest(error) => of_transport(error, &url),
        OpenAIError::Boxed(error) => match error.downcast::<HttpStatus>() {
            Ok(answer) => of_status(*answer, &url, key),
            Err(other) => unexpected(&url, other),
        },
        OpenAIError::JSONDeserialize(error, body) => {
            let excerpt = excerpt(&body, key);
            let message = format!(
                "{url} answered with something that is not JSON ({excerpt}); check OPENAI_BASE_URL or the proxy before it"
            );
            ModelError::new(ModelErrorClass::Deterministic, message).with_source(error)
        }
        other => unexpected(&url, other.into()),
    }
}

fn unexpected(url: &str, source: Box<dyn Error + Send + Sync>) -> ModelError {
    ModelError::new(ModelErrorClass::Deterministic, format!("the request to {url} failed before it was sent; see the cause"))
        .with_source(source)
}

/// No whole answer came. The request may have been received all the same.
fn of_transport(error: reqwest::Error, url: &str) -> ModelError {
    let (class, what) = if error.is_builder() {
        (ModelErrorClass::Deterministic, "cannot be built; check the URL and the key")
    } else if error.is_timeout() {
        (ModelErrorClass::Transient, "got no answer in time; try again, or allow more with `read_timeout`")
    } else if error.is_connect() {
        (ModelErrorClass::Transient, "found no server; check OPENAI_BASE_URL and that the server runs, or try again")
    } else {
        (ModelErrorClass::Transient, "broke off before the answer was complete; try again")
    };
    // The cause would show the whole URL, and its query may hold a key.
    ModelError::new(class, format!("the request to {url} {what}")).with_source(error.without_url())
}

/// The server answered with a status that is not success.
fn of_status(answer: HttpStatus, url: &str, key: Option<&str>) -> ModelError {
    let object = serde_json::from_str(&answer.body).map(|body: Value| ErrorObject::of(&body)).unwrap_or_default();
    let class = object.class().unwrap_or_else(|| class_of_status(answer.status));
    let said = excerpt(object.message.as_deref().unwrap_or(&answer.body), key);
    let message = format!("{url} answered {} ({said}); {}", answer.status, advice(class, answer.status));
    let mut error = ModelError::new(class, message).with_status(answer.status);
    if let Some(code) = object.codes.into_iter().next() {
        error = error.with_code(excerpt(&code, key));
    }
    if let Some(wait) = answer.retry_after {
        error = error.with_retry_after(wait);
    }
    error.with_source(HttpStatus { body: excerpt(&answer.body, key), ..answer })
}

/// The error in a body that came with a status of success.
pub(super) fn in_success(body: &Value, base_url: &str, key: Option<&str>) -> Option<ModelError> {
    body.get("error").filter(|error| !error.is_null())?;
    let object = ErrorObject::of(body);
    let class = object.class().unwrap_or(ModelErrorClass::Deterministic);
    let said = excerpt(object.message.as_deref().unwrap_or("no message"), key);
    let message = format!("{} answered 200 with an error ({said}); {}", without_secrets(base_url), advice(class, 200));
    let error = ModelError::new(class, message).with_status(200);
    Some(match object.codes.into_iter().next() {
        Some(code) => error.with_code(excerpt(&code, key)),
        None => error,
    })
}

fn advice(class: ModelErrorClass, status: u16) -> &'static str {
    match (class, status) {
        (ModelErrorClass::Transient, 429) => "wait and try again, or send fewer requests at once",
        (ModelErrorClass::Transient, _) => "try again later",
        (ModelErrorClass::ContextLength, _) => "shorten the conversation, for example with `RollingSummary`",
        (ModelErrorClass::Quota, _) => "the credit or quota is spent: raise it, or use another key",
        (ModelErrorClass::Auth, _) => "check OPENAI_API_KEY and what it is allowed to do",
        (ModelErrorClass::Deterministic, 404) => "check OPENAI_BASE_URL and the name of the model",
        (ModelErrorClass::Deterministic, _) => "change the request: the same one will fail again",
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
        let error = body.get("error").unwrap_or(body);
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let field = |name: &str| error.get(name).and_then(text);
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

/// The beginning of what a server said, on one line and without the key, which some servers repeat.
fn excerpt(text: &str, key: Option<&str>) -> String {
    let clean = match key {
        Some(key) if !key.is_empty() => text.replace(key, "(key)"),
        _ => text.to_owned(),
    };
    let line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
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
    use super::*;
    use ModelErrorClass::{Auth, ContextLength, Deterministic, Quota, Transient};

    fn of(status: u16, body: &str) -> ModelError {
        of_status(HttpStatus { status, retry_after: None, body: body.to_owned() }, "http://h", Some("sk-secret"))
    }

    #[test]
    fn classes_by_status_and_code() {
        for (status, body, class) in [
            (400, r#"{"error":{"message":"no","type":"invalid_request_error","code":null}}"#, Deterministic),
            (400, r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"too long"}}"#, ContextLength),
            (401, "", Auth),
            (403, "<html>", Auth),
            (404, r#"{"detail":"Not Found"}"#, Deterministic),
            (408, "", Transient),
            (413, "", Deterministic),
            (422, r#"{"detail":[{"msg":"field required"}]}"#, Deterministic),
            (429, r#"{"error":{"code":"rate_limit_exceeded"}}"#, Transient),
            (429, r#"{"error":{"type":"insufficient_quota"}}"#, Quota),
            (429, r#"{"error":"insufficient credit, slow down"}"#, Transient),
            (500, r#"{"object":"error","message":"x","code":50001}"#, Transient),
            (503, "", Transient),
            (529, r#"{"type":"error","error":{"type":"overloaded_error"}}"#, Transient),
        ] {
            assert_eq!(of(status, body).class(), class, "{status} {body}");
        }
    }

    #[test]
    fn errors_in_a_success() {
        for (body, class) in [
            (r#"{"error":{"message":"upstream died","code":502}}"#, Some(Transient)),
            (r#"{"error":{"message":"slow down","code":"429"}}"#, Some(Transient)),
            (r#"{"error":{"message":"no","code":400}}"#, Some(Deterministic)),
            (r#"{"error":"something"}"#, Some(Deterministic)),
            (r#"{"error":null,"choices":[]}"#, None),
        ] {
            let error = in_success(&serde_json::from_str(body).unwrap(), "http://h", None);
            assert_eq!(error.map(|error| error.class()), class, "{body}");
        }
    }

    #[test]
    fn a_key_that_the_server_repeats_is_not_shown() {
        let error = of(401, r#"{"error":{"message":"Incorrect key sk-secret","code":"sk-secret"}}"#);
        let shown = format!("{error} {error:?} {:?}", error.source());
        assert!(shown.contains("(key)") && !shown.contains("sk-secret"), "{shown}");
    }
}
