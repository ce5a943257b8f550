//! MCP servers that fail, die, echo what they were told, and name their tools as they please.
//!
//! How this could break: a failure that no guard sees, a server that stays dead, a call in doubt that was never sent, a key of a URL in a record or an error,
//! a tool that says it destroys and is called without an approval, a name that no endpoint takes, a process that nobody ends.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/chat.rs"]
mod chat;
#[path = "support/notes.rs"]
mod notes;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use chat::{Chat, calls, graph, results, scripted};
use ferrata::store::MemoryStore;
use ferrata::{Guard, Outcome, Runner};
use ferrata_nodes::{McpServer, Scripted, Tool, ToolsNode};
use notes::{notes_server, serve_http};
use serde_json::json;

async fn tools_of(command: Command) -> Vec<Tool> {
    McpServer::child(command).connect().await.unwrap().tools().await.unwrap()
}

/// What the calls of each turn get.
async fn told(tools: Vec<Tool>, turns: impl IntoIterator<Item = ferrata_nodes::ChatReply>) -> Vec<String> {
    let state = chat::run(ToolsNode::new(tools).unwrap(), turns).await;
    results(&state).into_iter().map(|(_, content)| content).collect()
}

#[tokio::test]
async fn a_failure_that_a_server_reports_is_seen_by_the_guard() {
    let tools = ToolsNode::new(tools_of(notes_server()).await).unwrap();
    let node = tools.clone().over(Chat::MESSAGES).guard(Guard::new().failures(3).actions(u32::MAX));
    let mut turn = 0;
    let model = Scripted::answering(move |_| {
        turn += 1;
        assert!(turn < 10, "it goes on for ever");
        Ok(calls([("c1", "add", json!({"text": "", "turn": turn}))]))
    });
    let thread = Runner::new(chat::graph_of(model, &tools, node), MemoryStore::new()).thread("t");
    let Outcome::Waiting(questions) = thread.run(Chat::ask("Go")).await.unwrap() else { panic!("it is not stopped") };
    assert!(questions[0].show.as_ref().unwrap().to_string().contains("an empty note"), "{questions:?}");
}

#[tokio::test]
async fn a_server_that_died_is_started_again_for_the_next_call() {
    let tools = tools_of(notes_server()).await;
    let turns = [
        calls([("c1", "process", json!({}))]),
        calls([("c2", "die", json!({}))]),
        calls([("c3", "add", json!({"text": "milk"})), ("c4", "add", json!({"text": "bread"}))]),
        calls([("c5", "process", json!({}))]),
        calls([("c6", "process", json!({}))]),
    ];
    let thread = Runner::new(graph(scripted(turns), ToolsNode::new(tools).unwrap()), MemoryStore::new()).thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    let [doubt] = outcome.questions() else { panic!("{outcome:?}") };
    let outcome = thread.answer(doubt.id, ferrata::Answer::performed("it died")).await.unwrap();
    let state = outcome.done().expect("a server that is there again leaves nothing in doubt");
    let told: Vec<String> = results(&state).into_iter().map(|(_, content)| content).collect();
    let mut added = [told[2].as_str(), &told[3]];
    added.sort_unstable();
    assert_eq!(added, ["note 1 added", "note 2 added"], "one server, started once");
    assert!(told[4] != told[0] && told[4] == told[5], "{told:?}");
}

#[tokio::test]
async fn a_call_to_a_server_that_cannot_be_started_again_was_not_performed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let program = notes_server();
    command.args(["-c", "[ ! -e ran ] || exit 1; touch ran; exec \"$0\" \"$@\""]).current_dir(folder.path());
    command.arg(program.get_program()).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let tools = tools_of(command).await;
    let write = || calls(["c2", "c3"].map(|id| (id, "add", json!({"text": "milk"}))));
    let thread = Runner::new(
        graph(scripted([calls([("c1", "die", json!({}))]), write()]), ToolsNode::new(tools).unwrap()),
        MemoryStore::new(),
    )
    .thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    let outcome = thread.answer(outcome.questions()[0].id, ferrata::Answer::performed("it died")).await.unwrap();
    let state = outcome.done().expect("what was never sent is not in doubt");
    let told = results(&state);
    assert!(told[1].1.starts_with("The tool \"add\" failed, and nothing was done: the MCP server has ended, and"), "{told:?}");
    assert_eq!(told[1].1, told[2].1);
}

#[tokio::test]
async fn a_server_ends_with_its_last_tool() {
    let server = McpServer::child(notes_server()).connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    let process = told(tools.clone(), [calls([("c1", "process", json!({}))])]).await.remove(0);
    let folder = format!("/proc/{process}");
    if !Path::new("/proc/self").exists() {
        return;
    }
    assert!(Path::new(&folder).exists());
    drop((server, tools));
    let gone = async {
        while Path::new(&folder).exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("nothing of it is left, and no zombie");
}

#[tokio::test]
async fn what_a_command_takes_out_of_the_environment_stays_out() {
    let mut command = notes_server();
    command.env_remove("PATH").env_remove("HOME");
    let turn = calls(["PATH", "HOME"].map(|name| (name, "variable", json!({"name": name}))));
    assert_eq!(told(tools_of(command).await, [turn]).await, ["not set", "not set"]);
}

#[tokio::test]
async fn a_tool_that_says_it_destroys_is_asked_about_and_its_name_is_made_one_that_endpoints_take() {
    let server = McpServer::child(notes_server()).prefix("notes of the whole house, of its garden and of its garage: ");
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names[0], "notes_of_the_whole_house__of_its_garden_and_of_its_garage__add");
    let wipe = names.iter().find(|name| name.contains("wipe")).or(names.iter().max_by_key(|name| name.len())).unwrap();
    assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");
    let turn = calls([("c1", wipe.as_str(), json!({}))]);
    let thread = Runner::new(graph(scripted([turn]), ToolsNode::new(tools).unwrap()), MemoryStore::new()).thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    let [question] = outcome.questions() else { panic!("it is called without an approval: {outcome:?}") };
    assert!(!question.is_doubt() && question.text.contains(wipe), "{question:?}");
}

#[tokio::test]
async fn what_a_server_over_http_never_took_was_not_performed() {
    let (address, serving) = serve_http("token").await;
    let server = McpServer::http(format!("http://{address}/mcp")).token("token").connect().await.unwrap();
    let tools = ToolsNode::new(server.tools().await.unwrap()).unwrap();
    let run = async |text: &str| {
        let turn = calls([("c1", "add", json!({"text": text}))]);
        Runner::new(graph(scripted([turn]), tools.clone()), MemoryStore::new()).thread("t").run(Chat::ask("Go")).await.unwrap()
    };
    let outcome = run("broken").await;
    assert!(outcome.questions()[0].is_doubt(), "a gateway that fails may have passed it on: {outcome:?}");
    let told = async |text: &str| {
        let outcome = run(text).await;
        assert!(outcome.questions().is_empty(), "it is not in doubt: {outcome:?}");
        results(&outcome.done().unwrap()).remove(0).1
    };
    assert_eq!(told("busy").await, "The tool \"add\" failed, and nothing was done: HTTP 429: from the MCP server");
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let gone = told("milk").await;
    assert!(
        gone.starts_with("The tool \"add\" failed, and nothing was done: the MCP server cannot be reached: error sending"),
        "{gone}"
    );
}

#[tokio::test]
async fn keys_of_a_url_and_the_token_are_in_no_record_and_no_error() {
    const TOKEN: &str = "token-of-the-wiki";
    let (address, _) = serve_http(TOKEN).await;
    let url = format!("http://{address}/mcp?key=s3cr3t");
    let server = McpServer::http(&url).token(TOKEN);
    let shown = format!("{server:?}");
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    let turn = calls([("c1", "headers", json!({})), ("c2", "gone", json!({}))]);
    let runner = Runner::new(graph(scripted([turn]), ToolsNode::new(tools).unwrap()), MemoryStore::new());
    let outcome = runner.thread("t").run(Chat::ask("Go")).await.unwrap();
    let told = results(&outcome.done().unwrap());
    assert!(told[0].1.contains("Bearer [credential token]"), "{told:?}");
    assert!(told[1].1.contains("/mcp?[credential query of the URL]"), "{told:?}");
    let log = format!("{:?}", runner.thread("t").log().await.unwrap());
    let none = McpServer::http("http://dana:hunter2@127.0.0.1:1/mcp?key=s3cr3t").connect().await.unwrap_err().to_string();
    assert!(none.contains("127.0.0.1:1/mcp"), "{none}");
    for text in [shown, log, none] {
        assert!(!["hunter2", "s3cr3t", TOKEN].iter().any(|secret| text.contains(secret)), "{text}");
    }
}
