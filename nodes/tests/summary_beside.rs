//! A summary among other nodes: what they write at the same time is not its to lose, and they can go on without it.
//!
//! How this could break: a summariser that fails ends the conversation, or is asked again and again in one turn; the folded list takes the place of a list that another node has added to meanwhile, or two nodes that write it cannot both be right.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support {
    pub(crate) mod conversation;
}

use std::sync::Arc;

use ferrata::log::Record;
use ferrata::state::{Message, Op, Role, ToolCall};
use ferrata::store::MemoryStore;
use ferrata::{END, Graph, Runner, START, State};
use ferrata_nodes::{ChatNode, ChatReply, ContextPlan, Originals, RollingSummary, SUMMARY_ID, Scripted, Tiktoken, TokenCounter};
use serde::{Deserialize, Serialize};
use support::conversation::filler;

#[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

fn said() -> Vec<Message> {
    (0..40).map(|n| Message::user(format!("Remark {n}. {}", filler(8))).with_id(format!("m{n}"))).collect()
}

async fn note() -> ferrata::Result<ChatUpdate> {
    Ok(Chat::update().message(Message::assistant("The kitchen closes at ten.").with_id("note")))
}

fn brief() -> Scripted {
    let mut round = 0;
    Scripted::answering(move |_| {
        round += 1;
        Ok(ChatReply::new(format!("They looked for a table, round {round}.")))
    })
}

#[tokio::test]
async fn what_another_node_says_in_the_same_step_is_kept() {
    for note_first in [true, false] {
        let summary = RollingSummary::new().budget(500).over(Chat::MESSAGES, brief());
        let graph = Graph::<Chat>::new("chat");
        let graph = if note_first {
            graph.node("note", note).node("summary", summary)
        } else {
            graph.node("summary", summary).node("note", note)
        };
        let graph = graph.edge(START, "summary").edge(START, "note").edge("summary", END).edge("note", END).build().unwrap();
        let runner = Runner::new(graph, MemoryStore::new());
        let state = runner.thread("t").run(Chat::update().messages(said())).await.unwrap().done().unwrap();
        let ids: Vec<&str> = state.messages.iter().map(|message| message.id.as_str()).collect();
        assert!(ids.contains(&"note"), "note first: {note_first}, {ids:?}");
        assert!(ids.len() < 30 && ids[..1] == ["m0"] && ids.contains(&SUMMARY_ID) && ids.contains(&"m39"), "{ids:?}");
    }
}

/// A call that new input left behind gets its result in the middle of the list.
#[tokio::test]
async fn an_answer_keeps_what_another_node_says_in_the_same_step() {
    let call = ToolCall { id: "c1".into(), name: "search".into(), arguments: "{}".into() };
    let asked = Message { tool_calls: vec![call], ..Message::assistant("") };
    let chat = ChatNode::new(Scripted::new([Ok("At nine.")])).over(Chat::MESSAGES);
    let graph = Graph::<Chat>::new("chat").node("note", note).node("chat", chat).edge(START, "chat").edge(START, "note");
    let runner = Runner::new(graph.edge("chat", END).edge("note", END).build().unwrap(), MemoryStore::new());
    let said = vec![Message::user("Book."), asked, Message::user("Stop.")];
    let state = runner.thread("t").run(Chat::update().messages(said)).await.unwrap().done().unwrap();
    let texts: Vec<&str> = state.messages.iter().map(|message| message.content.as_str()).collect();
    assert!(texts.contains(&"The kitchen closes at ten."), "{texts:?}");
    let result = state.messages.iter().position(|message| message.role == Role::Tool).unwrap();
    assert!(!state.messages[result - 1].tool_calls.is_empty(), "the result is right behind its call: {texts:?}");
    assert!(texts.contains(&"Stop.") && texts.contains(&"At nine."), "{texts:?}");
}

/// What a later fold writes is the new summary and which messages are gone, and not the conversation again.
#[tokio::test]
async fn a_fold_is_recorded_as_what_it_changes() {
    let summary = RollingSummary::new().budget(500).over(Chat::MESSAGES, brief());
    let graph = Graph::<Chat>::new("chat").node("summary", summary).edge(START, "summary").edge("summary", END).build().unwrap();
    let runner = Runner::new(graph, MemoryStore::new());
    let thread = runner.thread("t");
    let _ = thread.run(Chat::update().messages(said())).await.unwrap();
    let more: Vec<_> = (0..40).map(|n| Message::user(format!("Later {n}. {}", filler(8))).with_id(format!("l{n}"))).collect();
    let state = thread.run(Chat::update().messages(more)).await.unwrap().done().unwrap();
    assert_eq!(state.messages[1].id, SUMMARY_ID);
    let log = thread.log().await.unwrap();
    let last = log.iter().rev().find_map(|entry| if let Record::TaskDone(done) = &entry.record { Some(done) } else { None });
    let put =
        last.unwrap().changes.iter().filter_map(|change| if let Op::Put(items) = &change.op { Some(items.len()) } else { None });
    assert_eq!(put.sum::<usize>(), 1, "{:?}", last.unwrap().changes);
}

/// F30: it never answers with a summary. The turns go on, each of them asks once, and the log says so.
#[tokio::test]
async fn a_conversation_goes_on_without_a_summary() {
    let refusing =
        Arc::new(Scripted::answering(|_| Ok(ChatReply { refused: true, ..ChatReply::new("I cannot help with that.") })));
    let summary = RollingSummary::new().budget(500).over(Chat::MESSAGES, Arc::clone(&refusing));
    let model = Arc::new(Scripted::answering(|_| Ok(ChatReply::new("At nine."))));
    let chat = ChatNode::new(Arc::clone(&model)).context(ContextPlan::new(600)).over(Chat::MESSAGES);
    let graph = Graph::<Chat>::new("chat").node("summary", summary.fallback(|_: &Chat, _| Chat::update())).node("chat", chat);
    let graph = graph.edge(START, "summary").edge("summary", "chat").edge("chat", END).build().unwrap();
    let runner = Runner::new(graph, MemoryStore::new());
    let thread = runner.thread("t");
    let _ = thread.run(Chat::update().messages(said())).await.unwrap();
    for turn in 0..5 {
        let state = thread.run(Chat::update().message(Message::user(format!("Turn {turn}?")))).await.unwrap().done().unwrap();
        assert_eq!(state.messages.len(), 40 + 1 + 2 * (turn + 1), "nothing is lost and nothing of the refusal kept");
    }
    assert_eq!(refusing.requests().len(), 6);
    assert!(model.requests().iter().all(|request| Tiktoken::default().count_request(request) <= 600));
    let log = thread.log().await.unwrap();
    let told = log.iter().filter(|entry| format!("{:?}", entry.record).contains("a refusal instead of a summary")).count();
    assert!(told >= 6, "{told}");
}

/// Each message is there once, whatever records it stands in, and each line of the history has its own.
#[tokio::test]
async fn originals_of_every_line_are_found_once() {
    let summary = RollingSummary::new().budget(300).over(Chat::MESSAGES, brief());
    let mut round = 0;
    let model = Scripted::answering(move |_| {
        round += 1;
        Ok(ChatReply::new(format!("Answer {round}. {}", filler(16))))
    });
    let chat = ChatNode::new(model).context(ContextPlan::new(600)).over(Chat::MESSAGES);
    let graph = Graph::<Chat>::new("chat").node("summary", summary).node("chat", chat).edge(START, "summary");
    let runner = Runner::new(graph.edge("summary", "chat").edge("chat", END).build().unwrap(), MemoryStore::new());
    let thread = runner.thread("t");
    for turn in 0..10 {
        let _ = thread.run(Chat::update().message(Message::user(format!("Line 0, turn {turn}?")))).await.unwrap();
    }
    let mut turns = thread.history().await.unwrap();
    turns.retain(|checkpoint| checkpoint.next.is_empty());
    turns.sort_by_key(|checkpoint| checkpoint.position);
    let fork = thread.clone().at(turns[4].position);
    let _ = fork.run(Chat::update().message(Message::user("Line 1, turn 5?"))).await.unwrap();
    let originals = Originals::in_log(&thread.log().await.unwrap(), "messages");
    let texts: Vec<&str> = originals.messages().iter().map(|message| message.content.as_str()).collect();
    let count = |wanted: &str| texts.iter().filter(|text| text.starts_with(wanted)).count();
    assert_eq!((count("Line 0"), count("Line 1"), count("Answer"), texts.len()), (10, 1, 11, 22), "{texts:#?}");
    assert!(originals.messages().iter().all(|message| originals.get(&message.id) == Some(message)));
}
