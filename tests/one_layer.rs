//! One layer of retries (F36): a server on loopback sees as many requests as the policy of the node says, and no more; the error that remains is the server's.
//!
//! How it could break: the client library retries as well, and requests multiply; Retry-After is lost with an odd body; a refused key is tried again; clients
//! that failed together come back together.
//!
//! Time is tokio's paused one, and the server is in the same runtime: waits take no time here, and are seen exactly.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support {
    pub(crate) mod http;
    pub(crate) mod tokio_clock;
}

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::state::Message;
use ferrata::store::MemoryStore;
use ferrata::{END, Graph, Retry, Runner, START, State};
use ferrata_nodes::{ChatFuture, ChatModel, ChatNode, ChatRequest, OpenAi};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::http;
use support::tokio_clock::{TokioClock, tokio_now};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

/// Status, headers and body of an answer.
type Answer = (u16, &'static str, &'static str);

const GOOD: Answer = (200, "", r#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}"#);
const BUSY: Answer = (503, "", "<html>busy</html>");
const LATER: Answer = (429, "retry-after: 2\r\n", r#"{"detail":"slow down"}"#);
const SPENT: Answer = (429, "", r#"{"error":{"message":"no credit","type":"insufficient_quota","code":"insufficient_quota"}}"#);
const WRONG: Answer = (400, "", r#"{"error":{"message":"no such field","type":"invalid_request_error"}}"#);
const FORBIDDEN: Answer = (401, "", r#"{"error":{"message":"no such key"}}"#);

/// Gives these answers one after the other, the last one for ever; keeps when it was asked.
async fn serve(answers: &'static [Answer]) -> (String, Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, answers, Arc::clone(&seen)));
        }
    });
    (url, asked)
}

async fn answer(mut stream: TcpStream, answers: &[Answer], seen: Arc<Mutex<Vec<Instant>>>) -> std::io::Result<()> {
    http::read_request(&mut stream).await?;
    let (status, headers, body) = {
        let mut seen = seen.lock().expect("no panic");
        seen.push(tokio_now());
        answers[(seen.len() - 1).min(answers.len() - 1)]
    };
    let length = body.len();
    let answer = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await
}

/// A model during whose requests no time passes.
#[derive(Debug)]
struct Held(OpenAi);

impl ChatModel for Held {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async move {
            let held = http::hold_time();
            let answered = self.0.chat(request).await;
            held.release().await;
            answered
        })
    }
}

/// What comes of it with so many retries, and when the server was asked.
async fn ask(answers: &'static [Answer], retries: u32, jitter: bool) -> (Result<String, String>, Vec<Duration>) {
    let (url, asked) = serve(answers).await;
    let chat = ChatNode::new(Held(OpenAi::new(url, "demo"))).over(Chat::MESSAGES).retry(Retry::transient(retries + 1));
    let graph = Graph::<Chat>::new("chat").node("chat", chat).edge(START, "chat").edge("chat", END).build().expect("it is right");
    let runner = if jitter {
        Runner::new(graph, MemoryStore::new())
    } else {
        Runner::with_clock(graph, MemoryStore::new(), TokioClock::new())
    };
    let ended = runner.thread("t").run(Chat::update().message(Message::user("Hi"))).await;
    let ended = ended.map(|outcome| outcome.done().expect("it asks nobody").messages[1].content.clone());
    let asked = asked.lock().expect("no panic");
    (ended.map_err(|error| error.to_string()), asked.iter().map(|at| at.duration_since(asked[0])).collect())
}

#[tokio::test(start_paused = true)]
async fn f36_the_server_sees_as_many_requests_as_the_policy_says() {
    const ROWS: [(&[Answer], u32, usize, &str); 11] = [
        (&[BUSY, BUSY, BUSY, GOOD], 0, 1, "503"),
        (&[BUSY, BUSY, BUSY, GOOD], 2, 3, "503"),
        (&[BUSY, BUSY, BUSY, GOOD], 3, 4, "Hello."),
        (&[LATER, GOOD], 0, 1, "429"),
        (&[LATER, GOOD], 2, 2, "Hello."),
        (&[WRONG, GOOD], 0, 1, "400"),
        (&[WRONG, GOOD], 2, 1, "400"),
        (&[FORBIDDEN, GOOD], 0, 1, "401"),
        (&[FORBIDDEN, GOOD], 2, 1, "401"),
        (&[SPENT, GOOD], 0, 1, "429"),
        (&[SPENT, GOOD], 2, 1, "credit"),
    ];
    for (answers, retries, requests, says) in ROWS {
        let (ended, asked) = ask(answers, retries, false).await;
        let row = format!("{answers:?} with {retries} retries: {ended:?}");
        assert_eq!(asked.len(), requests, "{row}");
        match &ended {
            Ok(text) => assert_eq!(text, says, "{row}"),
            Err(text) => assert!(text.contains(says), "{row}"),
        }
        assert_eq!(ended.is_ok(), says == "Hello.", "{row}");
        // One wait for each failure that is tried again, and the longest one asked for.
        if answers[0] == LATER && retries > 0 {
            assert!(asked[1] >= Duration::from_secs(2) && asked[1] < Duration::from_secs(4), "{row}: {asked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f36_clients_that_failed_together_come_back_apart() {
    let mut waits = BTreeSet::new();
    for _ in 0..8 {
        waits.insert(ask(&[BUSY, GOOD], 2, true).await.1[1]);
    }
    assert!(waits.len() > 4, "{waits:?}");
}
