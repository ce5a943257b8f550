//! Tools of MCP servers, real ones over a pipe and over HTTP, under the same policy as one's own.
//!
//! How this could break: a tool that writes and is taken for one that reads, a failure that is told as a success, a call without an answer that is taken
//! for one that did nothing, a child process that sees keys, a token that stands in a record.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/chat.rs"]
mod chat;
#[path = "support/notes.rs"]
mod notes;

use std::process::Command;
use std::time::Duration;

use chat::{Chat, calls, graph, results, scripted};
use ferrata::Runner;
use ferrata::store::MemoryStore;
use ferrata_nodes::{McpServer, Tool, ToolsError, ToolsNode};
use notes::{notes_server, serve_http};
use serde_json::json;
use tokio::net::TcpListener;

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
    assert_eq!(
        names(&tools),
        [
            "notes_add",
            "notes_list",
            "notes_variable",
            "notes_headers",
            "notes_gone",
            "notes_process",
            "notes_wipe_all",
            "notes_die"
        ]
    );
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
    assert_eq!(told[1].1, "", "it is started again, and has no notes");
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
    let url = format!("http://{}/mcp", serve_http(TOKEN).await.0);
    let server = McpServer::http(&url).token(TOKEN).connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    let twice = ToolsNode::new(tools.iter().chain(&tools).cloned());
    assert!(matches!(twice, Err(ToolsError::Twice { .. })));
    let turn = calls([("c1", "add", json!({"text": "bread"})), ("c2", "add", json!({"text": ""}))]);
    assert_eq!(told(tools, turn).await, ["note 1 added", "The server says that the call failed: an empty note"]);

    let refused = McpServer::http(&url).token("another").connect().await.unwrap_err();
    assert!(!refused.to_string().contains("another"), "{refused}");
}
