//! What servers send that call themselves compatible: thirty bodies, byte for byte, from a real server on loopback, in the pieces that their index names.
//!
//! How it could break: a stream that breaks off passes for an answer, fragments of two calls run into one, an error in a body of success is shown as
//! text, a server that keeps the connection open holds up the run, tokens are made up that nobody counted.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support {
    pub(crate) mod http;
}

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::state::Message;
use ferrata_nodes::{ChatModel, ChatReply, ChatRequest, Delta, ModelError, OpenAi};
use serde_json::{Value, json};
use support::http;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wire")
}

fn rows() -> Vec<Value> {
    let index: Value = serde_json::from_slice(&std::fs::read(folder().join("index.json")).expect("an index")).expect("JSON");
    index["fixtures"].as_array().expect("a list").clone()
}

/// The body of a row.
fn body_of(row: &Value) -> Vec<u8> {
    std::fs::read(folder().join(row["file"].as_str().expect("a name"))).expect("a body")
}

/// Serves a body as its row says; counts the requests.
async fn serve(row: &Value, body: Vec<u8>, step: Option<usize>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let (row, requests) = (row.clone(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::SeqCst);
            let (row, body) = (row.clone(), body.clone());
            // The client may be gone before the body is.
            tokio::spawn(async move { answer(stream, &row, &body, step).await.ok() });
        }
    });
    (url, requests)
}

async fn answer(mut stream: TcpStream, row: &Value, body: &[u8], step: Option<usize>) -> std::io::Result<()> {
    http::read_request(&mut stream).await?;
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", row["status"].as_u64().unwrap_or(200));
    for (name, value) in row["headers"].as_object().into_iter().flatten() {
        head += &format!("{name}: {}\r\n", value.as_str().unwrap_or_default());
    }
    if row["mode"] == "unary" {
        head += &format!("content-length: {}\r\n", body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    let step = step.unwrap_or(if row["delivery"] == "whole" { body.len().max(1) } else { 1 });
    stream.set_nodelay(true)?;
    for part in body.chunks(step) {
        stream.write_all(part).await?;
        stream.flush().await?;
    }
    if row["close"].as_str().is_some_and(|close| close.starts_with("hold")) {
        // Until the client goes.
        stream.read_buf(&mut Vec::new()).await?;
    }
    Ok(())
}

/// What the row expects, from what came.
fn told(came: &Result<ChatReply, ModelError>) -> Value {
    match came {
        Ok(reply) => {
            let finish = reply.finish.code();
            let calls: Vec<Value> = reply
                .tool_calls
                .iter()
                .map(|call| json!({"id": call.id, "name": call.name, "args": serde_json::from_str::<Value>(&call.arguments).expect("JSON")}))
                .collect();
            let usage = reply.usage.map(
                |u| json!({"prompt": u.input_tokens, "completion": u.output_tokens, "total": u.input_tokens + u.output_tokens}),
            );
            json!({"outcome": "ok", "text": reply.content, "tool_calls": calls, "finish": finish, "usage": usage,
                "reasoning": reply.reasoning})
        }
        Err(error) => json!({"outcome": "error", "error_class": error.class().code(), "retryable": error.is_transient(),
            "status": error.status(), "message": error.to_string(), "partial_text": error.partial_text(),
            "retry_after_s": error.retry_after().map(|wait| wait.as_secs())}),
    }
}

/// Why it is not what the row expects.
fn differs(expect: &Value, came: &Value) -> Option<String> {
    for (key, want) in expect.as_object().expect("an object") {
        let has = &came[key];
        let is_met = match key.as_str() {
            "note" | "within_ms" | "any_of" => true,
            "tool_calls_to_run" => came["tool_calls"].as_array().is_none_or(Vec::is_empty),
            "message_contains" => came["message"].as_str().unwrap_or_default().contains(want.as_str().expect("a text")),
            "text_len" => came["text"].as_str().map(str::len) == want.as_u64().and_then(|len| usize::try_from(len).ok()),
            "text_starts" => came["text"].as_str().unwrap_or_default().starts_with(want.as_str().expect("a text")),
            "tool_calls" => same_calls(want, has),
            _ => has == want,
        };
        if !is_met {
            return Some(format!("{key}: {has}, not {want}"));
        }
    }
    None
}

fn same_calls(want: &Value, has: &Value) -> bool {
    let (want, has) = (want.as_array().expect("a list"), has.as_array().expect("a list"));
    let same = |want: &Value, has: &Value| {
        let id = has["id"].as_str().unwrap_or_default();
        want["name"] == has["name"] && want["args"] == has["args"] && !id.is_empty() && (want["id"] == "*" || want["id"] == id)
    };
    want.len() == has.len() && want.iter().zip(has).all(|(want, has)| same(want, has))
}

/// Why a body is not read as its row says.
async fn misread(row: &Value, body: Vec<u8>, step: Option<usize>) -> Option<String> {
    let (url, requests) = serve(row, body, step).await;
    let model = OpenAi::new(url, "demo-model-1");
    let request = ChatRequest::new([Message::user("Hi")]);
    let (expect, mut shown) = (&row["expect"], String::new());
    let asking = async {
        if row["mode"] != "stream" {
            return model.chat(&request).await;
        }
        let mut tell = |delta: Delta<'_>| {
            if let Delta::Text(text) = delta {
                shown.push_str(text);
            }
        };
        model.chat_streamed(&request, &mut tell).await
    };
    let limit = expect["within_ms"].as_u64().unwrap_or(60_000);
    let Ok(came) = tokio::time::timeout(Duration::from_millis(limit), asking).await else {
        return Some(format!("it takes longer than {limit} ms"));
    };
    if requests.load(Ordering::SeqCst) != 1 {
        return Some("there was more than one request".to_owned());
    }
    match &came {
        Ok(reply) if row["mode"] == "stream" && shown != reply.content => {
            Some(format!("it showed {shown:?} on the way to {:?}", reply.content))
        }
        came => differs(expect, &told(came)),
    }
}

#[tokio::test]
async fn every_body_is_read_as_its_row_says_in_whatever_pieces_it_comes() {
    let rows = rows();
    assert_eq!(rows.len(), 30);
    let mut wrong = Vec::new();
    for row in &rows {
        for step in [None, Some(1), Some(7)] {
            let why = misread(row, body_of(row), step).await;
            wrong.extend(why.map(|why| format!("{} in pieces of {step:?}: {why}", row["file"])));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A way to write the same stream: a name, and what it makes of one with plain line ends.
type Spelling = (&'static str, fn(&str) -> String);

#[tokio::test]
async fn every_stream_is_read_the_same_however_its_server_spells_events() {
    let spellings: [Spelling; 6] = [
        ("returns and line feeds", |text| text.replace('\n', "\r\n")),
        ("returns", |text| text.replace('\n', "\r")),
        ("a mark of the byte order", |text| format!("\u{feff}{text}")),
        ("comments", |text| text.replace("\n\n", "\n\n: still here\n\n")),
        ("no space", |text| text.replace("data: ", "data:")),
        ("no end of the last line", |text| text.trim_end().to_owned()),
    ];
    let mut wrong = Vec::new();
    for row in rows().iter().filter(|row| row["mode"] == "stream") {
        let plain = String::from_utf8(body_of(row)).expect("it is text").replace("\r\n", "\n");
        for (name, spell) in spellings {
            let why = misread(row, spell(&plain).into_bytes(), None).await;
            wrong.extend(why.map(|why| format!("{} with {name}: {why}", row["file"])));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
