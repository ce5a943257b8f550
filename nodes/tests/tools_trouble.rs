//! Tools that misbehave in rarer ways, and tools that change between a call and its result: each call still gets one result, and no result lies.
//!
//! How this could break: a result that is too large and ends the run, a check that hangs or panics and takes the node with it, a call that was performed and is told
//! as not, a question about arguments that cannot be asked because of how their schema is written.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/chat.rs"]
mod chat;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chat::{Chat, Echo, calls, echo, graph, results, run, scripted};
use ferrata::store::MemoryStore;
use ferrata::{Approval, NodeError, Outcome, Performed, Runner};
use ferrata_nodes::{ChatReply, Risk, Tool, ToolContext, ToolsNode};
use serde_json::{Value, json};

fn texts(chat: &Chat) -> Vec<String> {
    results(chat).into_iter().map(|(_, content)| content).collect()
}

fn one(name: &str) -> ChatReply {
    calls([("c1", name, json!({"text": "a"}))])
}

#[tokio::test]
async fn a_read_whose_result_is_too_large_to_be_recorded_is_told_so() {
    let much = |_: Echo, _: ToolContext| async { Ok("word ".repeat(20_000)) };
    let tools = ToolsNode::new([Tool::new("much", "", much).risk(Risk::Read), echo(Risk::Read)]).unwrap();
    let turn = calls([("c1", "much", json!({"text": "a"})), ("c2", "echo", json!({"text": "b"}))]);
    let thread = Runner::new(graph(scripted([turn]), tools), MemoryStore::new()).thread("t").update_bytes_max(5_000);
    let state = thread.run(Chat::ask("Go")).await.unwrap().done().unwrap();
    let told = texts(&state);
    assert!(told[0].starts_with("The tool \"much\" failed: ") && told[0].contains("5000 are allowed"), "{told:?}");
    assert_eq!(told[1], "b");
}

#[tokio::test]
async fn results_that_are_too_large_together_do_not_end_the_run() {
    let much = |_: Echo, _: ToolContext| async { Ok("word ".repeat(2_000)) };
    let other = |_: Echo, _: ToolContext| async { Ok("other ".repeat(2_000)) };
    let tools = [Tool::new("much", "", much).risk(Risk::Read), Tool::new("other", "", other).risk(Risk::Read)];
    let tools = ToolsNode::new(tools).unwrap().result_tokens_max(300);
    let node = tools.clone().over_with_artifacts(Chat::MESSAGES, Chat::ARTIFACTS);
    let turn = calls([("c1", "much", json!({"text": "a"})), ("c2", "other", json!({"text": "b"}))]);
    let thread = Runner::new(chat::graph_of(scripted([turn]), &tools, node), MemoryStore::new()).thread("t");
    let state = thread.update_bytes_max(20_000).run(Chat::ask("Go")).await.unwrap().done().unwrap();
    assert_eq!(state.artifacts.values().collect::<Vec<_>>(), [&"word ".repeat(2_000)]);
    assert!(texts(&state)[1].ends_with("The rest is not kept: there is too much in this turn. Call again, alone or for less.]"));
}

#[tokio::test]
async fn a_result_that_cannot_be_recorded_says_that_the_call_was_performed() {
    let measure = |_: Echo, _: ToolContext| async { Ok(f64::NAN) };
    let tools = [Tool::new("measure", "", measure).risk(Risk::Read), Tool::new("set", "", measure)];
    let turns = [one("measure"), one("set")];
    let thread = Runner::new(graph(scripted(turns), ToolsNode::new(tools).unwrap()), MemoryStore::new()).thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    let [doubt] = outcome.questions() else { panic!("{outcome:?}") };
    let shown = format!("{} {:?}", doubt.text, doubt.show);
    assert!(shown.contains("it was performed, but its result cannot be recorded"), "{shown}");
    assert!(texts(&thread.state().await.unwrap().values)[0].contains("its result cannot be recorded"));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_or_hangs_does_not_take_the_node_with_it() {
    let send = || |_: Echo, _: ToolContext| async { Err::<String, _>(NodeError::new("the line broke")) };
    let panics = |_: Echo, _: ToolContext| async { if true { panic!("no such mail") } else { Ok(Performed::Yes(())) } };
    let asks = Tool::new("send", "", send()).check(panics);
    let thread = Runner::new(graph(scripted([one("send")]), ToolsNode::new([asks]).unwrap()), MemoryStore::new()).thread("t");
    let Outcome::Waiting(doubts) = thread.run(Chat::ask("Go")).await.unwrap() else { panic!("nobody is asked") };
    assert!(doubts[0].is_doubt());

    let hangs = |_: Echo, _: ToolContext| std::future::pending::<ferrata::Result<Performed<String>>>();
    let hangs = Tool::new("send", "", send()).check(hangs).timeout(Duration::from_secs(5));
    let thread = Runner::new(graph(scripted([one("send")]), ToolsNode::new([hangs]).unwrap()), MemoryStore::new()).thread("t");
    let run = tokio::time::timeout(Duration::from_secs(60), thread.run(Chat::ask("Go")));
    let error = run.await.expect("a check has as long as a call").unwrap_err();
    assert!(error.to_string().contains("longer than 5s"), "{error}");
}

#[tokio::test]
async fn a_call_that_was_performed_is_not_told_as_undone_when_its_tool_is_gone() {
    let (store, count) = (Arc::new(MemoryStore::new()), Arc::new(Mutex::new(0)));
    let note = {
        let count = count.clone();
        move |_: Echo, _: ToolContext| {
            *count.lock().unwrap() += 1;
            async { Ok("noted") }
        }
    };
    let pay = || Tool::new("pay", "", |_: Echo, _: ToolContext| async { Ok("paid") }).risk(Risk::Irreversible);
    let turn =
        calls([("c1", "note", json!({"text": "a"})), ("c2", "pay", json!({"text": "b"})), ("c3", "never", json!({"text": "c"}))]);
    let before = ToolsNode::new([Tool::new("note", "", note), pay()]).unwrap();
    let outcome = Runner::new(graph(scripted([turn]), before), store.clone()).thread("t").run(Chat::ask("Go")).await.unwrap();
    let question = outcome.questions()[0].id;
    let after = Runner::new(graph(scripted([]), ToolsNode::new([pay()]).unwrap()), store).thread("t");
    let state = after.answer(question, Approval::approve()).await.unwrap().done().unwrap();
    let told = texts(&state);
    assert!(!told[0].contains("Nothing was done"), "it was: {told:?}");
    assert!(
        told[0].contains("the tool \"note\" was taken away or changed") && told[0].contains("may have performed it"),
        "{told:?}"
    );
    assert_eq!((told[1].as_str(), *count.lock().unwrap()), ("paid", 1));
    assert!(told[2].starts_with("Nothing was done: the tool \"never\" does not exist."), "{told:?}");
}

#[tokio::test]
async fn a_refusal_counts_also_when_the_tool_has_become_less_of_a_risk() {
    let (store, count) = (Arc::new(MemoryStore::new()), Arc::new(Mutex::new(0)));
    let pay = |risk| {
        let count = count.clone();
        let pay = move |_: Echo, _: ToolContext| {
            *count.lock().unwrap() += 1;
            async { Ok("paid") }
        };
        ToolsNode::new([Tool::new("pay", "", pay).risk(risk)]).unwrap()
    };
    let before = Runner::new(graph(scripted([one("pay")]), pay(Risk::Irreversible)), store.clone());
    let question = before.thread("t").run(Chat::ask("Go")).await.unwrap().questions()[0].id;
    let after = Runner::new(graph(scripted([]), pay(Risk::Write)), store).thread("t");
    let state = after.answer(question, Approval::reject("too much")).await.unwrap().done().unwrap();
    assert_eq!((*count.lock().unwrap(), texts(&state).remove(0).contains("too much")), (0, true), "{:?}", texts(&state));
}

#[tokio::test]
async fn nobody_is_asked_about_what_was_done_when_the_tool_has_become_more_of_a_risk() {
    let store = Arc::new(MemoryStore::new());
    let tool = |name: &'static str, risk| Tool::new(name, "", |_: Echo, _: ToolContext| async { Ok("done") }).risk(risk);
    let tools = |note| ToolsNode::new([tool("note", note), tool("pay", Risk::Irreversible)]).unwrap();
    let turns = [("c1", "note"), ("c2", "pay"), ("c3", "note")].map(|(id, name)| (id, name, json!({"text": id})));
    let before = Runner::new(graph(scripted([calls(turns)]), tools(Risk::Write)), store.clone());
    let question = before.thread("t").run(Chat::ask("Go")).await.unwrap().questions()[0].id;
    let after = Runner::new(graph(scripted([]), tools(Risk::Irreversible)), store).thread("t");
    let outcome = after.answer(question, Approval::approve()).await.unwrap();
    assert!(outcome.questions().is_empty(), "it was done: {outcome:?}");
    assert_eq!(texts(&outcome.done().unwrap()), ["done", "done", "done"]);
}

#[tokio::test]
async fn arguments_in_any_dialect_of_json_schema_can_be_asked_about() {
    let draft_7 = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"to": {"$ref": "#/definitions/who"}, "more": {"$ref": "#"}},
        "required": ["to"],
        "definitions": {"who": {"type": "string", "minLength": 2}},
    });
    let with_id = json!({"$id": "transfer.json", "type": "object", "properties": {"to": {"$ref": "transfer.json#/$defs/who"}},
        "required": ["to"], "$defs": {"who": {"type": "string", "minLength": 2}}});
    for schema in [draft_7, with_id] {
        let send = |arguments: Value, _: ToolContext| async move { Ok(arguments["to"].to_string()) };
        let tool = Tool::with_schema("send", "", schema, send).risk(Risk::Irreversible);
        let turn = calls([("c1", "send", json!({"to": "dana"}))]);
        let thread = Runner::new(graph(scripted([turn]), ToolsNode::new([tool]).unwrap()), MemoryStore::new()).thread("t");
        let question = thread.run(Chat::ask("Go")).await.unwrap().questions()[0].id;
        thread.answer(question, Approval::edit(json!({"to": "d"}))).await.unwrap_err();
        let state = thread.answer(question, Approval::edit(json!({"to": "erin"}))).await.unwrap().done().unwrap();
        assert!(texts(&state)[0].ends_with("\n\"erin\""), "{:?}", texts(&state));
    }
}

#[tokio::test]
async fn no_arguments_may_be_said_in_any_way() {
    let list =
        || Tool::with_schema("list", "", json!({"type": "object"}), |arguments, _| async move { Ok(arguments.to_string()) });
    for nothing in ["", "  ", "null", "{}"] {
        let mut turn = calls([("c1", "list", json!({}))]);
        turn.tool_calls[0].arguments = nothing.to_owned();
        assert_eq!(texts(&run(ToolsNode::new([list()]).unwrap(), [turn]).await), ["{}"], "{nothing:?}");
    }
}
