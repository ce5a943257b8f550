//! Answers that cannot be right: each is refused with a text that says where it does not fit, in a size that can be shown, and the question stays open.

use ferrata::store::{MemoryStore, RedbStore, Store};
use ferrata::{Answer, Approval, Ask, Context, END, Graph, QuestionId, Runner, START, State, Thread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Case {
    answer: Option<Value>,
}

/// A choice whose alternatives each have their own rules.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "snake_case")]
enum Payment {
    Card { number: String, months: u8 },
    Transfer { iban: String },
}

fn asks<T: serde::de::DeserializeOwned + Serialize + JsonSchema + Send + 'static>(store: impl Store) -> Runner<Case> {
    let ask = |ctx: Context| async move {
        let answer = ctx.ask("q", Ask::<T>::new("What?")).await?;
        Ok(Case::update().answer(serde_json::to_value(answer)?))
    };
    let graph = Graph::<Case>::new("asks").node("ask", ask).edge(START, "ask").edge("ask", END);
    Runner::new(graph.build().expect("the graph is right"), store)
}

async fn question(thread: &Thread<Case>) -> QuestionId {
    thread.run(Case::update()).await.expect("it runs").questions()[0].id
}

#[tokio::test]
async fn of_a_choice_the_error_says_why_each_alternative_is_none() {
    let thread = asks::<Payment>(MemoryStore::new()).thread("t");
    let question = question(&thread).await;
    let cases = [
        (json!({"by": "card", "number": "4111", "months": 300}), "at /months: 300 is greater than the maximum of 255"),
        (json!({"by": "transfer"}), "\"iban\" is a required property"),
        (json!({"by": "cash"}), "none of 2 alternatives"),
        (json!(null), "null is not of type"),
    ];
    for (answer, says) in cases {
        let error = thread.answer(question, Answer::new(answer.clone())).await.expect_err("it does not fit");
        assert_eq!(error.code(), "answer-misfit", "{answer}");
        assert!(error.to_string().contains(says), "{answer}: {error}");
        assert!(error.to_string().contains("stays open"), "{error}");
    }
    let fits = json!({"by": "transfer", "iban": "AT61"});
    let state = thread.answer(question, Answer::new(fits.clone())).await.expect("it fits").done().expect("it ends");
    assert_eq!(state.answer, Some(fits));
}

#[tokio::test]
async fn an_answer_of_a_megabyte_is_kept_and_one_that_does_not_fit_is_told_in_few_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = std::sync::Arc::new(RedbStore::open(dir.path().join("store.redb")).expect("a store"));
    let thread = asks::<String>(std::sync::Arc::clone(&store)).thread("t");
    let question = question(&thread).await;
    let large = "x".repeat(1_000_000);
    let error = thread.answer(question, Answer::new(json!([large]))).await.expect_err("it is a list");
    assert_eq!(error.code(), "answer-misfit");
    assert!(error.to_string().len() < 1_000, "{} bytes", error.to_string().len());
    let state = thread.answer(question, large.as_str()).await.expect("it fits").done().expect("it ends");
    assert_eq!(state.answer, Some(json!(large)));
    // Whoever comes second is told what was said, as far as that can be shown.
    let error = thread.answer(question, "y").await.expect_err("it was answered");
    assert_eq!(error.code(), "question-answered");
    assert!(error.to_string().contains("1000002 bytes") && error.to_string().len() < 1_000, "{error}");

    let approval = Graph::<Case>::new("approval")
        .question("approve", |_: &Case| Approval::ask("Ship?"))
        .edge(START, "approve")
        .approved("approve", END)
        .rejected("approve", END);
    let thread = Runner::new(approval.build().expect("the graph is right"), MemoryStore::new()).thread("t");
    let question = self::question(&thread).await;
    let error = thread.answer(question, Answer::new(large)).await.expect_err("it is no verdict");
    assert!(error.to_string().len() < 1_000 && error.to_string().contains(r#"{"verdict": "approve"}"#), "{error}");
}

#[tokio::test]
async fn an_answer_nested_five_thousand_deep_is_refused_and_nothing_breaks() {
    let thread = asks::<Value>(MemoryStore::new()).thread("t");
    let question = question(&thread).await;
    let mut deep = json!(1);
    for _ in 0..5_000 {
        deep = Value::Array(vec![deep]);
    }
    let error = thread.answer(question, Answer::new(deep)).await.expect_err("it is too deep");
    assert_eq!(error.code(), "answer-misfit");
    assert!(error.to_string().contains("nested deeper than"), "{error}");
    assert!(thread.answer(question, Answer::new(json!([[1]]))).await.expect("it is open").done().is_some());
}

/// The answer was accepted by the question's own schema; the program has another type by now.
#[tokio::test]
async fn a_question_whose_type_changed_since_is_checked_by_the_schema_it_was_asked_with() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let old = question(&asks::<u32>(std::sync::Arc::clone(&store)).thread("t")).await;
    let new = asks::<String>(std::sync::Arc::clone(&store)).thread("t");
    assert_eq!(new.questions().await.expect("they are open")[0].schema["type"], "integer");
    assert_eq!(new.answer(old, "seven").await.expect_err("the question asks for a number").code(), "answer-misfit");
    let error = new.answer(old, 7).await.expect_err("the node expects a text by now");
    assert_eq!(error.code(), "node-failed");
    assert!(error.to_string().contains("recorded answer to \"q\" does not fit"), "{error}");
    // Nothing is lost: the answer is on record, and the program that asked for it goes on with it.
    let state = asks::<u32>(store).thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(state.answer, Some(json!(7)));
}
