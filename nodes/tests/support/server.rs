//! A server on loopback that says what a test tells it to.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::{Arc, Mutex};

use ferrata_nodes::OpenAi;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const KEY: &str = "sk-do-not-show";

/// A server that gives the same bytes to whoever asks, and keeps what it was asked.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(answer: Vec<u8>) -> Self {
        Self::start_all(vec![answer]).await
    }

    /// Gives them in this order, and the last one from then on.
    pub(crate) async fn start_all(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                let answer = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request);
                    answers[seen.len().min(answers.len()) - 1].clone()
                };
                // The client may be gone before the body is.
                if stream.write_all(&answer).await.is_ok() {
                    let _ = stream.shutdown().await;
                }
            }
        });
        Self { url, requests }
    }

    pub(crate) fn model(&self) -> OpenAi {
        OpenAi::new(&self.url, "demo").api_key(KEY)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the request broke off: {text}");
    }
}

pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
