//! Streams that are cut, odd or endless: a whole answer or an error that says which, and never a part that passes for the whole.
//!
//! How this could break: a stream that is cut in the middle of an event is taken for another API's and not asked for again; a server that never hangs up
//! holds the run; what is told on the way is not what the answer is; tokens that were paid for no answer are in no budget.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use ferrata::state::Message;
use ferrata_nodes::{ChatModel, ChatReply, ChatRequest, Delta, Finish, ModelError, ModelErrorClass, OpenAi, Usage};
use server::{Server, answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SSE: &str = "content-type: text/event-stream\r\n";

fn request() -> ChatRequest {
    ChatRequest::new([Message::user("Hi")])
}

fn streamed(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 X\r\n{headers}connection: close\r\n\r\n").as_bytes(), body].concat()
}

/// What is answered, and what was told on the way: the text, and the thoughts.
async fn stream(model: &OpenAi) -> (Result<ChatReply, ModelError>, String, String) {
    let (mut text, mut thoughts) = (String::new(), String::new());
    let mut tell = |delta: Delta<'_>| match delta {
        Delta::Text(part) => text.push_str(part),
        Delta::Reasoning(part) => thoughts.push_str(part),
        other => panic!("{other:?}"),
    };
    let answered = model.chat_streamed(&request(), &mut tell).await;
    (answered, text, thoughts)
}

/// One answer by its chunks; whole, it is told as it is.
async fn chunks(chunks: &[&str]) -> Result<ChatReply, ModelError> {
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let server = Server::start(streamed(SSE, body.as_bytes())).await;
    let (answered, text, thoughts) = stream(&server.model()).await;
    if let Ok(reply) = &answered {
        assert_eq!((&text, &thoughts), (&reply.content, &reply.reasoning.clone().unwrap_or_default()));
    }
    answered
}

#[tokio::test]
async fn a_stream_that_is_cut_anywhere_is_cut_and_never_another_api() {
    let body = "\u{feff}: hi\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"气 \\ud83c\\udf24\"}}]}\n\nevent: x\r\n\
        data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n\
        data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
    let end = body.find("]}\n\ndata: {\"choices\":[],").unwrap() + 2;
    for headers in [SSE, ""] {
        // Within the mark of the byte order, only a header tells what it is.
        let cuts: Vec<usize> = (0..=body.len()).filter(|cut| !headers.is_empty() || !(1..3).contains(cut)).collect();
        let server = Server::start_all(cuts.iter().map(|cut| streamed(headers, &body.as_bytes()[..*cut])).collect()).await;
        let model = server.model();
        for cut in cuts {
            match stream(&model).await.0 {
                Ok(reply) => assert!(cut >= end && reply.tool_calls.len() == 1, "{cut}: {reply:?}"),
                Err(error) => {
                    assert!(cut < end, "{cut}: {error:?}");
                    assert_eq!(error.class(), ModelErrorClass::Truncated, "{cut} {headers}: {error:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_whole_answer_that_is_cut_anywhere_is_asked_for_again() {
    let body = "{\"choices\":[{\"message\":{\"content\":\"气 whole\"},\"finish_reason\":\"stop\"}]}";
    let parts = (0..body.len()).flat_map(|cut| [cut, cut]);
    let server =
        Server::start_all(parts.map(|cut| streamed("content-type: application/json\r\n", &body.as_bytes()[..cut])).collect())
            .await;
    let model = server.model();
    for cut in 0..body.len() {
        let errors = [model.chat(&request()).await.unwrap_err(), stream(&model).await.0.unwrap_err()];
        assert!(errors.iter().all(ModelError::is_transient), "{cut}: {errors:?}");
    }
}

#[tokio::test]
async fn a_stream_in_place_of_a_whole_answer_and_the_other_way_round() {
    let events = b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let server = Server::start(streamed(SSE, events)).await;
    assert_eq!(server.model().chat(&request()).await.unwrap().content, "hi");
    let server = Server::start(streamed("content-type: application/json\r\n", events)).await;
    assert_eq!(stream(&server.model()).await.0.unwrap().content, "hi");
    let whole = b"{\"choices\":[{\"message\":{\"content\":\"hi\",\"reasoning_content\":\"\",\"reasoning\":\"hm\"}}]}";
    for headers in [SSE, "content-type: application/json\r\n", ""] {
        let server = Server::start(streamed(headers, whole)).await;
        let (answered, text, thoughts) = stream(&server.model()).await;
        assert_eq!(answered.unwrap().reasoning.as_deref(), Some("hm"), "{headers}");
        assert_eq!((text.as_str(), thoughts.as_str()), ("hi", "hm"), "{headers}: it is told at the end");
    }
}

#[tokio::test]
async fn what_comes_behind_the_end_is_no_reason_to_lose_it() {
    let end = r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    for rest in ["not JSON", "{\"choices\":", "[done]", r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#] {
        let reply = chunks(&[end, rest]).await.unwrap();
        assert_eq!((reply.content.as_str(), reply.finish), ("hi", Finish::Stop), "{rest}");
    }
    let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2.0}}";
    let server = Server::start(streamed(SSE, format!("data: {end}\n\n{last}").as_bytes())).await;
    assert_eq!(stream(&server.model()).await.0.unwrap().usage, Some(Usage::told(1, 2)), "the last line has no end");
}

#[tokio::test]
async fn refusals_and_errors_in_a_stream_are_told_as_what_they_are() {
    let refused = chunks(&[
        r#"{"choices":[{"delta":{"content":null,"refusal":"I can"}}]}"#,
        r#"{"choices":[{"delta":{"refusal":"not."},"finish_reason":"stop"}]}"#,
    ]);
    let refused = refused.await.unwrap();
    assert_eq!((refused.content.as_str(), refused.refused), ("I cannot.", true));
    let thought = r#"{"choices":[{"delta":{"reasoning":"hm"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#;
    let said = r#"{"choices":[{"delta":{"content":"half"}}]}"#;
    for (last, class) in [
        (r#"{"error":{"message":"upstream","code":"odd"}}"#, ModelErrorClass::Server),
        (r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#, ModelErrorClass::Server),
        (r#"{"choices":[{"error":{"message":"slow","code":429},"finish_reason":"error"}]}"#, ModelErrorClass::RateLimit),
        (r#"{"choices":[{"delta":{}}]}"#, ModelErrorClass::Truncated),
        ("{\"choices\":[{\"delta\":{\"content\":\"unter", ModelErrorClass::Truncated),
    ] {
        let error = chunks(&[thought, said, last]).await.unwrap_err();
        assert_eq!((error.class(), error.partial_text()), (class, Some("half")), "{last}: {error:?}");
        assert_eq!(error.usage(), Some(Usage::told(7, 1)), "{last}: what it cost is known");
    }
    let error = chunks(&[thought, r#"{"error":"something"}"#]).await.unwrap_err();
    assert_eq!(error.class(), ModelErrorClass::Server, "it had begun to think");
    let server = Server::start(streamed(SSE, b"event: error\ndata: upstream timed out\n\n")).await;
    let error = stream(&server.model()).await.0.unwrap_err();
    assert!(error.to_string().contains("upstream timed out") && error.status() == Some(200), "{error:?}");
}

/// A server that says these bytes, and then the same again and again.
async fn endless(first: &'static str, again: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut Vec::with_capacity(4_096)).await.unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        while stream.write_all(again.as_bytes()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    url
}

#[tokio::test]
async fn a_server_that_never_hangs_up_holds_nobody() {
    let first = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    let model = OpenAi::new(endless(first, ": ping\n\n").await, "demo");
    let reply = tokio::time::timeout(Duration::from_secs(30), async { model.chat_streamed(&request(), &mut |_| {}).await });
    assert_eq!(reply.await.expect("it ends").unwrap().content, "hi");
    let model = OpenAi::new(endless("HTTP/1.1 503 X\r\n\r\nbusy", " ").await, "demo");
    let error = tokio::time::timeout(Duration::from_secs(30), async { model.chat(&request()).await });
    let error = error.await.expect("it ends").unwrap_err();
    assert!(error.status() == Some(503) && error.to_string().contains("busy"), "{error:?}");
}

#[tokio::test]
async fn nothing_follows_to_another_place() {
    let other = Server::start(answer(200, "", b"{}")).await;
    for status in [301, 302, 307, 308] {
        let server = Server::start(answer(status, &format!("location: {}/chat/completions\r\n", other.url), b"")).await;
        let error = OpenAi::new(format!("{}?key=query-secret", server.url), "demo").chat(&request()).await.unwrap_err();
        assert_eq!((error.class(), error.status()), (ModelErrorClass::Protocol, Some(status)), "{error:?}");
        assert!(error.to_string().contains("set OPENAI_BASE_URL"), "{error}");
    }
    assert!(other.requests().is_empty(), "{:?}", other.requests());
}
