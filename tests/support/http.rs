//! HTTP on loopback, byte by byte, inside one runtime whose time is paused.

use std::io::{Error, Result};
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// What a server answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
}

/// Asks for the root, and waits for the answer. No time passes meanwhile.
pub(crate) async fn get(server: SocketAddr) -> Result<Reply> {
    let held = hold_time();
    let reply = exchange(server).await;
    held.release().await;
    reply
}

async fn exchange(server: SocketAddr) -> Result<Reply> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let head = read_head(&mut stream).await?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let retry_after = head.lines().find_map(|line| line.strip_prefix("Retry-After: ")?.parse().ok());
    Ok(Reply { status: status.ok_or_else(|| Error::other("this is no answer"))?, retry_after })
}

/// Everything up to the empty line.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Result<String> {
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while reader.read_line(&mut head).await? > "\r\n".len() {}
    Ok(head)
}

/// A whole request: its head, and as much of a body as the head promises.
pub(crate) async fn read_request(stream: &mut TcpStream) -> Result<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Ok(text);
            }
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Err(Error::other("the request broke off"));
        }
    }
}

/// Keeps paused time from going on. Else tokio goes to the next timer if the system has nothing for any socket at that very moment.
pub(crate) struct HeldTime {
    release: std::sync::mpsc::Sender<()>,
    released: tokio::task::JoinHandle<()>,
}

pub(crate) fn hold_time() -> HeldTime {
    let (release, wait) = std::sync::mpsc::channel();
    // Paused time stands still while something blocks.
    HeldTime { release, released: tokio::task::spawn_blocking(move || _ = wait.recv()) }
}

impl HeldTime {
    pub(crate) async fn release(self) {
        drop(self.release);
        self.released.await.expect("it only waited");
    }
}
