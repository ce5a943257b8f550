//! Models made of models: chains, caches, recordings, and what calls cost that gave no answer.
//!
//! How this could break: a key that is wrong at the second endpoint ends a run that the first one could go on with later; a watcher reads two answers as one; a
//! recording forgets how long to wait; a cache or a replay misses, since a message of ours has another id; an answer that was paid for and thrown away is in no budget.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::{Clock, ManualClock, Timestamp};
use ferrata::state::Message;
use ferrata::store::MemoryStore;
use ferrata::{Context, END, Graph, Runner, START, State};
use ferrata_nodes::{
    Cached, ChatFuture, ChatModel, ChatNode, ChatReply, ChatRequest, Delta, Fallbacks, ModelError, ModelErrorClass, Recording,
    Replay, Scripted, Tell, Usage, call,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

fn request() -> ChatRequest {
    ChatRequest::new([Message::user("Hi")])
}

fn failing(class: ModelErrorClass) -> Scripted {
    Scripted::answering(move |_| Err(ModelError::new(class, class.code()).with_status(418)))
}

#[tokio::test]
async fn a_chain_in_which_one_may_work_later_is_worth_another_attempt() {
    use ModelErrorClass::{Auth, Quota, RateLimit, Server, Timeout};
    for (classes, class) in [
        (vec![Server, Auth], Server),
        (vec![RateLimit, Timeout, Quota], Timeout),
        (vec![Auth, Server], Server),
        (vec![Quota, Auth], Auth),
    ] {
        let mut models = classes.iter().map(|class| failing(*class));
        let chain = models.by_ref().take(1).map(Fallbacks::new).next().unwrap();
        let error = models.fold(chain, Fallbacks::then).chat(&request()).await.unwrap_err();
        assert_eq!((error.class(), error.status()), (class, Some(418)), "{error:?}");
        assert!(classes.iter().all(|class| error.to_string().contains(class.code())), "{error}");
    }
}

#[tokio::test]
async fn a_chain_whose_first_model_is_passed_by_says_when_it_is_tried_again() {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let given: Arc<dyn Clock> = clock.clone();
    let chain = Fallbacks::new(failing(ModelErrorClass::Server)).then(failing(ModelErrorClass::Auth));
    let chain = chain.pass_by(1, Duration::from_secs(60)).clock(given);
    chain.chat(&request()).await.unwrap_err();
    clock.advance_ms(20_000);
    let error = chain.chat(&request()).await.unwrap_err();
    assert_eq!((error.class(), error.retry_after()), (ModelErrorClass::Server, Some(Duration::from_secs(40))), "{error:?}");
    assert!(error.to_string().contains("passed by"), "{error}");
}

#[tokio::test]
async fn what_is_wrong_for_the_second_model_may_be_right_for_the_first_when_it_works_again() {
    use ModelErrorClass::{Auth, ContextLength, Server};
    for (first, class) in [(Server, Server), (Auth, ContextLength)] {
        let chain = Fallbacks::new(failing(first)).then(failing(ContextLength)).then(Scripted::new([Ok("never asked")]));
        let error = chain.chat(&request()).await.unwrap_err();
        assert_eq!(error.class(), class, "{error:?}");
        assert!(error.to_string().contains("context_length"), "{error}");
    }
    let chain = Fallbacks::new(failing(Server)).then(failing(ContextLength)).pass_by(1, Duration::from_secs(60));
    for _ in 0..2 {
        assert!(chain.chat(&request()).await.unwrap_err().is_transient(), "the first one is passed by");
    }
}

/// Tells half an answer, and breaks off.
#[derive(Debug)]
struct Breaking;

impl ChatModel for Breaking {
    fn name(&self) -> &str {
        "breaking"
    }

    fn chat<'a>(&'a self, _: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async { Err(ModelError::new(ModelErrorClass::Truncated, "cut").with_partial_text("Hal")) })
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        tell(Delta::Text("Hal"));
        self.chat(request)
    }
}

async fn told(model: &dyn ChatModel) -> Vec<String> {
    let mut told = Vec::new();
    let mut tell = |delta: Delta<'_>| told.push(format!("{delta:?}"));
    let _ = model.chat_streamed(&request(), &mut tell).await;
    told
}

#[tokio::test]
async fn whoever_watches_a_chain_is_told_that_another_answer_begins() {
    let down = || failing(ModelErrorClass::Server);
    let chain = Fallbacks::new(down()).then(Breaking).then(down()).then(Scripted::new([Ok("Hello")]));
    assert_eq!(told(&chain).await, ["Text(\"Hal\")", "Anew", "Text(\"Hello\")"]);
    let chain = Fallbacks::new(down()).then(Scripted::new([Ok("Hello")]));
    assert_eq!(told(&chain).await, ["Text(\"Hello\")"]);
}

#[tokio::test]
async fn what_did_not_come_in_parts_is_told_as_a_whole() {
    let thoughtful = || ChatReply { reasoning: Some("hm".to_owned()), ..ChatReply::new("Hello") };
    let cached = Cached::new(Scripted::replies([Ok(thoughtful())]));
    let expected = ["Reasoning(\"hm\")", "Text(\"Hello\")"];
    assert_eq!(told(&cached).await, expected);
    assert_eq!(told(&cached).await, expected, "from the cache");
    let calling = Cached::new(Scripted::answering(|_| Ok(ChatReply::new("").tool_call("c", "f", &serde_json::json!({})))));
    assert!(told(&calling).await.is_empty() && told(&calling).await.is_empty(), "there is nothing to tell");
}

#[tokio::test]
async fn a_recorded_failure_comes_back_with_all_that_a_policy_looks_at() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let busy = || {
        let error = ModelError::new(ModelErrorClass::RateLimit, "busy").with_status(429).with_code("rpm");
        error.with_retry_after(Duration::from_millis(2_500)).with_partial_text("Hal").with_usage(Usage::told(3, 1))
    };
    let recording = Recording::to_file(Scripted::replies([Err(busy())]), &file).unwrap();
    let shown = format!("{:?}", recording.chat(&request()).await.unwrap_err());
    let replay = Replay::from_file(&file).unwrap();
    assert_eq!(format!("{:?}", replay.chat(&request()).await.unwrap_err()), shown);
    assert_eq!(told(&Replay::from_file(&file).unwrap()).await, ["Text(\"Hal\")"]);
}

#[tokio::test]
async fn the_same_talk_on_another_thread_is_the_same_request() {
    let run = |model: Arc<dyn ChatModel>, thread: &'static str| async move {
        let graph = Graph::<Chat>::new("chat").node("chat", ChatNode::new(model).over(Chat::MESSAGES));
        let graph = graph.edge(START, "chat").edge("chat", END).build().unwrap();
        let runner = Runner::new(graph, MemoryStore::new());
        let done = runner.thread(thread).run(Chat::update().message(Message::user("Hi"))).await.unwrap().done().unwrap();
        done.messages[1].content.clone()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let asked = Arc::new(Scripted::new([Ok("Hello")]));
    let cached: Arc<dyn ChatModel> = Arc::new(Cached::new(Recording::to_file(Arc::clone(&asked), &file).unwrap()));
    assert_eq!(run(Arc::clone(&cached), "one").await, "Hello");
    assert_eq!(run(cached, "two").await, "Hello", "from the cache");
    assert_eq!(asked.requests().len(), 1);
    assert_eq!(run(Arc::new(Replay::from_file(&file).unwrap()), "three").await, "Hello", "from the file");
}

#[tokio::test]
async fn a_cache_keeps_no_refusal_and_no_answer_that_was_cut() {
    let refusal = || ChatReply { refused: true, ..ChatReply::new("No.") };
    let cut = || ChatReply::new("Hal").finish(ferrata_nodes::Finish::Length);
    let cached = Cached::new(Scripted::replies([Ok(refusal()), Ok(cut()), Ok(ChatReply::new("Hello"))]));
    for expected in ["No.", "Hal", "Hello", "Hello"] {
        assert_eq!(cached.chat(&request()).await.unwrap().content, expected);
    }
}

#[tokio::test]
async fn what_was_paid_for_no_answer_is_in_the_report() {
    let empty = ModelError::new(ModelErrorClass::OutputLimit, "it thought too long").with_usage(Usage::told(100, 4_000));
    let cut = ModelError::new(ModelErrorClass::Truncated, "cut").with_partial_text("Hello, what can I do?");
    let huge = ModelError::new(ModelErrorClass::Server, "odd").with_usage(Usage::told(u64::MAX, u64::MAX));
    let errors = Arc::new(Mutex::new(vec![empty, cut, huge]));
    let model = Arc::new(Scripted::answering(move |_| Err(errors.lock().unwrap().remove(0))));
    let node = move |ctx: Context| {
        let model = Arc::clone(&model);
        async move {
            call(&ctx, &*model, &request()).await?;
            Ok(Chat::update())
        }
    };
    let graph = Graph::<Chat>::new("chat").node("chat", node).edge(START, "chat").edge("chat", END).build().unwrap();
    let runner = Runner::new(graph, MemoryStore::new());
    let thread = runner.thread("t");
    thread.run(Chat::update()).await.unwrap_err();
    let spent = thread.report().await.unwrap().nodes[0].clone();
    assert_eq!((spent.input_tokens, spent.output_tokens), (100, 4_000));
    thread.resume().await.unwrap_err();
    let spent = thread.report().await.unwrap().nodes[0].clone();
    assert!(spent.input_tokens > 100 && spent.output_tokens > 4_000, "what had come is counted: {spent:?}");
    thread.resume().await.unwrap_err();
    let spent = thread.report().await.unwrap().nodes[0].clone();
    assert_eq!((spent.input_tokens, spent.output_tokens), (u64::MAX, u64::MAX), "it ends there");
}
