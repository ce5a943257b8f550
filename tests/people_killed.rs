//! What people said, and what they had no time to say, outlives the process: questions with real deadlines, answers, and what was done around them.
//!
//! How it could break: a deadline that is kept in a process and dies with it; a late answer that counts; an answer that is asked for again because the
//! node behind it failed or was killed; an effect before a question that is performed again with the answer.

mod support {
    pub(crate) mod common;
    pub(crate) mod courier;
}

use ferrata::clock::{Clock, SystemClock, Timestamp};
use ferrata::log::{Question, Record};
use ferrata::store::{InboxQuery, RedbStore, Store, ThreadQuery, ThreadStatus};
use serde_json::json;
use support::common::until;
use support::courier::{Desk, Next};

fn count(records: &[Record], is_meant: impl Fn(&Record) -> bool) -> usize {
    records.iter().filter(|record| is_meant(record)).count()
}

fn answered(records: &[Record]) -> usize {
    count(records, |record| matches!(record, Record::Answered(_)))
}

fn questions(records: &[Record]) -> Vec<Question> {
    records
        .iter()
        .filter_map(|record| if let Record::Asked(question) = record { Some((**question).clone()) } else { None })
        .collect()
}

/// How many threads wait, and how many questions are open, as any program finds them in the store.
fn waiting(desk: &Desk) -> (usize, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = RedbStore::open(desk.store()).expect("the store opens");
        let threads = store.threads(&ThreadQuery::new().status(ThreadStatus::Waiting)).await.expect("a list");
        let questions = store.questions(&InboxQuery::new()).await.expect("a list");
        (threads.len(), questions.len())
    })
}

#[test]
fn a_deadline_that_passes_while_no_process_is_there_counts() {
    let desk = Desk::new(false, &["--graph", "approved", "--within-ms", "1000"]);
    let line = desk.kill_at_line(&[], |line| !line["question"].is_null());
    let id = line["question"].as_str().expect("an id");
    assert_eq!(waiting(&desk), (1, 1));
    let asked = questions(&desk.records());
    let [question] = &asked[..] else { panic!("it asks once: {asked:?}") };
    let deadline = question.deadline.expect("it is stored");
    assert_eq!((question.id.to_string().as_str(), deadline), (id, Timestamp(question.asked_at.0 + 1000)));
    until(|| SystemClock.now() >= deadline);

    // A late click before anybody noticed, with a yes and with a no.
    let before = desk.records().len();
    for answer in ["yes", "no"] {
        let told = desk.run(&["--to", id, "--answer", answer]);
        assert!(told.code == 1 && told.text.contains("courier: question-expired: "), "{}", told.text);
    }
    assert_eq!(desk.records().len(), before, "nothing is recorded");
    // Neither approved nor refused.
    let told = desk.run(&[]);
    assert_eq!((told.code, &told.last["state"]["log"]), (0, &json!(["expired"])), "{}", told.text);
    assert_eq!(waiting(&desk), (0, 0));
    let told = desk.run(&["--to", id, "--answer", "yes"]);
    assert!(told.code == 1 && told.text.contains("courier: question-expired: "), "{}", told.text);
    let records = desk.records();
    assert_eq!((answered(&records), count(&records, |record| matches!(record, Record::Expired(_)))), (0, 1));
    assert!(desk.service.posts().is_empty());
}

#[test]
fn an_answer_in_time_counts_in_the_next_process_and_the_deadline_no_more() {
    let desk = Desk::new(false, &["--graph", "approved", "--within-ms", "600000"]);
    let line = desk.kill_at_line(&[], |line| !line["question"].is_null());
    let told = desk.run(&["--to", line["question"].as_str().expect("an id"), "--answer", "no"]);
    assert_eq!((told.code, &told.last["state"]["log"]), (0, &json!(["refused: somebody said no"])), "{}", told.text);
    assert_eq!((waiting(&desk), desk.service.posts().len()), ((0, 0), 0));
}

#[test]
fn an_approval_outlives_failures_and_a_kill_of_what_it_approved() {
    for (policy, knows_keys) in [("ask", false), ("check", false), ("repeatable", true)] {
        let desk = Desk::new(knows_keys, &["--graph", "approved", "--policy", policy, "--attempts", "1"]);
        desk.kill_at_line(&[], |line| !line["question"].is_null());
        desk.service.next(&[Next::Busy, Next::Busy]);
        let told = desk.run(&["--answer", "yes"]);
        assert!(told.code == 1 && told.text.contains("node-failed"), "{policy}: {}", told.text);
        desk.kill_at_line(&["--hold", "ship"], |line| line == "held");
        assert_eq!(desk.service.posts().len(), 1, "{policy}: it was killed before its effect");
        assert_eq!(desk.run(&[]).code, 1, "{policy}: it fails again, and asks nobody");
        if policy != "ask" {
            // Also behind the effect: these policies need nobody to say what became of it.
            desk.service.next(&[Next::Silent]);
            desk.kill_when(&[], |service| !service.acts().is_empty());
        }
        let told = desk.run(&[]);
        assert_eq!((told.code, &told.last["state"]["log"]), (0, &json!(["shipped"])), "{policy}: {}", told.text);
        let records = desk.records();
        assert_eq!((questions(&records).len(), answered(&records)), (1, 1), "{policy}: asked once, answered once");
        assert_eq!(desk.service.acts().len(), 1, "{policy}");
        assert_eq!(desk.service.posts().len(), if policy == "repeatable" { 4 } else { 3 }, "{policy}");
    }
}

#[test]
fn an_effect_before_a_question_in_one_node_is_not_performed_again_with_the_answer() {
    for policy in ["ask", "check", "repeatable"] {
        for (answer, end) in [("yes", "shipped"), ("no", "cancelled")] {
            // It would act again on each request.
            let desk = Desk::new(false, &["--graph", "labelled", "--policy", policy]);
            let line = desk.kill_at_line(&[], |line| !line["question"].is_null());
            assert_eq!((&line["show"], &line["log"]), (&json!("label-0"), &json!(["packed"])), "the state is the newest one");
            let told = desk.run(&[]);
            assert_eq!((told.code, &told.last["question"]), (3, &line["question"]), "{policy}: the same question: {}", told.text);
            // Killed once more, behind the answer.
            if answer == "yes" {
                desk.kill_at_line(&["--answer", answer, "--hold", "ship"], |line| line == "held");
            } else {
                assert_eq!(desk.run(&["--answer", answer]).code, 0);
            }
            let told = desk.run(&[]);
            assert_eq!((told.code, &told.last["state"]["log"]), (0, &json!(["packed", "labelled", end])), "{}", told.text);
            let done: Vec<String> = desk.service.acts().into_iter().map(|act| act.what).collect();
            let expected: &[&str] = if answer == "yes" { &["label", "ship"] } else { &["label"] };
            assert_eq!(done, expected, "{policy}, {answer}: one label, and only what follows from the answer");
            assert_eq!(desk.service.posts().len(), done.len(), "{policy}, {answer}");
            assert_eq!((questions(&desk.records()).len(), answered(&desk.records())), (1, 1));
        }
    }
}
