//! A server of notes that speaks the Model Context Protocol, with no library: what it answers to each message, and the test program as that server.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Set where this program is to be the server.
const SERVES: &str = "SERVES_NOTES";

/// The server: this program again.
pub(crate) fn notes_server() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "notes::the_server_ends_with_its_input"]).env(SERVES, "yes");
    command
}

/// The server itself, where one is wanted. What the harness says around it is no message, and is passed over as the protocol's clients do.
#[test]
fn the_server_ends_with_its_input() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let mut notes = Notes::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str(&line.unwrap()) else { continue };
        if let Some(answer) = notes.answer(&message) {
            writeln!(std::io::stdout(), "{answer}").unwrap();
        }
    }
}

/// Notes, as long as the server lives.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// The answer to a message; none to one that wants none.
    pub(crate) fn answer(&mut self, message: &Value) -> Option<Value> {
        let id = message.get("id")?;
        let params = &message["params"];
        let answered = match message["method"].as_str()? {
            "initialize" => Ok(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": tools()})),
            "tools/call" => self.call(params["name"].as_str().unwrap_or_default(), &params["arguments"]),
            other => Err((-32601, format!("no method {other}"))),
        };
        Some(match answered {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, text)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}),
        })
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Result<Value, (i32, String)> {
        let text = |text: String, is_error: bool| Ok(json!({"content": [{"type": "text", "text": text}], "isError": is_error}));
        match name {
            "add" if arguments["text"] == "" => text("an empty note".to_owned(), true),
            "add" if arguments["text"] == "refused" => Err((-32602, "no such note".to_owned())),
            "add" => {
                self.0.push(arguments["text"].as_str().unwrap_or_default().to_owned());
                text(format!("note {} added", self.0.len()), false)
            }
            "list" => text(self.0.join("; "), false),
            "variable" => {
                text(std::env::var(arguments["name"].as_str().unwrap_or_default()).unwrap_or("not set".to_owned()), false)
            }
            "process" => text(std::process::id().to_string(), false),
            "die" | "wipe.all" => std::process::exit(3),
            other => Err((-32602, format!("no tool {other}"))),
        }
    }
}

fn tools() -> Value {
    let one = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    json!([
        {"name": "add", "description": "Adds a note.", "inputSchema": one("text")},
        {"name": "list", "description": "Lists the notes.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "variable", "inputSchema": one("name"), "annotations": {"readOnlyHint": true}},
        {"name": "headers", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "gone", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "process", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "wipe.all", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": true}},
        {"name": "die", "inputSchema": {"type": "object"}},
    ])
}

/// A server of notes over HTTP, for whoever has the token.
pub(crate) async fn serve_http(token: &'static str) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let notes = Arc::new(Mutex::new(Notes::default()));
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, notes.clone(), token));
        }
    });
    (address, serving)
}

/// One connection of HTTP/1.1: answers to posts, as JSON.
async fn serve(stream: TcpStream, notes: Arc<Mutex<Notes>>, token: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut allowed, mut first, mut head) = (0, false, String::new(), String::new());
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            head.push_str(&line);
            let lower = line.to_ascii_lowercase();
            match lower.trim().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("authorization", _)) => allowed = line.trim().ends_with(&format!("Bearer {token}")),
                _ => {}
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        // What a server can do with what it was told: nothing, and saying it.
        let said = match message["params"]["name"].as_str() {
            Some("gone") => return Ok(()),
            Some("headers") => Some(json!({"content": [{"type": "text", "text": format!("{first}{head}")}]})),
            _ => None,
        };
        let said = said.map(|result| json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        let answer = if said.is_some() {
            said
        } else if allowed {
            notes.lock().unwrap().answer(&message)
        } else {
            None
        };
        let answer = match (first.starts_with("POST"), allowed, answer) {
            (_, false, _) => "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n".to_owned(),
            (false, ..) => "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned(),
            _ if message["params"]["arguments"]["text"] == "busy" => {
                "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            _ if message["params"]["arguments"]["text"] == "broken" => {
                "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            (_, _, None) => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
            (_, _, Some(answer)) => {
                let answer = answer.to_string();
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())
            }
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}
