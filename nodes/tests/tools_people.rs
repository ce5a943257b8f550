//! Calls that a person decides about, and calls that were cut off: each is performed at most once, and gets one result.
//!
//! How this could break: a call that runs before its approval or in spite of a refusal, a change that is not checked or not used, a question that is
//! asked twice, a call that is performed again after a restart, a crash that leaves a call without a result or with two.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/chat.rs"]
mod chat;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chat::{Chat, Echo, calls, graph, results, scripted};
use ferrata::clock::ManualClock;
use ferrata::state::{Message, Role};
use ferrata::store::MemoryStore;
use ferrata::testing::crash_everywhere_in;
use ferrata::{Answer, Approval, Graph, NodeError, OnExpiry, Outcome, Performed, Runner};
use ferrata_nodes::{ChatReply, Risk, Tool, ToolContext, ToolsNode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// What was done outside.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Vec<String>>>);

impl World {
    fn act(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn done(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A tool that acts.
    fn tool(&self, name: &'static str, risk: Risk) -> Tool {
        let world = self.clone();
        let act = move |echo: Echo, _: ToolContext| {
            let world = world.clone();
            async move {
                world.act(format!("{name} {}", echo.text));
                Ok(format!("{name} of {}", echo.text))
            }
        };
        Tool::new(name, "Acts.", act).risk(risk)
    }

    fn tools(&self) -> ToolsNode {
        let tools = [("look", Risk::Read), ("note", Risk::Write), ("pay", Risk::Irreversible)];
        ToolsNode::new(tools.map(|(name, risk)| self.tool(name, risk))).unwrap()
    }

    fn graph(&self, turns: impl IntoIterator<Item = ChatReply>) -> Graph<Chat> {
        graph(scripted(turns), self.tools())
    }
}

fn pay_twice() -> ChatReply {
    calls([
        ("p1", "pay", json!({"text": "rent"})),
        ("n1", "note", json!({"text": "paid"})),
        ("p2", "pay", json!({"text": "casino"})),
        ("l1", "look", json!({"text": "account"})),
    ])
}

#[tokio::test]
async fn irreversible_calls_are_asked_about_at_once_and_survive_a_restart() {
    let (world, store) = (World::default(), Arc::new(MemoryStore::new()));
    let outcome = Runner::new(world.graph([pay_twice()]), store.clone()).thread("t").run(Chat::ask("Go")).await.unwrap();
    let Outcome::Waiting(questions) = outcome else { panic!("it does not ask") };
    assert_eq!(questions.iter().map(|question| question.key.to_string()).collect::<Vec<_>>(), ["approve p1", "approve p2"]);
    assert_eq!(questions[0].text, "May the tool \"pay\" be called with {\"text\":\"rent\"}?");
    let shown = json!({"tool": "pay", "call": "p1", "arguments": {"text": "rent"}});
    assert_eq!(questions[0].show, Some(shown));
    let mut done = world.done();
    done.sort();
    assert_eq!(done, ["look account", "note paid"], "what needs no approval does not wait for it");

    // Another process, in which the model's first answer is on record.
    let runner = Runner::new(world.graph([]), store);
    let misfit = runner.thread("t").answer(questions[0].id, Approval::edit(json!({"text": 7}))).await.unwrap_err();
    assert_eq!(misfit.code(), "answer-misfit");
    let waiting = runner.thread("t").answer(questions[1].id, Approval::reject("no gambling").by("dana")).await.unwrap();
    assert_eq!(waiting.questions().iter().map(|question| question.id).collect::<Vec<_>>(), [questions[0].id]);
    let edit = Approval::edit(json!({"text": "half the rent"})).by("dana");
    let state = runner.thread("t").answer(questions[0].id, edit).await.unwrap().done().unwrap();

    let told: Vec<_> = results(&state);
    assert_eq!(told[0].1, "[A person changed the arguments to {\"text\":\"half the rent\"}.]\npay of half the rent");
    assert_eq!((told[1].1.as_str(), told[3].1.as_str()), ("note of paid", "look of account"));
    assert_eq!(told[2].1, "Nothing was done: a person refused this call, and says why: no gambling");
    assert_eq!(told.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["p1", "n1", "p2", "l1"]);
    assert_eq!(world.done().len(), 3, "{:?}", world.done());
    assert_eq!(world.done()[2], "pay half the rent");
}

#[tokio::test]
async fn what_is_approved_is_done_and_what_nobody_answers_is_not() {
    let (world, clock) = (World::default(), ManualClock::default());
    let tools = world.tools().approvals(|ask| ask.assignee("dana").deadline(Duration::from_secs(60)).on_expiry(OnExpiry::GoOn));
    let turns = [("p1", "rent"), ("p2", "tax")].map(|(id, text)| calls([(id, "pay", json!({"text": text}))]));
    let thread = Runner::with_clock(graph(scripted(turns), tools), MemoryStore::new(), clock.clone()).thread("t");
    let question = thread.run(Chat::ask("Go")).await.unwrap().questions()[0].clone();
    assert_eq!(question.assignee.as_deref(), Some("dana"));
    assert_eq!(thread.answer(question.id, Approval::approve()).await.unwrap().questions().len(), 1);
    clock.advance_ms(61_000);
    let state = thread.resume().await.unwrap().done().unwrap();
    let told: Vec<_> = results(&state).into_iter().map(|(_, content)| content).collect();
    assert_eq!(told, ["pay of rent", "Nothing was done: nobody approved this call in time."]);
    assert_eq!(world.done(), ["pay rent"]);
}

/// With a type that its schema refers to.
#[derive(Deserialize, JsonSchema)]
struct Transfer {
    amount: Money,
    fee: Option<Money>,
}

#[derive(Deserialize, JsonSchema)]
struct Money {
    #[schemars(range(max = 500))]
    cents: u64,
}

#[tokio::test]
async fn a_change_is_held_to_the_schema_of_the_arguments_whatever_it_refers_to() {
    let send = |sent: Transfer, _: ToolContext| async move { Ok(sent.amount.cents + sent.fee.map_or(0, |fee| fee.cents)) };
    let tools = ToolsNode::new([Tool::new("send", "Sends money.", send).risk(Risk::Irreversible)]).unwrap();
    assert!(tools.specs()[0].arguments.to_string().contains("$ref"), "{:?}", tools.specs());
    let turn = calls([("c1", "send", json!({"amount": {"cents": 100}}))]);
    let thread = Runner::new(graph(scripted([turn]), tools), MemoryStore::new()).thread("t");
    let question = thread.run(Chat::ask("Go")).await.unwrap().questions()[0].id;
    for bad in [
        json!({"amount": {"cents": 501}}),
        json!({"amount": 1}),
        json!({}),
        json!({"amount": {"cents": 1}, "fee": {"cents": "1"}}),
    ] {
        let error = thread.answer(question, Approval::edit(&bad)).await.unwrap_err();
        assert_eq!(error.code(), "answer-misfit", "{bad}");
    }
    let good = Approval::edit(json!({"amount": {"cents": 5}, "fee": {"cents": 2}}));
    let state = thread.answer(question, good).await.unwrap().done().unwrap();
    assert!(results(&state)[0].1.ends_with("\n7"), "{:?}", results(&state));
}

#[tokio::test]
async fn a_write_that_fails_is_in_doubt_and_a_person_says_what_came_of_it() {
    let tries = Arc::new(Mutex::new(0));
    let count = tries.clone();
    let send = move |_: Echo, _: ToolContext| {
        *count.lock().unwrap() += 1;
        async { Err::<String, _>(NodeError::new("the line broke").transient()) }
    };
    let boom = |_: Echo, _: ToolContext| async { if true { panic!("midway") } else { Ok(()) } };
    let slow = |_: Echo, _: ToolContext| std::future::pending::<ferrata::Result<String>>();
    let tools =
        [Tool::new("send", "", send), Tool::new("boom", "", boom), Tool::new("slow", "", slow).timeout(Duration::from_millis(1))];
    let turn = calls(["send", "boom", "slow"].map(|name| (name, name, json!({"text": ""}))));
    let thread = Runner::new(graph(scripted([turn]), ToolsNode::new(tools).unwrap()), MemoryStore::new()).thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    let doubts = outcome.questions();
    assert!(doubts.len() == 3 && doubts.iter().all(|doubt| doubt.is_doubt()), "{doubts:?}");
    let words = [json!("sent, says the log"), json!({"rows": 3}), json!({"failed": "the row is locked"})];
    let answers = doubts.iter().map(|doubt| {
        let nth = ["send", "boom", "slow"].iter().position(|name| doubt.text.contains(name)).unwrap();
        (doubt.id, Answer::performed(words[nth].clone()))
    });
    let state = thread.answer_all(answers).await.unwrap().done().unwrap();
    let told: Vec<_> = results(&state).into_iter().map(|(_, content)| content).collect();
    let failed = "The tool \"slow\" failed, and nothing was done: the row is locked";
    assert_eq!(told, ["sent, says the log", "{\"rows\":3}", failed]);
    assert_eq!(*tries.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_write_with_a_check_finds_out_itself() {
    let send = |_: Echo, _: ToolContext| async { Err::<String, _>(NodeError::new("the line broke")) };
    let look_up = |echo: Echo, ctx: ToolContext| async move {
        assert!(!ctx.idempotency_key().is_empty());
        Ok(match echo.text.as_str() {
            "arrived" => Performed::Yes(json!({"sent": true})),
            _ => Performed::Unknown,
        })
    };
    let tools = ToolsNode::new([Tool::new("send", "", send).check(look_up)]).unwrap();
    let turns = ["arrived", "lost"].map(|text| calls([(text, "send", json!({"text": text}))]));
    let thread = Runner::new(graph(scripted(turns), tools), MemoryStore::new()).thread("t");
    let outcome = thread.run(Chat::ask("Go")).await.unwrap();
    assert!(outcome.questions()[0].is_doubt());
    let state = thread.state().await.unwrap().values;
    assert_eq!(results(&state), [("arrived".to_owned(), "{\"sent\":true}".to_owned())]);
}

#[tokio::test]
async fn a_call_that_was_cancelled_is_in_doubt_and_still_gets_its_one_result() {
    let (world, begun) = (World::default(), Arc::new(tokio::sync::Notify::new()));
    let (acts, says) = (world.clone(), begun.clone());
    let slow = move |echo: Echo, _: ToolContext| {
        let (world, begun) = (acts.clone(), says.clone());
        async move {
            world.act(format!("slow {}", echo.text));
            begun.notify_one();
            if world.done().iter().filter(|what| what.starts_with("slow")).count() == 1 {
                std::future::pending::<()>().await;
            }
            Ok("at last")
        }
    };
    let tools = ToolsNode::new([Tool::new("slow", "", slow), world.tool("look", Risk::Read)]).unwrap();
    let turn = calls([("s1", "slow", json!({"text": "a"})), ("l1", "look", json!({"text": "b"}))]);
    let thread = Runner::new(graph(scripted([turn]), tools), MemoryStore::new()).thread("t");
    let running = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Chat::ask("Go")).await }
    });
    begun.notified().await;
    assert!(thread.cancel().await.unwrap());
    let outcome = running.await.unwrap().unwrap();
    let doubt = &outcome.questions()[0];
    assert!(doubt.is_doubt());
    assert_eq!(doubt.show.as_ref().unwrap()["arguments"], r#"{"text":"a"}"#, "which call it is");
    let state = thread.answer(outcome.questions()[0].id, Answer::not_performed()).await.unwrap().done().unwrap();
    let expected = [("s1", "at last"), ("l1", "look of b")].map(|(id, text)| (id.to_owned(), text.to_owned()));
    assert_eq!(results(&state), expected);
    assert_eq!(world.done().iter().filter(|what| what.starts_with("slow")).count(), 2);
}

#[tokio::test]
async fn a_write_whose_result_breaks_its_rule_is_told_as_performed() {
    let world = World::default();
    let note = world.tool("note", Risk::Write).verify(|_, result| Err(format!("\"{result}\" is no number")));
    let state = chat::run(ToolsNode::new([note]).unwrap(), [calls([("n1", "note", json!({"text": "a"}))])]).await;
    let told = "The tool \"note\" was performed, but its result breaks its rule and is left out: \"note of a\" is no number";
    assert_eq!(results(&state)[0].1, told);
    assert_eq!(world.done(), ["note a"]);
}

#[tokio::test]
async fn calls_that_new_input_leaves_behind_get_a_result_that_says_so() {
    let world = World::default();
    let model = Arc::new(scripted([calls([("n1", "note", json!({"text": "a"})), ("p1", "pay", json!({"text": "b"}))])]));
    let thread = Runner::new(graph(model.clone(), world.tools()), MemoryStore::new()).thread("t");
    assert_eq!(thread.run(Chat::ask("Pay it.")).await.unwrap().questions().len(), 1);
    let state = thread.clone().supersede().run(Chat::ask("No, do not.")).await.unwrap().done().unwrap();
    let shape = |messages: &[Message]| messages.iter().map(|m| (m.role, m.tool_call_id.clone())).collect::<Vec<_>>();
    let tool = |id: &str| (Role::Tool, Some(id.to_owned()));
    let expected =
        [(Role::User, None), (Role::Assistant, None), tool("n1"), tool("p1"), (Role::User, None), (Role::Assistant, None)];
    assert_eq!(shape(&state.messages), expected);
    assert_eq!(shape(&model.requests().pop().unwrap().messages), expected[..5], "the model sees it as well");
    assert!(state.messages[3].content.contains("Whether anything was done is not known"));
    let mut ids: Vec<_> = state.messages.iter().map(|message| message.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() == 6 && !ids.contains(&""), "{ids:?}");
    assert_eq!(world.done(), ["note a"]);
}

#[tokio::test]
async fn every_call_has_one_result_wherever_the_process_dies() {
    let turns = || [pay_twice(), calls([("n2", "note", json!({"text": "bye"}))])];
    let graph = move |world: &World| {
        // Another process has a script of its own: what to say is seen from the conversation.
        let mut turns: Vec<_> = turns().into();
        turns.push(ChatReply::new("Done."));
        let answer = move |request: &ferrata_nodes::ChatRequest| {
            let said = request.messages.iter().filter(|message| message.role == Role::Assistant).count();
            Ok(turns[said].clone())
        };
        chat::graph(ferrata_nodes::Scripted::answering(answer), world.tools())
    };
    let report = crash_everywhere_in(World::default, graph, Chat::ask("Go"))
        .answer("approve p1", Approval::edit(json!({"text": "half the rent"})).by("dana"))
        .answer("approve p2", Approval::approve().by("dana"))
        .after_each(|world, chat| {
            let ids: Vec<_> = results(chat).into_iter().map(|(id, _)| id).collect();
            assert_eq!(ids, ["p1", "n1", "p2", "l1", "n2"]);
            let mut done = world.done();
            done.retain(|what| !what.starts_with("look"));
            done.sort();
            assert_eq!(done, ["note bye", "note paid", "pay casino", "pay half the rent"]);
        })
        .await
        .unwrap();
    assert!(report.effects >= 8, "{report}");
}
