//! A supervised service as a real process: what a kill leaves behind goes on by itself, SIGTERM ends it in order, one bad thread ruins nothing for the
//! others, a node that hangs comes before a person.
//!
//! How it could break: a thread that is forgotten after a kill, or gone on with twice; an effect that is done again; a drain that takes longer than it
//! may, or leaves a doubt where there was time enough; a thread that takes the process down for ever, or others that are blamed for it; a node that hangs
//! and of which nobody hears, or hears again and again; two processes over one store. The ledger is written by the nodes, and knows nothing of the engine.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

mod support {
    pub(crate) mod common;
    pub(crate) mod service;
}

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ferrata::QuestionKind;
use ferrata::log::Record;
use ferrata::store::ThreadStatus;
use support::common::tell;
use support::service::{Ended, LONG, Ledger, Place, Said, Stored};

fn jobs(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("job-{number}")).collect()
}

/// Threads that have begun that node.
fn in_node(ledger: &Ledger, node: &str) -> BTreeSet<String> {
    ledger.begun().into_iter().filter(|(_, task)| task.contains(node)).map(|(thread, _)| thread).collect()
}

/// How many times a person was asked whether an effect was performed.
fn doubts(stored: &Stored) -> usize {
    stored.records().filter(|(_, record)| matches!(record, Record::Asked(question) if question.is_doubt())).count()
}

/// What is finished does not begin again.
fn assert_none_again(ledger: &Ledger, finished: &BTreeSet<(String, String)>) {
    let again: Vec<_> = ledger.begun().into_iter().filter(|task| finished.contains(task)).collect();
    assert!(again.is_empty(), "they had a result, and began again: {again:?}");
}

/// The threads that do anything in that part of the ledger.
fn at_work(ledger: &Ledger) -> BTreeSet<String> {
    ledger.begun().into_iter().chain(ledger.performed()).map(|(thread, _)| thread).collect()
}

#[test]
fn two_hundred_threads_go_on_by_themselves_after_each_of_several_kills() {
    let place = Place::new();
    // Kills from outside come faster here than threads come to results, and nobody is to be blamed for them.
    let mut process = place.start("--threads 200 --step-ms 600 --deaths-max 10");
    process.until("all are at work, and some have charged", |_| {
        let ledger = place.ledger();
        in_node(&ledger, "charge").len() == 200 && ledger.performed().len() >= 40
    });
    let (mut last, mut told, mut died) = ((0, BTreeSet::new()), BTreeSet::new(), 0);
    for kill in 1..=4_u64 {
        // What was not told by then is told by the next one.
        told.extend(process.kill().about("recovered"));
        let (stored, known) = (place.threads(), place.ledger().len());
        let (finished, statuses) = (stored.finished(), stored.statuses());
        let [done, cut_off] =
            [ThreadStatus::Done, ThreadStatus::Running].map(|status| statuses.get(&status).copied().unwrap_or(0));
        assert_eq!(done + cut_off, 200, "{statuses:?}");
        process = place.start(&format!("--threads 0 --deaths-max 10 --step-ms {}", if kill == 1 { 600 } else { 200 }));
        let began = process.began;
        match kill {
            1 => {
                assert!(cut_off >= 100, "most were at work: {cut_off}");
                died = cut_off;
                process.until("one goes on", |_| place.ledger().len() > known);
                let first = began.elapsed();
                process.until("all go on", |_| at_work(&place.ledger().behind(known)).len() == cut_off);
                tell(&format!(
                    "{cut_off} threads after a kill: the first goes on after {first:?}, the last after {:?}",
                    began.elapsed()
                ));
            }
            _ => process.until("some go on", |_| place.ledger().len() >= known + 40),
        }
        last = (known, finished);
        assert_none_again(&place.ledger().behind(known), &last.1);
        tell(&format!("kill {kill}: {done} were done, {cut_off} were cut off"));
    }
    let ended = process.ended(LONG);
    ended.well();
    assert_none_again(&place.ledger().behind(last.0), &last.1);
    told.extend(ended.said().about("recovered"));
    assert_eq!(told.len(), died, "somebody was told of each");
    tell(&format!("after the last kill all are through in {:?}", ended.after));
    let stored = place.threads();
    assert_eq!(stored.statuses(), [(ThreadStatus::Done, 200)].into());
    assert_eq!((stored.finished().len(), doubts(&stored)), (600, 0));
    place.ledger().assert_once(&jobs(200));
}

/// SIGTERM, when all are in the middle of that. Gives what the process left behind.
fn drained(place: &Place, options: &str, what: &str, holds: impl Fn(&Ledger) -> bool, bound: Duration) -> Ended {
    let mut process = place.start(options);
    process.until(what, |_| holds(&place.ledger()));
    process.terminate();
    // What is cut off has the time again; the rest is for a machine that is busy.
    let ended = process.ended(bound + Duration::from_secs(5));
    tell(&format!("SIGTERM, {options}: ended after {:?}", ended.after));
    ended
}

#[test]
fn sigterm_lets_steps_end_within_the_bound_and_the_next_process_goes_on_without_a_word() {
    let (place, bound) = (Place::new(), Duration::from_secs(8));
    let options = "--threads 20 --step-ms 800 --drain-ms 8000";
    let ended = drained(&place, options, "all charge", |ledger| in_node(ledger, "charge").len() == 20, bound);
    assert!(ended.after < bound, "{ended:?}");
    let [ended_runs, cut, stuck] = ended.well();
    assert_eq!((ended_runs.len(), cut.len() + stuck.len()), (20, 0));
    let (stored, known) = (place.threads(), place.ledger().len());
    assert_eq!(stored.statuses(), [(ThreadStatus::Ready, 20)].into());
    assert_eq!((doubts(&stored), stored.finished().len()), (0, 40), "the step that was under way is recorded");
    let next = place.start("--threads 0 --step-ms 10").ended(LONG);
    next.well();
    assert!(next.said().notices("recovered").is_empty() && next.said().notices("asked").is_empty(), "{next:?}");
    let end = place.threads();
    assert_eq!((end.statuses(), doubts(&end)), ([(ThreadStatus::Done, 20)].into(), 0));
    assert_none_again(&place.ledger().behind(known), &stored.finished());
    place.ledger().assert_once(&jobs(20));
}

#[test]
fn what_is_not_through_within_the_bound_is_cut_off_and_a_person_says_what_has_happened() {
    // Before what they do, and behind it.
    let before = cut_off(|ledger| in_node(ledger, "charge").len() == 20);
    let behind = cut_off(|ledger| ledger.performed().len() >= 10);
    tell(&format!("20 were cut off, two times; of these had happened: {before}, {behind}"));
    assert!(behind >= 10, "there are both");
}

/// Gives how many effects had happened of those that were cut off.
fn cut_off(holds: impl Fn(&Ledger) -> bool) -> usize {
    let (place, bound) = (Place::new(), Duration::from_millis(300));
    let options = "--threads 20 --step-ms 4000 --drain-ms 300 --ask";
    let ended = drained(&place, options, "it is time", holds, 2 * bound);
    let [ended_runs, cut, stuck] = ended.well();
    assert_eq!((ended_runs.len(), cut.len(), stuck.len()), (0, 20, 0));
    let performed: BTreeSet<String> = place.ledger().performed().into_iter().map(|(_, key)| key).collect();
    assert_eq!(place.threads().statuses().keys().filter(|status| **status == ThreadStatus::Running).count(), 0);
    let mut next = place.start("--threads 0 --step-ms 10 --ask");
    next.until("a person is asked about each", |said| said.notices("asked").len() == 20);
    assert_eq!(place.ledger().performed().len(), performed.len(), "nothing is done before that is answered");
    for asked in next.said().notices("asked") {
        let key = asked["about"]["show"]["idempotency_key"].as_str().expect("it is about an effect");
        let word = if performed.contains(key) { "performed" } else { "missing" };
        next.enter(&format!("{word} {}", asked["thread"].as_str().expect("it is about a thread")));
    }
    let next = next.ended(LONG);
    next.well();
    assert!(next.said().notices("recovered").is_empty(), "none had died");
    let end = place.threads();
    assert_eq!((end.statuses(), doubts(&end)), ([(ThreadStatus::Done, 20)].into(), 20));
    place.ledger().assert_once(&jobs(20));
    performed.len()
}

#[test]
fn a_node_that_blocks_its_thread_keeps_no_process_from_ending_and_is_named() {
    let (place, bound) = (Place::new(), Duration::from_millis(500));
    let options = "--threads 10 --step-ms 100 --drain-ms 500 --block job-3";
    let through = |ledger: &Ledger| in_node(ledger, "charge").contains("job-3") && ledger.performed().len() == 18;
    // Notices that are on their way have their time, too.
    let ended = drained(&place, options, "the others are through, and that one blocks", through, 2 * bound);
    let [_, cut, stuck] = ended.well();
    assert_eq!((cut.len(), stuck), (0, vec!["job-3".to_owned()]));
    let next = place.start("--threads 0 --step-ms 10").ended(LONG);
    next.well();
    assert_eq!(next.said().about("recovered"), ["job-3"]);
    assert_eq!(place.threads().statuses(), [(ThreadStatus::Done, 10)].into());
    place.ledger().assert_once(&jobs(10));
}

#[test]
fn a_thread_that_kills_its_process_is_given_up_and_no_other_one_is() {
    let place = Place::new();
    let (mut starts, mut given_up, began) = (0, BTreeSet::new(), Instant::now());
    let last = loop {
        starts += 1;
        let ended = place.start("--threads 20 --step-ms 100 --poison job-3").ended(LONG);
        for notice in ended.said().notices("given_up") {
            given_up.insert((notice["thread"].to_string(), notice["id"].to_string()));
        }
        tell(&format!("start {starts}: it ended after {:?}, {}", ended.after, ended.status));
        if ended.status.success() {
            break ended;
        }
        assert!(starts < 5, "it still dies: {ended:?}");
    };
    tell(&format!("one poisonous thread of 20: {starts} starts, {:?}", began.elapsed()));
    assert_eq!(last.said().about("given_up"), ["job-3"]);
    assert_eq!(last.said().notices("given_up")[0]["about"]["deaths"], 3);
    assert_eq!(given_up.len(), 1, "{given_up:?}");
    let stored = place.threads();
    assert_eq!(stored.statuses(), [(ThreadStatus::Done, 19), (ThreadStatus::Suspended, 1)].into());
    assert_eq!(stored.status("job-3"), ThreadStatus::Suspended);
    assert_eq!(place.ledger().times("job-3", "charge"), 3, "it ran as often as it may");
    let innocent: Vec<String> = jobs(20).into_iter().filter(|name| name != "job-3").collect();
    place.ledger().assert_once(&innocent);
    // It is left alone, and told of once.
    let again = place.start("--threads 20 --poison job-3").ended(LONG);
    again.well();
    assert!(again.said().notices("given_up").is_empty());
}

/// How many times a person was asked about a thread that hangs.
fn stalls(stored: &Stored, thread: &str) -> usize {
    let is_stall = |record: &Record| matches!(record, Record::Asked(question) if question.kind == QuestionKind::Stall);
    stored.records().filter(|(name, record)| *name == thread && is_stall(record)).count()
}

/// How many times it was noticed that the thread gives no sign of life that has none. On a busy machine others may seem to hang, too.
fn noticed(said: &Said) -> usize {
    said.about("stalled").iter().filter(|thread| *thread == "job-5").count()
}

const HANGS: &str = "--threads 8 --step-ms 50 --patience-ms 800 --hang job-5";

#[test]
fn a_node_that_hangs_is_noticed_begun_again_once_and_comes_before_a_person_who_decides() {
    let place = Place::new();
    let mut process = place.start(HANGS);
    process.until("a person is asked", |said| said.notices("asked").len() == 1);
    let said = process.said();
    assert_eq!((noticed(&said), said.about("asked")), (2, vec!["job-5".to_owned()]));
    assert_eq!(place.ledger().times("job-5", "charge"), 2);
    process.enter("approve job-5");
    process.until("it hangs again, and a person is asked again", |said| said.notices("asked").len() == 2);
    assert_eq!(place.ledger().times("job-5", "charge"), 4, "it has both tries again");
    process.terminate();
    process.ended(LONG).well();
    let stored = place.threads();
    assert_eq!((stored.status("job-5"), stalls(&stored, "job-5")), (ThreadStatus::Waiting, 2));
    assert_eq!(stored.statuses()[&ThreadStatus::Done], 7);
    // Another process, in which it does not hang.
    let mut process = place.start("--threads 0 --step-ms 50");
    process.enter("approve job-5");
    process.ended(LONG).well();
    assert_eq!(place.threads().statuses(), [(ThreadStatus::Done, 8)].into());
    place.ledger().assert_once(&jobs(8));
}

#[test]
fn a_person_can_let_a_thread_that_hangs_fail_and_a_kill_in_between_changes_nothing() {
    let place = Place::new();
    let mut process = place.start(HANGS);
    process.until("it was begun again", |_| place.ledger().times("job-5", "charge") == 2);
    process.until("the others are through", |_| place.ledger().performed().len() == 14);
    assert!(process.kill().notices("asked").is_empty());
    let mut process = place.start(HANGS);
    process.until("a person is asked", |said| said.notices("asked").len() == 1);
    let said = process.said();
    assert!(said.about("recovered").contains(&"job-5".to_owned()), "{said:?}");
    assert_eq!((noticed(&said), place.ledger().times("job-5", "charge")), (1, 3), "not begun again once more");
    process.enter("reject job-5");
    let ended = process.ended(LONG);
    ended.well();
    assert_eq!(ended.said().about("failed"), ["job-5"]);
    assert!(ended.complaint.contains("job-5"), "whoever answers is told: {}", ended.complaint);
    let stored = place.threads();
    assert_eq!((stored.status("job-5"), stalls(&stored, "job-5")), (ThreadStatus::Failed, 1));
    assert_eq!(stored.statuses()[&ThreadStatus::Done], 7);
}

#[test]
fn a_second_process_over_the_store_is_refused_and_disturbs_nobody() {
    let place = Place::new();
    let mut first = place.start("--threads 5 --step-ms 1000");
    first.until("they work", |_| in_node(&place.ledger(), "prepare").len() == 5);
    let second = place.start("--threads 5").ended(LONG);
    assert_eq!(second.status.code(), Some(1));
    assert!(second.complaint.contains("is in use by another process"), "{second:?}");
    first.ended(LONG).well();
    assert_eq!(place.threads().statuses(), [(ThreadStatus::Done, 5)].into());
    place.ledger().assert_once(&jobs(5));
}
