//! Summaries over a long time: what they cost, what they lose, and what becomes of a model that fails.
//!
//! How this could break: what is folded is read again, so that the cost grows with the square of the length; a call each turn; an error that becomes history; a
//! pinned fact that is condensed; an original that cannot be found any more.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support {
    pub(crate) mod conversation;
}

use std::sync::Arc;

use ferrata::log::Record;
use ferrata::state::Message;
use ferrata::store::MemoryStore;
use ferrata::{END, Graph, Runner, START, State};
use ferrata_nodes::{
    ChatModel, ChatNode, ChatReply, ContextPlan, FEEDBACK_MARKER, ModelError, ModelErrorClass, Originals, RollingSummary,
    SUMMARY_ID, Scripted, Summary, SummaryError, TokenCache, TokenCounter, pinned,
};
use serde::{Deserialize, Serialize};
use support::conversation::filler;

#[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

async fn fold(
    settings: &RollingSummary,
    messages: &[Message],
    counter: &TokenCache,
    model: &Scripted,
) -> Result<Option<Vec<Message>>, SummaryError<ModelError>> {
    settings.fold(messages, counter, |request| async move { model.chat(&request).await }).await
}

/// A model that writes as much as it may, which costs most.
fn greedy(counter: &TokenCache, structured: bool) -> Scripted {
    let counter = counter.clone();
    let mut round = 0;
    Scripted::answering(move |request| {
        round += 1;
        let room = request.output_tokens_max.unwrap() as usize;
        let entry = |n: usize| format!("Round {round}, finding {n}: the Heron had no table.");
        let summary = |entries: usize| Summary { verified: (0..entries).map(entry).collect(), ..Summary::default() };
        let most = room * 20 / counter.count(&summary(20).to_string());
        let text = if structured { serde_json::to_string(&summary(most)).unwrap() } else { summary(most).to_string() };
        Ok(ChatReply::new(text))
    })
}

/// Sums up 1,000 turns; gives after every hundred what was written and what was sent.
async fn curve(settings: &RollingSummary, structured: bool) -> Vec<(usize, usize)> {
    let counter = TokenCache::default();
    let model = greedy(&counter, structured);
    let mut messages = vec![Message::system("You book tables."), Message::user("Book a table for 6 at the Heron, budget 80")];
    let (mut written, mut points) = (0, Vec::new());
    for turn in 0..1_000 {
        for message in [
            Message::user(format!("Turn {turn}: and at this hour? {}", filler(24 + turn % 7 * 8))),
            Message::assistant(format!("Turn {turn}: no. {}", filler(40 + turn % 5 * 16))),
        ] {
            written += counter.count_message(&message);
            messages.push(message);
        }
        if let Some(folded) = fold(settings, &messages, &counter, &model).await.unwrap() {
            messages = folded;
        }
        if (turn + 1) % 100 == 0 {
            let sent = model.requests().iter().map(|request| counter.count_request(request)).sum();
            points.push((written, sent));
        }
    }
    points
}

#[tokio::test]
async fn what_is_sent_to_the_summariser_grows_with_what_is_written() {
    for structured in [false, true] {
        let settings = RollingSummary::new();
        let settings = if structured { settings.structured() } else { settings };
        let points = curve(&settings, structured).await;
        for (written, sent) in &points {
            println!("structured {structured}: written {written}, sent {sent}, {:.2}", *sent as f64 / *written as f64);
        }
        // The tokens of tags and instructions, and of a schema, are part of what is sent.
        assert!(points.iter().all(|(written, sent)| *sent as f64 <= 1.3 * *written as f64), "{points:?}");
        // A straight line: the last hundred turns cost as much as any other.
        let costs: Vec<usize> = points.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
        assert!(*most as f64 <= 1.5 * *least as f64, "{costs:?}");
    }
}

/// F30: a server error three times, an empty text, an error text.
#[tokio::test]
async fn f30_summariser_fails() {
    let busy = || Err(ModelError::new(ModelErrorClass::Server, "busy").with_status(503));
    let texts =
        ["", "Error: timeout", r#"{"verified": "no list"}"#, r#"{"verified": "no list"}"#].map(|text| Ok(ChatReply::new(text)));
    let good = r#"Here you are: ```json
        {"verified": ["The Heron is full (its page)."], "doubtful": [], "decisions": [], "open": []}
        ```"#;
    let answers = [busy(), busy(), busy()].into_iter().chain(texts).chain([Ok(ChatReply::new(good))]);
    let model = Arc::new(Scripted::replies(answers));
    let summary = RollingSummary::new().budget(600).structured().over(Chat::MESSAGES, Arc::clone(&model));
    let graph = Graph::<Chat>::new("chat").node("summary", summary).edge(START, "summary").edge("summary", END).build().unwrap();
    let runner = Runner::new(graph, MemoryStore::new());
    let thread = runner.thread("t");
    let said: Vec<_> = (0..80).map(|n| Message::user(format!("Remark {n}. {}", filler(8))).with_id(format!("m{n}"))).collect();
    assert!(thread.run(Chat::update().messages(said.clone())).await.is_err());
    for _ in 0..5 {
        assert_eq!(thread.state().await.unwrap().values.messages, said, "the history is as it was");
        assert!(thread.resume().await.is_err());
    }
    let state = thread.resume().await.unwrap().done().unwrap();
    assert_eq!(Summary::of(&state.messages).unwrap().verified, ["The Heron is full (its page)."]);
    assert_eq!(model.requests().len(), 8);
    // The calls are in the log under their name; one that gave no summary is no answer, or it would come back from the record for ever.
    let log = thread.log().await.unwrap();
    let is_summary = |record: &Record| matches!(record, Record::EffectDone(done) if &*done.effect.key == "summary");
    assert_eq!(log.iter().filter(|entry| is_summary(&entry.record)).count(), 2);
}

#[tokio::test]
async fn a_summary_that_outgrows_its_share_is_summed_up_itself_once() {
    let counter = TokenCache::default();
    let messages: Vec<_> = (0..80).map(|n| Message::user(format!("Remark {n}. {}", filler(8)))).collect();
    let settings = RollingSummary::new().budget(800);
    let long = "The Heron is full, and so is the Plover. ".repeat(60);
    let model = Scripted::new([Ok(long.clone()), Ok("Both are full.".to_owned())]);
    let folded = fold(&settings, &messages, &counter, &model).await.unwrap().unwrap();
    assert!(folded[1].id == SUMMARY_ID && folded[1].content.ends_with("Both are full."), "{}", folded[1].content);
    assert_eq!(model.requests()[1].messages[1].content, long.trim());

    // One that never keeps to its limit is asked once more, and then cut; a failure there changes nothing.
    let model = Scripted::new([Ok(long.clone()), Ok(long.clone())]);
    let folded = fold(&settings, &messages, &counter, &model).await.unwrap().unwrap();
    assert!(folded[1].content.ends_with("[…]"));
    let model = Scripted::new([Ok(long), Err(ModelError::new(ModelErrorClass::Server, "busy"))]);
    assert!(matches!(fold(&settings, &messages, &counter, &model).await, Err(SummaryError::Call { .. })));
}

#[tokio::test]
async fn folding_begins_at_the_trigger_and_leaves_head_room() {
    let counter = TokenCache::default();
    let model = Scripted::answering(|_| Ok(ChatReply::new("They looked for a table.")));
    let settings = RollingSummary::new().budget(1_000).trigger_percent(65);
    let total = |messages: &[Message]| messages.iter().map(|message| counter.count_message(message)).sum::<usize>();
    let mut messages = vec![Message::user("Book.")];
    for turn in 0..300 {
        messages.push(Message::assistant(format!("Turn {turn}: {}", filler(16))));
        if let Some(folded) = fold(&settings, &messages, &counter, &model).await.unwrap() {
            assert!(total(&messages) > 650 && total(&folded) <= 490, "{} to {}", total(&messages), total(&folded));
            messages = folded;
        }
        assert!(total(&messages) <= 650);
    }
    assert!(model.requests().len() < 60, "{}", model.requests().len());
}

/// A model that plans under a budget, with a summary before it: pinned facts stay, originals are found, feedback is shown.
#[tokio::test]
async fn what_is_folded_can_be_found_again() {
    let model = Arc::new(Scripted::answering(|request| {
        let wanted = request.messages.last().unwrap().content.contains(FEEDBACK_MARKER);
        Ok(ChatReply::new(if wanted { "At nine." } else { "Perhaps." }))
    }));
    let rule = |_: &Chat, after: &Chat| {
        let said = after.messages.last().map_or("", |message| message.content.as_str());
        if said == "Perhaps." { Err("say an hour") } else { Ok(()) }
    };
    let summary =
        RollingSummary::new().budget(500).over(Chat::MESSAGES, Scripted::answering(|_| Ok(ChatReply::new("They talked."))));
    let chat = ChatNode::new(Arc::clone(&model))
        .instructions("You book tables.")
        .context(ContextPlan::new(700))
        .over(Chat::MESSAGES)
        .verify(rule);
    let graph =
        Graph::<Chat>::new("chat").node("summary", summary).node("chat", chat).edge(START, "summary").edge("summary", "chat");
    let runner = Runner::new(graph.edge("chat", END).build().unwrap(), MemoryStore::new());
    let thread = runner.thread("t");
    let fact = pinned(Message::user("I am allergic to peanuts."));
    let _ = thread.run(Chat::update().messages(vec![Message::user("Book."), fact.clone()])).await.unwrap();
    for turn in 0..40 {
        let word = if turn == 7 { "The code word is PLOVER." } else { "Any later?" };
        let said = Message::user(format!("{word} {}", filler(24))).with_id(format!("turn-{turn}"));
        let _ = thread.run(Chat::update().message(said)).await.unwrap();
    }
    let state = thread.state().await.unwrap();
    assert!(state.values.messages.contains(&fact));
    assert!(!state.values.messages.iter().any(|message| message.id == "turn-7"));
    let originals = Originals::in_log(&thread.log().await.unwrap(), "messages");
    assert!(originals.get("turn-7").unwrap().content.starts_with("The code word"));
    assert_eq!(originals.search("What was the code word?", 5)[0].message.id, "turn-7");
    // The answers that were refused among them: they are in the log too.
    assert!(originals.messages().len() >= 2 + 40 + 41);
    assert!(state.values.messages.iter().all(|message| message.content != "Perhaps."));
    let counter = TokenCache::default();
    for request in model.requests() {
        assert!(counter.count_request(&request) <= 700);
        assert_eq!(request.messages[0].content, "You book tables.");
    }
}
