//! Answers of a type: bad ones go back to the model, and what was never an answer is not kept.
//!
//! How this could break: the last bad answer comes back from the record whenever the thread is resumed, and nobody asks the model again; earlier rounds are paid for
//! twice; a refusal is taken for a value.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;

use ferrata::store::MemoryStore;
use ferrata::{Context, END, Graph, Runner, START, State};
use ferrata_nodes::{ChatReply, ChatRequest, Scripted, ask_for};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Ticket {
    urgency: u8,
}

#[derive(Deserialize, JsonSchema)]
struct Rating {
    #[schemars(range(min = 1, max = 5))]
    urgency: u8,
}

fn runner(model: &Arc<Scripted>, store: &Arc<MemoryStore>) -> Runner<Ticket> {
    let model = Arc::clone(model);
    let rate = move |ctx: Context| {
        let model = Arc::clone(&model);
        async move {
            let request = ChatRequest::new([ferrata::state::Message::user("How urgent is it?")]);
            let rating: Rating = ask_for(&ctx, &*model, request, 2).await?;
            Ok(Ticket::update().urgency(rating.urgency))
        }
    };
    let graph = Graph::<Ticket>::new("ticket").node("rate", rate).edge(START, "rate").edge("rate", END).build().unwrap();
    Runner::new(graph, Arc::clone(store))
}

#[tokio::test]
async fn the_last_bad_answer_is_asked_for_again_and_those_before_it_are_not() {
    let store = Arc::new(MemoryStore::new());
    let model = Arc::new(Scripted::new([Ok("very"), Ok("{\"urgency\": 9}"), Ok("{\"urgency\": 3}")]));
    let error = runner(&model, &store).thread("t").run(Ticket::update()).await.unwrap_err();
    assert!(error.to_string().contains("9 is greater than the maximum of 5"), "{error}");
    assert_eq!(model.requests().len(), 2);
    let ticket = runner(&model, &store).thread("t").resume().await.unwrap().done().unwrap();
    assert_eq!((ticket.urgency, model.requests().len()), (3, 3));
    assert_eq!(model.requests()[2], model.requests()[1], "the first answer was on record");
}

#[tokio::test]
async fn a_refusal_is_no_answer() {
    let store = Arc::new(MemoryStore::new());
    let refusal = ChatReply { refused: true, ..ChatReply::new("I do not rate people.") };
    let model = Arc::new(Scripted::replies([Ok(refusal), Ok(ChatReply::new("{\"urgency\": 1}"))]));
    let error = runner(&model, &store).thread("t").run(Ticket::update()).await.unwrap_err();
    assert!(error.to_string().contains("the model refuses: I do not rate people."), "{error}");
    let ticket = runner(&model, &store).thread("t").resume().await.unwrap().done().unwrap();
    assert_eq!((ticket.urgency, model.requests().len()), (1, 2));
}
