//! What is done about an effect of which nobody knows whether it was performed, for each way in which that can come about and each policy.
//!
//! How it could break: an effect repeated because its attempt timed out, was cancelled or dropped; a check that fails and is taken for "no"; a result
//! given back for other arguments; a person who is asked about what a function can find out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::log::{EffectDone, Record};
use ferrata::store::{MemoryStore, Store};
use ferrata::{
    Answer, Context, END, Graph, IntoNode, NodeError, Outcome, Performed, Retry, Runner, START, State, Suspension, Thread,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Mail {
    receipt: Option<usize>,
    #[state(append)]
    log: Vec<String>,
}

/// How the first try goes: each time the mail has gone out, but once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    /// It fails after the mail has gone out, with an error that does not tell.
    Fails,
    /// It takes too long after the mail has gone out.
    TimesOut,
    /// The run is cancelled after the mail has gone out.
    Cancelled,
    /// The node stops waiting for it, and returns.
    Dropped,
    /// The node stops waiting for it, and fails.
    DroppedAndFails,
    /// It fails before the mail has gone out, with an error that does not tell.
    FailsBefore,
}

const FIRSTS: [First; 6] =
    [First::Fails, First::TimesOut, First::Cancelled, First::Dropped, First::DroppedAndFails, First::FailsBefore];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    Ask,
    Check,
    Repeatable,
}

/// A post office that tells what was sent.
#[derive(Clone, Default)]
struct Office {
    sent: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    under_way: Arc<Notify>,
}

impl Office {
    async fn send(&self, first: First, is_first: bool) -> ferrata::Result<usize> {
        if is_first && first == First::FailsBefore {
            return Err(NodeError::new("the line is dead"));
        }
        let receipt = self.sent.fetch_add(1, Ordering::SeqCst);
        self.under_way.notify_one();
        if !is_first {
            return Ok(receipt);
        }
        match first {
            First::Fails => Err(NodeError::new("the line went dead")),
            _ => std::future::pending().await,
        }
    }

    /// What the office knows.
    fn look_up(&self) -> Performed<usize> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.sent.load(Ordering::SeqCst) {
            0 => Performed::No,
            sent => Performed::Yes(sent - 1),
        }
    }

    fn graph(&self, first: First, policy: Policy) -> Graph<Mail> {
        let (office, tries) = (self.clone(), Arc::new(AtomicUsize::new(0)));
        let send = move |ctx: Context| {
            let (office, is_first) = (office.clone(), tries.fetch_add(1, Ordering::SeqCst) == 0);
            async move {
                let looked_up = office.clone();
                let effect = ctx.effect("mail", move |_key| async move { office.send(first, is_first).await });
                let effect = match policy {
                    Policy::Ask => effect,
                    Policy::Check => effect.check(move |_key| {
                        let found = looked_up.look_up();
                        async move { Ok(found) }
                    }),
                    Policy::Repeatable => effect.repeatable(),
                };
                if is_first && matches!(first, First::Dropped | First::DroppedAndFails) {
                    let begun = tokio::time::timeout(Duration::from_millis(20), effect).await;
                    assert!(begun.is_err(), "it does not come back");
                    if first == First::DroppedAndFails {
                        return Err(NodeError::new("it took too long").transient());
                    }
                    return Ok(Mail::update().push_log("gave up"));
                }
                Ok(Mail::update().receipt(effect.await?).push_log("sent"))
            }
        };
        let send = send.retry(Retry::transient(2).delay_max(Duration::ZERO)).timeout(Duration::from_millis(200));
        Graph::<Mail>::new("mail").node("send", send).edge(START, "send").edge("send", END).build().expect("the graph is right")
    }
}

async fn begin(thread: &Thread<Mail>, first: First, office: &Office) -> Result<Outcome<Mail>, ferrata::Error> {
    if first != First::Cancelled {
        return thread.run(Mail::update()).await;
    }
    let run = {
        let thread = thread.clone();
        tokio::spawn(async move { thread.run(Mail::update()).await })
    };
    office.under_way.notified().await;
    assert!(thread.cancel().await.expect("it goes on"));
    run.await.expect("no panic")
}

/// Goes on until the thread is done. A person who is asked looks it up. Gives how often one was asked.
async fn go_on(thread: &Thread<Mail>, mut outcome: Result<Outcome<Mail>, ferrata::Error>, office: &Office) -> usize {
    let mut people = 0;
    for _ in 0..5 {
        outcome = match outcome {
            Ok(Outcome::Done(_)) => return people,
            Ok(Outcome::Waiting(questions)) => {
                assert!(questions.len() == 1 && questions[0].is_doubt(), "{questions:?}");
                people += 1;
                let answer = match office.look_up() {
                    Performed::Yes(receipt) => Answer::performed(receipt),
                    _ => Answer::not_performed(),
                };
                thread.answer(questions[0].id, answer).await
            }
            Ok(Outcome::Outside(waits)) => panic!("{waits:?}"),
            Ok(Outcome::Suspended(why)) => {
                assert_eq!(why, Suspension::Cancelled);
                thread.resume().await
            }
            Err(error) => {
                assert_eq!(error.code(), "node-failed", "{error}");
                thread.resume().await
            }
        };
    }
    panic!("it does not end: {outcome:?}");
}

#[tokio::test]
async fn whatever_leaves_an_effect_in_doubt_the_mail_goes_out_once_or_as_declared() {
    for first in FIRSTS {
        for policy in [Policy::Ask, Policy::Check, Policy::Repeatable] {
            let office = Office::default();
            let thread = Runner::new(office.graph(first, policy), MemoryStore::new()).thread("t");
            let begun = begin(&thread, first, &office).await;
            let people = go_on(&thread, begun, &office).await;
            let sent = office.sent.load(Ordering::SeqCst);
            let log = thread.state().await.expect("it is there").values.log.clone();
            let case = format!("{first:?}, {policy:?}: sent {sent}, {people} people, {log:?}");
            match (policy, first) {
                // It said that it may be done again.
                (Policy::Repeatable, First::Dropped) => {
                    assert_eq!((sent, people, &*log), (1, 0, &["gave up".to_owned()][..]), "{case}")
                }
                (Policy::Repeatable, First::FailsBefore) => assert_eq!((sent, people), (1, 0), "{case}"),
                (Policy::Repeatable, _) => assert_eq!((sent, people), (2, 0), "{case}"),
                (Policy::Ask, _) => assert_eq!((sent, people, &*log), (1, 1, &["sent".to_owned()][..]), "{case}"),
                // A node that has a result does not run again by itself, so somebody has to say.
                (Policy::Check, First::Dropped) => assert_eq!((sent, people), (1, 1), "{case}"),
                (Policy::Check, _) => assert_eq!((sent, people, &*log), (1, 0, &["sent".to_owned()][..]), "{case}"),
            }
        }
    }
}

#[tokio::test]
async fn what_a_check_found_is_on_record_as_found() {
    let office = Office::default();
    let thread = Runner::new(office.graph(First::Fails, Policy::Check), MemoryStore::new()).thread("t");
    assert!(thread.run(Mail::update()).await.expect("it finds out").done().is_some());
    let log = thread.log().await.expect("the log");
    let done: Vec<&EffectDone> =
        log.iter().filter_map(|entry| if let Record::EffectDone(done) = &entry.record { Some(&**done) } else { None }).collect();
    assert!(matches!(&done[..], [done] if done.found && done.result == 0), "{done:?}");
}

/// A node whose mail fails once without telling, and whose check does as it is told.
fn checked<F, Fut>(office: &Office, retry: Retry, check: F) -> Graph<Mail>
where
    F: Fn(usize) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ferrata::Result<Performed<usize>>> + Send + 'static,
{
    let (office, checks) = (office.clone(), Arc::new(AtomicUsize::new(0)));
    let send = move |ctx: Context| {
        let (office, checks, check) = (office.clone(), Arc::clone(&checks), check.clone());
        async move {
            let is_first = office.sent.load(Ordering::SeqCst) == 0;
            let effect = ctx.effect("mail", move |_key| async move { office.send(First::Fails, is_first).await });
            let effect = effect.check(move |_key| check(checks.fetch_add(1, Ordering::SeqCst)));
            Ok(Mail::update().receipt(effect.await?))
        }
    };
    let send = send.retry(retry.delay_max(Duration::ZERO));
    Graph::<Mail>::new("mail").node("send", send).edge(START, "send").edge("send", END).build().expect("the graph is right")
}

#[tokio::test]
async fn a_check_that_fails_is_never_taken_for_a_no() {
    // For a while: it is tried again, by the node's policy, and nothing is performed meanwhile.
    let office = Office::default();
    let check = |count| async move {
        if count < 2 { Err(NodeError::new("the office is closed").transient()) } else { Ok(Performed::Yes(0)) }
    };
    let thread = Runner::new(checked(&office, Retry::transient(3), check), MemoryStore::new()).thread("t");
    assert_eq!(thread.run(Mail::update()).await.expect("it finds out").done().expect("it ends").receipt, Some(0));
    assert_eq!(office.sent.load(Ordering::SeqCst), 1);

    // For good: the run fails, and when it is resumed the check is asked again.
    let office = Office::default();
    let thread = Runner::new(checked(&office, Retry::transient(2), check), MemoryStore::new()).thread("t");
    let error = thread.run(Mail::update()).await.expect_err("the office is closed");
    assert!(error.to_string().contains("finding out whether effect \"mail\" was performed: the office is closed"), "{error}");
    let error = thread.clone().supersede().run(Mail::update()).await.expect_err("the mail may have gone out");
    assert_eq!(error.code(), "in-doubt");
    assert_eq!(thread.resume().await.expect("it finds out").done().expect("it ends").receipt, Some(0));
    assert_eq!(office.sent.load(Ordering::SeqCst), 1);

    // In a way that will not pass, or without a word: a person is asked.
    for unsure in [true, false] {
        let office = Office::default();
        let check = move |_| async move { if unsure { Ok(Performed::Unknown) } else { Err(NodeError::new("what office?")) } };
        let thread = Runner::new(checked(&office, Retry::transient(2), check), MemoryStore::new()).thread("t");
        let outcome = thread.run(Mail::update()).await.expect("it asks");
        assert!(outcome.questions()[0].is_doubt() && outcome.questions()[0].text.contains("the line went dead"), "{outcome:?}");
        let receipt = thread.answer(outcome.questions()[0].id, Answer::performed(0)).await.expect("it fits").done();
        assert_eq!((receipt.expect("it ends").receipt, office.sent.load(Ordering::SeqCst)), (Some(0), 1));
    }
}

/// An error handler takes the node's place for good: nobody would come back to look.
#[tokio::test]
async fn an_error_handler_does_not_hide_a_doubt_that_a_check_would_have_settled() {
    let office = Office::default();
    let sent = office.clone();
    let send = move |ctx: Context| {
        let office = sent.clone();
        async move {
            let effect = ctx.effect("mail", move |_key| async move { office.send(First::Fails, true).await });
            let closed = |_key| async { Err(NodeError::new("the office is closed").transient()) };
            Ok(Mail::update().receipt(effect.check(closed).await?))
        }
    };
    let handler = || async { Ok(Mail::update().push_log("handled")) };
    let graph = Graph::<Mail>::new("mail").node("send", send.on_error(handler)).edge(START, "send").edge("send", END);
    let thread = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new()).thread("t");
    let outcome = thread.run(Mail::update()).await.expect("it asks");
    assert!(outcome.questions()[0].is_doubt(), "{outcome:?}");
    thread.answer(outcome.questions()[0].id, Answer::performed(0)).await.expect("it fits").done().expect("it ends");
    assert_eq!(thread.state().await.expect("it is there").values.receipt, Some(0));
}

fn with_arguments(store: impl Store, cents: u64, fails: bool) -> Thread<Mail> {
    let pay = move |ctx: Context| async move {
        let receipt: usize = ctx.effect("pay", |_key| async { Ok(7) }).arguments(&("order-7", cents)).await?;
        let total: usize = ctx.effect("read", |_key| async { Ok(1) }).arguments(&cents).repeatable().await?;
        if fails { Err(NodeError::new("not yet")) } else { Ok(Mail::update().receipt(receipt + total)) }
    };
    let graph = Graph::<Mail>::new("mail").node("pay", pay).edge(START, "pay").edge("pay", END);
    Runner::new(graph.build().expect("the graph is right"), store).thread("t")
}

#[tokio::test]
async fn an_effect_that_comes_back_with_other_arguments_is_an_error_that_shows_both() {
    let store = Arc::new(MemoryStore::new());
    with_arguments(Arc::clone(&store), 500, true).run(Mail::update()).await.expect_err("not yet");
    let error = with_arguments(Arc::clone(&store), 900, false).resume().await.expect_err("it was paid with others");
    assert_eq!(error.code(), "effect-arguments");
    for shown in [r#"["order-7",500]"#, r#"["order-7",900]"#, "\"pay\""] {
        assert!(error.to_string().contains(shown), "{shown}: {error}");
    }
    let state = with_arguments(store, 500, false).resume().await.expect("they are the same").done().expect("it ends");
    assert_eq!(state.receipt, Some(8));
}

#[tokio::test]
async fn one_key_twice_in_a_node_is_two_effects_and_several_may_go_on_at_once() {
    let sent = Arc::new(AtomicUsize::new(0));
    let send = {
        let sent = Arc::clone(&sent);
        move |ctx: Context| {
            let sent = Arc::clone(&sent);
            async move {
                let mail = || {
                    let sent = Arc::clone(&sent);
                    ctx.effect("mail", move |key| async move {
                        sent.fetch_add(1, Ordering::SeqCst);
                        Ok(key)
                    })
                };
                let (first, second) = tokio::try_join!(mail(), mail())?;
                let third = mail().await?;
                assert!(first != second && second != third && first != third, "each has a key of its own");
                if ctx.attempt() == 1 { Err(NodeError::new("again").transient()) } else { Ok(Mail::update().push_log(first)) }
            }
        }
    };
    let graph = Graph::<Mail>::new("mail").node("send", send.retry(Retry::transient(2).delay_max(Duration::ZERO)));
    let graph = graph.edge(START, "send").edge("send", END).build().expect("the graph is right");
    let thread = Runner::new(graph, MemoryStore::new()).thread("t");
    assert!(thread.run(Mail::update()).await.expect("it ends").done().is_some());
    assert_eq!(sent.load(Ordering::SeqCst), 3, "the second attempt took them from the log");
}
