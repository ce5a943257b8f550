//! Asked once, answered once, done once.
//!
//! How it could break: an answer that is accepted twice, or for another question; a refused answer that closes its question; a
//! sibling that is asked again because another one was answered; false, 0 or null taken for "no answer"; an effect repeated because
//! its outcome was not known; a result that does not come back after a retry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::log::{Question, Record};
use ferrata::store::{MemoryStore, ThreadStatus};
use ferrata::{
    Answer, Approval, Ask, Context, END, Graph, GraphBuilder, IntoNode, NodeError, Outcome, QuestionId, Retry, Runner, START,
    State, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Case {
    text: String,
    answer: Option<Value>,
    #[state(append)]
    log: Vec<String>,
}

fn graph() -> GraphBuilder<Case> {
    Graph::<Case>::new("case")
}

fn runner(graph: GraphBuilder<Case>) -> Runner<Case> {
    Runner::new(graph.build().expect("the graph is right"), MemoryStore::new())
}

fn note(name: &'static str) -> impl IntoNode<Case, (View<Case>,)> {
    move |_: View<Case>| async move { Ok(Case::update().push_log(name)) }
}

/// A node that runs once: an approval, then ship or cancel.
fn approval() -> Runner<Case> {
    runner(
        graph()
            .question("approve", |s: &Case| Approval::ask("Ship it?").show(&s.text))
            .edited("approve", |_: &Case, text: String| Case::update().text(text))
            .node("ship", note("ship"))
            .node("cancel", note("cancel"))
            .edge(START, "approve")
            .approved("approve", "ship")
            .rejected("approve", "cancel")
            .edge("ship", END)
            .edge("cancel", END),
    )
}

async fn waiting(runner: &Runner<Case>, thread: &str) -> Vec<Arc<Question>> {
    let outcome = runner.thread(thread).run(Case::update().text("draft")).await.expect("it runs");
    assert!(matches!(outcome, Outcome::Waiting(_)));
    outcome.questions().to_vec()
}

#[tokio::test]
async fn approve_reject_and_edit_each_take_their_own_way() {
    let cases: [(Answer, &str, &str); 3] = [
        (Approval::approve(), "ship", "draft"),
        (Approval::reject("not today"), "cancel", "draft"),
        (Approval::edit("better"), "ship", "better"),
    ];
    for (answer, way, text) in cases {
        let runner = approval();
        let questions = waiting(&runner, "t").await;
        assert_eq!(questions[0].show, Some(json!("draft")));
        let state = runner.thread("t").answer(questions[0].id, answer).await.expect("it fits").done().expect("it ends");
        assert_eq!((state.log.as_slice(), state.text.as_str()), ([way.to_owned()].as_slice(), text));
    }
}

#[tokio::test]
async fn a_misfitting_answer_is_refused_and_the_question_stays_open() {
    let runner = approval();
    let question = waiting(&runner, "t").await[0].id;
    let records = runner.thread("t").log().await.expect("the log").len();
    let misfits = [
        json!(true),
        json!("approve"),
        json!({"verdict": "maybe"}),
        json!({"verdict": "edit"}),
        json!({"verdict": "edit", "value": 7}),
    ];
    for misfit in misfits {
        let error = runner.thread("t").answer(question, Answer::new(misfit.clone())).await.expect_err("it does not fit");
        assert_eq!((error.code(), error.is_answer_refused()), ("answer-misfit", true), "{misfit}: {error}");
    }
    assert_eq!(runner.thread("t").log().await.expect("the log").len(), records, "nothing was recorded");
    runner.thread("t").answer(question, Approval::approve()).await.expect("it is still open").done().expect("it ends");
}

#[tokio::test]
async fn a_second_answer_is_told_who_when_and_what() {
    let runner = approval();
    let question = waiting(&runner, "t").await[0].id;
    runner.thread("t").answer(question, Approval::approve().by("dana")).await.expect("it fits").done().expect("it ends");
    let error = runner.thread("t").answer(question, Approval::reject("no").by("eve")).await.expect_err("it was answered");
    assert_eq!(error.code(), "question-answered");
    for word in ["dana", "approve", "once"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let unknown = QuestionId("67e55044-10b1-426f-9247-bb680e5fe0c8".parse().expect("a uuid"));
    assert_eq!(runner.thread("t").answer(unknown, true).await.expect_err("nobody asked").code(), "not-waiting");
    assert_eq!(runner.thread("other").answer(unknown, true).await.expect_err("no thread").code(), "thread-unknown");
}

#[tokio::test]
async fn new_input_does_not_drop_an_open_question_unless_told_to() {
    let runner = approval();
    let old = waiting(&runner, "t").await[0].id;
    let error = runner.thread("t").run(Case::update().text("other")).await.expect_err("a question is open");
    assert_eq!(error.code(), "thread-waiting");
    assert!(error.to_string().contains("Ship it?"), "{error}");
    let outcome = runner.thread("t").supersede().run(Case::update().text("other")).await.expect("it was told to");
    let new = outcome.questions()[0].id;
    assert_ne!(old, new);
    assert_eq!(runner.thread("t").answer(old, Approval::approve()).await.expect_err("it is closed").code(), "question-closed");
    runner.thread("t").answer(new, Approval::approve()).await.expect("it fits").done().expect("it ends");
}

#[tokio::test]
async fn siblings_that_wait_are_not_asked_again_when_another_is_answered() {
    let runs = Arc::new(AtomicUsize::new(0));
    let ask = |name: &'static str| {
        let runs = Arc::clone(&runs);
        move |ctx: Context| {
            let runs = Arc::clone(&runs);
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                let yes = ctx.ask("delete", Ask::<bool>::new(format!("delete {name}?"))).await?;
                Ok(Case::update().push_log(format!("{name} {yes}")))
            }
        }
    };
    let graph = graph().node("a", ask("a")).node("b", ask("b")).edge(START, "a").edge(START, "b").edge("a", END).edge("b", END);
    let runner = runner(graph);
    let questions = waiting(&runner, "t").await;
    let by_text = |text: &str| questions.iter().find(|q| q.text == text).expect("it was asked").id;
    assert_eq!(questions.len(), 2);
    let outcome = runner.thread("t").answer(by_text("delete b?"), false).await.expect("it fits");
    assert_eq!(outcome.questions().iter().map(|q| q.text.as_str()).collect::<Vec<_>>(), ["delete a?"]);
    assert_eq!(runs.load(Ordering::SeqCst), 3, "only b ran again");
    assert!(matches!(runner.thread("t").resume().await, Ok(Outcome::Waiting(_))));
    let state = runner.thread("t").answer(by_text("delete a?"), true).await.expect("it fits").done().expect("it ends");
    assert_eq!(state.log, ["a true", "b false"]);
    assert_eq!(runs.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn empty_answers_are_answers() {
    for answer in [json!(false), json!(0), json!(""), json!(null), json!({}), json!([])] {
        let node = |ctx: Context| async move {
            let answer = ctx.ask("any", Ask::<Value>::new("Anything?")).await?;
            Ok(Case::update().answer(Some(answer)).push_log("answered"))
        };
        let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
        let question = waiting(&runner, "t").await[0].id;
        let outcome = runner.thread("t").answer(question, Answer::new(answer.clone())).await.expect("it fits");
        let state = outcome.done().expect("it ends");
        assert_eq!(state.log, ["answered"]);
        // JSON has no `Some(null)`.
        assert_eq!(state.answer, (!answer.is_null()).then_some(answer));
    }
}

#[tokio::test]
async fn a_node_may_ask_again_and_again_and_its_effects_happen_once() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let node = move |ctx: Context| {
        let count = Arc::clone(&count);
        async move {
            let mut total = 0;
            for _ in 0..3 {
                let send = |_| async {
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                };
                ctx.effect("mail", send).await?;
                total += ctx.ask("more", Ask::<u64>::new("How many more?")).await?;
            }
            Ok(Case::update().push_log(total.to_string()))
        }
    };
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    let mut outcome = runner.thread("t").run(Case::update()).await.expect("it runs");
    let mut ids = BTreeSet::new();
    for answer in [1, 20, 300] {
        let question = &outcome.questions()[0];
        assert!(ids.insert(question.id) && question.occurrence as usize == ids.len() - 1);
        outcome = runner.thread("t").answer(question.id, answer).await.expect("it fits");
    }
    assert_eq!(outcome.done().expect("it ends").log, ["321"]);
    assert_eq!(sent.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn effects_under_way_end_and_are_recorded_before_a_node_pauses() {
    let node = |ctx: Context| async move {
        let slow = |_| async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            Ok(7_u64)
        };
        let slow = async { ctx.effect("slow", slow).await };
        let (ask, slow) = tokio::join!(biased; slow, ctx.ask("go", Ask::<bool>::new("Go?")));
        Ok(Case::update().push_log(format!("{} {}", ask?, slow?)))
    };
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    let question = waiting(&runner, "t").await[0].id;
    let log = runner.thread("t").log().await.expect("the log");
    assert!(log.iter().any(|e| matches!(&e.record, Record::EffectDone(done) if done.result == json!(7))));
    let state = runner.thread("t").answer(question, true).await.expect("it fits").done().expect("it ends");
    assert_eq!(state.log, ["7 true"]);
}

/// A graph of one node with one effect that counts its calls and ends as the closure says.
fn effect_node<F>(calls: &Arc<AtomicUsize>, outcome: F) -> impl IntoNode<Case, (Context,)>
where
    F: Fn(usize) -> Result<u64, NodeError> + Clone + Send + Sync + 'static,
{
    let calls = Arc::clone(calls);
    move |ctx: Context| {
        let (calls, outcome) = (Arc::clone(&calls), outcome.clone());
        async move {
            let pay = |key: String| async move {
                assert_eq!(key.len(), 36, "a key for the outside system");
                outcome(calls.fetch_add(1, Ordering::SeqCst))
            };
            let paid = ctx.effect("pay", pay).await?;
            Ok(Case::update().push_log(format!("paid {paid}")))
        }
    }
}

#[tokio::test]
async fn an_error_that_does_not_tell_leaves_the_effect_in_doubt() {
    for (answer, end, calls_expected) in [(Answer::performed(9), "paid 9", 1), (Answer::not_performed(), "paid 5", 2)] {
        let calls = Arc::new(AtomicUsize::new(0));
        let outcome = |n| if n == 0 { Err(NodeError::new("connection lost").transient()) } else { Ok(5) };
        let node = effect_node(&calls, outcome).retry(Retry::transient(5));
        let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
        let questions = waiting(&runner, "t").await;
        assert!(questions[0].is_doubt() && questions[0].text.contains("connection lost"), "{}", questions[0].text);
        assert_eq!(calls.load(Ordering::SeqCst), 1, "a retry does not repeat it");
        assert_eq!(runner.thread("t").answer(questions[0].id, true).await.expect_err("no bare yes").code(), "answer-misfit");
        let state = runner.thread("t").answer(questions[0].id, answer).await.expect("it fits").done().expect("it ends");
        assert_eq!(state.log, [end]);
        assert_eq!(calls.load(Ordering::SeqCst), calls_expected);
    }
}

#[tokio::test]
async fn an_error_that_says_not_performed_is_retried_as_the_policy_says() {
    let calls = Arc::new(AtomicUsize::new(0));
    let outcome = |n| if n < 2 { Err(NodeError::new("refused").transient().not_performed()) } else { Ok(5) };
    let node = effect_node(&calls, outcome).retry(Retry::transient(3).first_delay(Duration::ZERO));
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    let state = runner.thread("t").run(Case::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!((state.log.as_slice(), calls.load(Ordering::SeqCst)), (["paid 5".to_owned()].as_slice(), 3));
}

#[tokio::test(start_paused = true)]
async fn a_time_out_after_the_mail_has_gone_out_does_not_send_it_again() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let node = move |ctx: Context| {
        let count = Arc::clone(&count);
        async move {
            let mail = |_| async move {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(())
            };
            ctx.effect("mail", mail).await?;
            Ok(Case::update().push_log("sent"))
        }
    };
    let node = node.timeout(Duration::from_secs(1)).retry(Retry::transient(5));
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    let questions = waiting(&runner, "t").await;
    assert!(questions[0].is_doubt() && questions[0].text.contains("ran out of time"), "{}", questions[0].text);
    let answer = Answer::performed(Value::Null).by("dana");
    let state = runner.thread("t").answer(questions[0].id, answer).await.expect("it fits").done().expect("it ends");
    assert_eq!((state.log.as_slice(), sent.load(Ordering::SeqCst)), (["sent".to_owned()].as_slice(), 1));
}

#[tokio::test]
async fn an_effect_that_a_node_lets_go_of_is_in_doubt() {
    let node = |ctx: Context| async move {
        let never = |_| std::future::pending::<Result<(), NodeError>>();
        let effect = ctx.effect("mail", never);
        tokio::select! {
            biased;
            _ = async move { effect.await } => {}
            () = async { for _ in 0..50 { tokio::task::yield_now().await } } => {}
        }
        Ok(Case::update().push_log("careless"))
    };
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    let questions = waiting(&runner, "t").await;
    assert!(questions[0].is_doubt() && questions[0].text.contains("stopped waiting"), "{}", questions[0].text);
    assert!(runner.thread("t").state().await.expect("it is readable").values.log.is_empty());
}

#[tokio::test]
async fn a_result_that_cannot_be_recorded_or_does_not_fit_is_in_doubt_and_never_repeated() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let node = move |ctx: Context| {
        let count = Arc::clone(&count);
        async move {
            let measure = |_| async move {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(f64::NAN)
            };
            let measured: f64 = ctx.effect("measure", measure).await?;
            Ok(Case::update().push_log(measured.to_string()))
        }
    };
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    let questions = waiting(&runner, "t").await;
    assert!(questions[0].text.contains("no finite number"), "{}", questions[0].text);
    // A person gives a result of the wrong type, and is asked again.
    let outcome = runner.thread("t").answer(questions[0].id, Answer::performed("about two")).await.expect("it is recorded");
    assert!(outcome.questions()[0].text.contains("does not fit"), "{}", outcome.questions()[0].text);
    let answer = Answer::performed(2.5);
    let state = runner.thread("t").answer(outcome.questions()[0].id, answer).await.expect("it fits").done().expect("it ends");
    assert_eq!((state.log.as_slice(), calls.load(Ordering::SeqCst)), (["2.5".to_owned()].as_slice(), 1));
}

#[tokio::test]
async fn an_answer_that_was_given_stays_when_the_next_node_fails() {
    let fails = Arc::new(AtomicUsize::new(2));
    let pays = Arc::new(AtomicUsize::new(0));
    let (left, count) = (Arc::clone(&fails), Arc::clone(&pays));
    let pay = move |ctx: Context| {
        let (left, count) = (Arc::clone(&left), Arc::clone(&count));
        async move {
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
                return Err(NodeError::new("the bank is closed"));
            }
            let pay = |_| async move { Ok(count.fetch_add(1, Ordering::SeqCst)) };
            ctx.effect("pay", pay).await?;
            Ok(Case::update().push_log("paid"))
        }
    };
    let runner = runner(
        graph()
            .question("approve", |_: &Case| Approval::ask("Pay?"))
            .node("pay", pay.irreversible())
            .edge(START, "approve")
            .approved("approve", "pay")
            .rejected("approve", END)
            .edge("pay", END),
    );
    let question = waiting(&runner, "t").await[0].id;
    assert_eq!(runner.thread("t").answer(question, Approval::approve()).await.expect_err("closed").code(), "node-failed");
    assert_eq!(runner.thread("t").resume().await.expect_err("closed").code(), "node-failed");
    assert_eq!(runner.thread("t").state().await.expect("it is readable").status, ThreadStatus::Failed);
    let state = runner.thread("t").resume().await.expect("it is open").done().expect("it ends");
    assert_eq!((state.log.as_slice(), pays.load(Ordering::SeqCst)), (["paid".to_owned()].as_slice(), 1));
    let asked = runner.thread("t").log().await.expect("the log");
    assert_eq!(asked.iter().filter(|e| matches!(e.record, Record::Asked(_))).count(), 1);
}

#[tokio::test]
async fn a_correction_beyond_its_bounds_is_refused_and_a_refusal_tells_why() {
    let runner = runner(
        graph()
            .question("approve", |_: &Case| Approval::ask("Ship it?").edit_within(json!({"maxLength": 6})))
            .edited("approve", |_: &Case, text: String| Case::update().text(text))
            .refused("approve", |_: &Case, reason| Case::update().push_log(format!("no: {reason}")))
            .node("ship", || async { Ok(Case::update().push_log("ship")) })
            .edge(START, "approve")
            .approved("approve", "ship")
            .rejected("approve", END)
            .edge("ship", END),
    );
    let question = waiting(&runner, "t").await[0].id;
    let error = runner.thread("t").answer(question, Approval::edit("far too long")).await.expect_err("too long");
    assert_eq!(error.code(), "answer-misfit");
    assert!(error.to_string().contains("\"maxLength\":6"), "{error}");
    let state = runner.thread("t").answer(question, Approval::edit("short")).await.expect("it fits").done().expect("it ends");
    assert_eq!((state.text.as_str(), state.log.as_slice()), ("short", ["ship".to_owned()].as_slice()));
    let question = waiting(&runner, "other").await[0].id;
    let state =
        runner.thread("other").answer(question, Approval::reject("not today")).await.expect("it fits").done().expect("it ends");
    assert_eq!(state.log, ["no: not today"]);
}

#[tokio::test]
async fn keys_differ_between_threads_of_one_name_and_stay_over_attempts() {
    let keys: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let node = || {
        let keys = Arc::clone(&keys);
        move |ctx: Context| {
            let keys = Arc::clone(&keys);
            async move {
                let pay = |key: String| async {
                    let mut keys = keys.lock().expect("not poisoned");
                    keys.push(key);
                    if keys.len() == 1 { Err(NodeError::new("refused").transient().not_performed()) } else { Ok(()) }
                };
                ctx.effect("pay", pay).await?;
                Ok(Case::update().push_log("paid"))
            }
        }
    };
    for _ in 0..2 {
        let node = node().retry(Retry::transient(2).first_delay(Duration::ZERO));
        let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
        runner.thread("t").run(Case::update()).await.expect("it runs").done().expect("it ends");
        assert!(runner.thread("t").delete().await.expect("it is deleted"));
        runner.thread("t").run(Case::update()).await.expect("it runs").done().expect("it ends");
    }
    let keys = keys.lock().expect("not poisoned").clone();
    assert_eq!(keys[0], keys[1], "another attempt, the same key");
    let different: BTreeSet<&String> = keys.iter().collect();
    assert_eq!((keys.len(), different.len()), (5, 4), "two stores, and a thread that was deleted in between");
}

#[tokio::test]
async fn several_questions_are_answered_at_once_or_not_at_all() {
    let ask = |key: &'static str| {
        move |ctx: Context| async move {
            let answer: u64 = ctx.ask(key, Ask::new(key)).await?;
            Ok(Case::update().push_log(format!("{key} {answer}")))
        }
    };
    let graph = || {
        let both = graph().node("a", ask("a")).node("b", ask("b"));
        both.edge(START, "a").edge(START, "b").edge("a", END).edge("b", END)
    };
    let runner = runner(graph());
    let asked = waiting(&runner, "t").await;
    let thread = runner.thread("t");
    let misfit = thread.answer_all([(asked[0].id, json!(1)), (asked[1].id, json!("two"))]).await.expect_err("no number");
    assert_eq!(misfit.code(), "answer-misfit");
    let twice = thread.answer_all([(asked[0].id, json!(1)), (asked[0].id, json!(2))]).await.expect_err("one question");
    assert_eq!(twice.code(), "answer-misfit");
    assert_eq!(thread.questions().await.expect("questions").len(), 2, "both are still open");
    let runs =
        || async { thread.log().await.expect("a log").iter().filter(|e| matches!(e.record, Record::RunStarted(_))).count() };
    assert_eq!(runs().await, 1);
    let state = thread.answer_all([(asked[1].id, json!(2)), (asked[0].id, json!(1))]).await.expect("it runs");
    assert_eq!(state.done().expect("it ends").log, ["a 1", "b 2"]);
    assert_eq!(runs().await, 2, "one run took both");
    let late = thread.answer_all([(asked[1].id, json!(2))]).await.expect_err("it was answered");
    assert_eq!(late.code(), "question-answered");
}
