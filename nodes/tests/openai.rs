//! One request per call, and errors that keep what the server said.
//!
//! How this could break: a retry hidden in a library multiplies requests, a body that is not quite OpenAI's loses the status or the time
//! to wait, an error object or an empty body passes for an answer, the key shows up in a report.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::error::Error;
use std::time::Duration;

use ferrata::state::Message;
use ferrata_nodes::{
    ChatModel, ChatReply, ChatRequest, Fallbacks, Finish, ModelError, ModelErrorClass, OpenAi, Recording, Usage,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[path = "support/server.rs"]
mod server;

use server::{KEY, Server, answer};

fn request() -> ChatRequest {
    ChatRequest::new([Message::user("Hi")]).output_tokens_max(50)
}

/// Asks once; whatever comes of it, the server must have seen one request.
async fn ask(answer: Vec<u8>) -> Result<ChatReply, ModelError> {
    let server = Server::start(answer).await;
    let result = server.model().chat(&request()).await;
    assert_eq!(server.requests().len(), 1, "{result:?}");
    result
}

#[tokio::test]
async fn the_request_is_what_the_api_asks_for() {
    let server = Server::start(answer(200, "", include_bytes!("../../tests/fixtures/wire/w21-unary-content-parts.json"))).await;
    server.model().chat(&request()).await.unwrap();
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: Bearer {KEY}")), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body, json!({ "model": "demo", "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 50 }));
}

#[tokio::test]
async fn without_a_key_no_key_is_sent() {
    let server = Server::start(answer(200, "", include_bytes!("../../tests/fixtures/wire/w21-unary-content-parts.json"))).await;
    OpenAi::new(&server.url, "demo").chat(&request()).await.unwrap();
    assert!(!server.requests()[0].to_ascii_lowercase().contains("authorization"));
}

#[tokio::test]
async fn lean_answer_with_a_tool_call() {
    let reply = ask(answer(200, "", include_bytes!("../../tests/fixtures/wire/w20-unary-lean.json"))).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.finish, reply.usage), ("", Finish::ToolCalls, None));
    assert_eq!(reply.model, "demo-model-1");
    let [call] = reply.tool_calls.as_slice() else { panic!("{:?}", reply.tool_calls) };
    assert!(call.name == "search" && !call.id.is_empty());
    assert_eq!(serde_json::from_str::<Value>(&call.arguments).unwrap(), json!({ "q": "redb", "n": 3 }));
}

#[tokio::test]
async fn answer_in_parts() {
    let reply = ask(answer(200, "", include_bytes!("../../tests/fixtures/wire/w21-unary-content-parts.json"))).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.finish), ("part one, part two", Finish::Stop));
    assert_eq!(reply.usage, Some(Usage::told(4, 6)));
}

#[tokio::test]
async fn failures_keep_class_status_and_wait_and_are_asked_once() {
    use ModelErrorClass::{Auth, BadRequest, ContextLength, Quota, RateLimit, Server as Failing};
    let bad: &[u8] = br#"{"error":{"message":"bad","type":"invalid_request_error","code":null}}"#;
    type Case = (u16, &'static str, &'static [u8], ModelErrorClass, Option<u64>);
    let cases: &[Case] = &[
        (429, "retry-after: 2\r\n", include_bytes!("../../tests/fixtures/wire/w22-429-odd-body.json"), RateLimit, Some(2)),
        (429, "", include_bytes!("../../tests/fixtures/wire/w23-429-quota.json"), Quota, None),
        (400, "", include_bytes!("../../tests/fixtures/wire/w24-400-context-length.json"), ContextLength, None),
        (502, "content-type: text/html\r\n", include_bytes!("../../tests/fixtures/wire/w25-502-html.txt"), Failing, None),
        (503, "retry-after: 7\r\n", b"", Failing, Some(7)),
        (400, "", bad, BadRequest, None),
        (401, "", bad, Auth, None),
    ];
    for (status, headers, body, class, wait_s) in cases {
        let error = ask(answer(*status, headers, body)).await.unwrap_err();
        let case = format!("{status}: {error:?}");
        assert_eq!((error.class(), error.status()), (*class, Some(*status)), "{case}");
        assert_eq!(error.retry_after(), wait_s.map(Duration::from_secs), "{case}");
        assert!(error.source().is_some(), "{case}");
    }
}

#[tokio::test]
async fn success_without_an_answer_is_an_error() {
    let cases: &[(&[u8], ModelErrorClass)] = &[
        (br#"{"error":{"message":"overloaded","code":503}}"#, ModelErrorClass::Server),
        (br#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#, ModelErrorClass::EmptyResponse),
        (br#"{"choices":[]}"#, ModelErrorClass::Protocol),
        (b"<html>Please log in</html>", ModelErrorClass::Protocol),
    ];
    for (body, class) in cases {
        let error = ask(answer(200, "", body)).await.unwrap_err();
        assert_eq!(error.class(), *class, "{error:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_transient() {
    let mut cut = answer(200, "", br#"{"choices":[{"message":{"content":"whole"}}]}"#);
    cut.truncate(cut.len() - 5);
    let error = ask(cut).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("broke off"), "{error:?}");
}

#[tokio::test]
async fn a_silent_server_is_transient() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let error = OpenAi::new(url, "demo").read_timeout(Duration::from_millis(20)).chat(&request()).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("in time"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_down_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let error = OpenAi::new(format!("{url}?key=secret"), "demo").api_key(KEY).chat(&request()).await.unwrap_err();
    assert!(error.is_transient() && error.status().is_none(), "{error:?}");
    assert!(error.to_string().contains(&url), "{error}");
    assert!(!report(&error).contains("secret"), "{}", report(&error));
}

#[tokio::test]
async fn the_key_is_never_shown() {
    let server = Server::start(answer(401, "", format!(r#"{{"error":"{KEY} is wrong"}}"#).as_bytes())).await;
    let model = server.model();
    let error = model.chat(&request()).await.unwrap_err();
    for shown in [format!("{model:?}"), format!("{model:#?}"), report(&error)] {
        assert!(!shown.contains(KEY), "{shown}");
    }
    assert!(report(&error).contains("is wrong"));
}

#[tokio::test]
async fn what_the_server_repeats_of_the_url_and_the_key_is_shown_nowhere() {
    const SECRETS: [&str; 4] = [KEY, "pass-word", "some-user", "query-secret"];
    let said = format!("POST http://some-user:pass-word@h/v1/chat/completions?api=2&key=query-secret with {KEY}");
    let page = format!("<html>{said}</html>");
    let object = json!({ "error": { "message": said, "code": said, "type": said } }).to_string();
    let events = [format!("event: error\ndata: {said}\n\n"), format!("data: {object}\n\n"), format!("data: {said}\n\n")];
    let bodies = [page, object, json!({ "error": said }).to_string()].into_iter().chain(events);
    let answers = bodies.flat_map(|body| [200, 307, 401, 404, 503].map(|status| answer(status, "", body.as_bytes())));
    let answers: Vec<_> = answers.flat_map(|answer| [answer.clone(), answer]).collect();
    let count = answers.len();
    let server = Server::start_all(answers).await;
    let url = server.url.replace("http://", "http://some-user:pass-word@") + "?api=2&key=query-secret";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let model = Recording::to_file(OpenAi::new(url, "demo").api_key(KEY), &file).unwrap();
    let model = Fallbacks::new(model).pass_by(u32::MAX, Duration::ZERO);
    for _ in 0..count / 2 {
        let request = request();
        let streamed = model.chat_streamed(&request, &mut |_| {}).await.unwrap_err();
        for error in [model.chat(&request).await.unwrap_err(), streamed] {
            let shown = format!("{} {model:?}", report(&error));
            assert!(SECRETS.iter().all(|secret| !shown.contains(secret)), "{shown}");
            assert!(shown.contains("(key)"), "{shown}");
        }
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    assert!(recorded.lines().count() == count && SECRETS.iter().all(|secret| !recorded.contains(secret)), "{recorded}");
}

#[tokio::test]
async fn a_url_that_is_none_is_an_error() {
    let error = OpenAi::new("localhost", "demo").chat(&request()).await.unwrap_err();
    assert_eq!(error.class(), ModelErrorClass::BadRequest);
}

/// Everything that a log could show of an error.
fn report(error: &dyn Error) -> String {
    let mut text = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        text += &format!("\n{error}");
        next = error.source();
    }
    text
}
