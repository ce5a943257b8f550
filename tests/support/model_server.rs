//! A server on loopback that speaks the OpenAI chat protocol, byte by byte, and keeps a log of its requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Answer,
    /// 429 with Retry-After.
    Refuse,
    /// The connection breaks without an answer.
    Die,
    /// No answer until the client is gone.
    Hold,
}

/// A request and what was done with it.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) body: String,
    pub(crate) act: Act,
}

type Script = dyn Fn(usize) -> Act + Send + Sync;

pub(crate) struct ModelServer {
    pub(crate) url: String,
    log: Arc<Mutex<Vec<Logged>>>,
    script: Arc<Mutex<Box<Script>>>,
}

impl ModelServer {
    /// `script` says what to do with the n-th request, from 1.
    pub(crate) fn start(script: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let log: Arc<Mutex<Vec<Logged>>> = Arc::default();
        let script: Arc<Mutex<Box<Script>>> = Arc::new(Mutex::new(Box::new(script)));
        let (kept, acts) = (Arc::clone(&log), Arc::clone(&script));
        // The threads end with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, acts) = (Arc::clone(&kept), Arc::clone(&acts));
                std::thread::spawn(move || serve(stream, &kept, &acts));
            }
        });
        Self { url, log, script }
    }

    pub(crate) fn log(&self) -> Vec<Logged> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn follow(&self, script: impl Fn(usize) -> Act + Send + Sync + 'static) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(script);
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Logged>>, script: &Mutex<Box<Script>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream can be cloned"));
    let mut writer = stream;
    while let Some(body) = read_request(&mut reader) {
        let act = {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            let act = script.lock().unwrap_or_else(PoisonError::into_inner)(log.len() + 1);
            log.push(Logged { body: body.clone(), act });
            act
        };
        let (status, headers, answer) = match act {
            Act::Answer => ("200 OK", "", completion(&body)),
            Act::Refuse => (
                "429 Too Many Requests",
                "retry-after: 0\r\n",
                json!({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
            ),
            Act::Die => return,
            Act::Hold => {
                // Ends when the client is killed and its side of the connection closes.
                let _ = reader.read(&mut [0; 1]);
                return;
            }
        };
        let answer = answer.to_string();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n", answer.len());
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(answer.as_bytes())).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// The same request always gets the same answer: its first words.
fn completion(body: &str) -> Value {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let text = request["messages"].as_array().and_then(|m| m.last()).and_then(|m| m["content"].as_str()).unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.starts_with('<')).take(25).collect();
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "loopback-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": words.join(" ")}}],
        "usage": {"prompt_tokens": text.len() / 4, "completion_tokens": words.len(), "total_tokens": text.len() / 4 + words.len()},
    })
}
