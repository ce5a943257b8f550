//! Lets a model use the tools of an MCP server, under ferrata's policy: allowed by name, effects on record, nothing done twice.
//!
//! ```sh
//! cargo run --example mcp                                      # with a small server of notes, which is this program again
//! cargo run --example mcp -- npx some-mcp-server --its-options # shows the tools of another one
//! ```
//!
//! The model is scripted, so that no key or server is needed: it adds two notes at once, and one with an argument that does not fit, then lists them.

use std::error::Error;
use std::io::{BufRead, Write};
use std::process::Command;

use ferrata::state::{Message, Role};
use ferrata::store::MemoryStore;
use ferrata::{END, Graph, Guard, Runner, START, State};
use ferrata_nodes::{ChatNode, ChatReply, McpServer, Risk, Scripted, ToolsNode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Talk {
    #[state(messages)]
    messages: Vec<Message>,
}

fn model() -> Scripted {
    Scripted::replies([
        Ok(ChatReply::new("")
            .tool_call("c1", "notes_add", &json!({"text": "milk"}))
            .tool_call("c2", "notes_add", &json!({"text": "bread"}))
            .tool_call("c3", "notes_add", &json!({"note": "eggs"}))),
        Ok(ChatReply::new("").tool_call("c4", "notes_list", &json!({}))),
        Ok(ChatReply::new("That is your list.")),
    ])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("--serve") => serve(),
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words);
            show(command).await
        }
        None => talk().await,
    }
}

/// What a server offers, and what a call of it may do.
async fn show(command: Command) -> Result<(), Box<dyn Error>> {
    for tool in McpServer::child(command).connect().await?.tools().await? {
        let spec = tool.spec();
        println!("{}: {}\n    {}", spec.name, spec.description, spec.arguments);
    }
    Ok(())
}

/// A conversation in which the model uses the server's tools.
async fn talk() -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve");
    let notes = McpServer::child(command).prefix("notes_").connect().await?;
    // The server says what only reads. What else its tools may do is for us to say.
    let tools =
        notes.tools().await?.into_iter().map(|tool| if tool.spec().name == "notes_add" { tool.risk(Risk::Write) } else { tool });
    let tools = ToolsNode::new(tools)?.allow(["notes_add", "notes_list"])?;
    let graph = Graph::<Talk>::new("talk")
        .node("chat", ChatNode::new(model()).tools(tools.specs()).over(Talk::MESSAGES))
        .node("tools", tools.over(Talk::MESSAGES).guard(Guard::new()))
        .edge(START, "chat")
        .route_to("chat", ["tools", END], |talk: &Talk| if ToolsNode::is_wanted(&talk.messages) { "tools" } else { END })
        .edge("tools", "chat")
        .build()?;
    let thread = Runner::new(graph, MemoryStore::new()).thread("talk");
    let outcome = thread.run(Talk::update().message(Message::user("Put milk, bread and eggs on my list."))).await?;
    let talk = outcome.done().ok_or("the run asks somebody")?;
    for message in &talk.messages {
        match message.role {
            Role::Assistant => message.tool_calls.iter().for_each(|call| println!("calls {} {}", call.name, call.arguments)),
            Role::Tool => println!("    {}", message.content),
            _ => {}
        }
    }
    println!("{}", talk.messages.last().map_or("", |message| &message.content));
    Ok(())
}

/// The server of notes: a line of JSON for each message, in and out.
fn serve() -> Result<(), Box<dyn Error>> {
    let mut notes = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(id) = message.get("id") else { continue };
        let result = answer(&message, &mut notes);
        let key = if result.get("code").is_some() { "error" } else { "result" };
        writeln!(std::io::stdout(), "{}", json!({"jsonrpc": "2.0", "id": id, key: result}))?;
    }
    Ok(())
}

fn answer(message: &Value, notes: &mut Vec<String>) -> Value {
    let params = &message["params"];
    let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
    match (message["method"].as_str().unwrap_or_default(), params["name"].as_str().unwrap_or_default()) {
        ("initialize", _) => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }),
        ("ping", _) => json!({}),
        ("tools/list", _) => json!({"tools": [
            {"name": "add", "description": "Adds a note.",
             "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false}},
            {"name": "list", "description": "Lists the notes.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
            {"name": "clear", "description": "Forgets all notes.", "inputSchema": {"type": "object"}},
        ]}),
        ("tools/call", "add") => {
            notes.push(params["arguments"]["text"].as_str().unwrap_or_default().to_owned());
            text(format!("note {} added", notes.len()))
        }
        ("tools/call", "list") => {
            notes.sort();
            text(notes.join(", "))
        }
        (method, _) => json!({"code": -32601, "message": format!("there is no {method} here")}),
    }
}
