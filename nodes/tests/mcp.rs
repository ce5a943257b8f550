//! Tools of MCP servers, real ones over a pipe and over HTTP, under the same policy as one's own.
//!
//! How this could break: a tool that writes and is taken for one that reads, a failure that is told as a success, a call without an answer that is taken
//! for one that did nothing, a child process that sees keys, a token that stands in a record.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/chat.rs"]
mod chat;
#[path = "support/notes.rs"]
mod notes;

use std::io::{BufRead, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chat::{Chat, calls, graph, results, scripted};
use ferrata::Runner;
use ferrata::store::MemoryStore;
use ferrata_nodes::{McpServer, Tool, ToolsError, ToolsNode};
use notes::Notes;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Set where this program is to be the server.
const SERVES: &str = "SERVES_NOTES";

/// The server: this program again.
fn notes_server() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_server_ends_with_its_input"]).env(SERVES, "yes");
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

fn names(tools: &[Tool]) -> Vec<String> {
    tools.iter().map(|tool| tool.spec().name).collect()
}

/// What the calls of one turn get.
async fn told(tools: Vec<Tool>, turn: ferrata_nodes::ChatReply) -> Vec<String> {
    let state = chat::run(ToolsNode::new(tools).unwrap(), [turn]).await;
    results(&state).into_iter().map(|(_, content)| content).collect()
}

#[tokio::test]
async fn tools_of_a_child_process_are_called_under_the_same_policy() {
    let mut command = notes_server();
    command.env("NOTES_KEY", "for the notes only");
    let server = McpServer::child(command).prefix("notes_").connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    assert_eq!(names(&tools), ["notes_add", "notes_list", "notes_variable", "notes_die"]);
    assert_eq!(tools[0].spec().description, "Adds a note.");

    let turn = calls([
        ("c1", "notes_add", json!({"text": "milk"})),
        ("c2", "notes_add", json!({"txt": "milk"})),
        ("c3", "notes_add", json!({"text": ""})),
        ("c4", "notes_add", json!({"text": "refused"})),
        ("c5", "notes_variable", json!({"name": "NOTES_KEY"})),
        ("c6", "notes_variable", json!({"name": "CARGO_MANIFEST_DIR"})),
    ]);
    let told = told(tools.clone(), turn).await;
    let expected = [
        "note 1 added",
        "Nothing was done: the arguments of \"notes_add\" do not fit: \"text\" is a required property",
        "The server says that the call failed: an empty note",
        "The tool \"notes_add\" failed, and nothing was done: no such note",
        "for the notes only",
        "not set",
    ];
    assert_eq!(told, expected);
    drop(server);
    let still = self::told(tools, calls([("c1", "notes_list", json!({}))])).await;
    assert_eq!(still, ["milk"], "a tool keeps its server");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_it_in_doubt() {
    let tools = McpServer::child(notes_server()).connect().await.unwrap().tools().await.unwrap();
    let turns = [calls([("c1", "die", json!({}))]), calls([("c2", "list", json!({}))])];
    let thread = Runner::new(graph(scripted(turns), ToolsNode::new(tools).unwrap()), MemoryStore::new()).thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    assert!(outcome.questions()[0].is_doubt());
    let state = thread.answer(outcome.questions()[0].id, ferrata::Answer::performed("it died")).await.unwrap().done().unwrap();
    let told = results(&state);
    assert_eq!(told[0].1, "it died");
    assert!(told[1].1.starts_with("The tool \"list\" failed: the MCP server gave no answer"), "{told:?}");
}

#[tokio::test]
async fn what_is_no_server_is_an_error_that_says_so() {
    let none = McpServer::child(Command::new("there-is-no-such-program")).connect().await.unwrap_err();
    assert!(none.to_string().contains("\"there-is-no-such-program\" cannot be started"), "{none}");
    let silent = McpServer::http(format!("http://{}/mcp", silent().await)).connect_timeout(Duration::from_millis(200));
    let silent = silent.token("s3cr3t");
    assert!(!format!("{silent:?}").contains("s3cr3t"));
    assert!(silent.connect().await.unwrap_err().to_string().contains("did not answer within 200ms"));
}

/// A place where connections are taken and nothing is said.
async fn silent() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    address
}

// ---- over HTTP ----

const TOKEN: &str = "token-of-the-wiki";

#[tokio::test]
async fn tools_of_a_server_over_http_are_called_with_its_token() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let notes = Arc::new(Mutex::new(Notes::default()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, notes.clone()));
        }
    });
    let server = McpServer::http(&url).token(TOKEN).connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    let twice = ToolsNode::new(tools.iter().chain(&tools).cloned());
    assert!(matches!(twice, Err(ToolsError::Twice { .. })));
    let turn = calls([("c1", "add", json!({"text": "bread"})), ("c2", "add", json!({"text": ""}))]);
    assert_eq!(told(tools, turn).await, ["note 1 added", "The server says that the call failed: an empty note"]);

    let refused = McpServer::http(&url).token("another").connect().await.unwrap_err();
    assert!(!refused.to_string().contains("another"), "{refused}");
}

/// One connection of HTTP/1.1: answers to posts, as JSON.
async fn serve(stream: TcpStream, notes: Arc<Mutex<Notes>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut allowed, mut first) = (0, false, String::new());
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let lower = line.to_ascii_lowercase();
            match lower.trim().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("authorization", _)) => allowed = line.trim().ends_with(&format!("Bearer {TOKEN}")),
                _ => {}
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answer = if allowed { notes.lock().unwrap().answer(&message) } else { None };
        let answer = match (first.starts_with("POST"), allowed, answer) {
            (_, false, _) => "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n".to_owned(),
            (false, ..) => "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned(),
            (_, _, None) => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
            (_, _, Some(answer)) => {
                let answer = answer.to_string();
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())
            }
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}
