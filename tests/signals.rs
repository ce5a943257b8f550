//! A signal reaches what waits for it once, whenever it comes: before, while and after somebody waits, twice, of the wrong type, a thousand at once.
//!
//! How it could break: one that came early is lost, or one that came twice counts twice; two that are sent at the same moment, of which one disappears; a signal of another type that
//! stops the thread; one for a thread that is finished, and that is taken in silence.

mod support {
    pub(crate) mod notes;
}

use std::sync::Arc;
use std::time::Duration;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::{MemoryStore, RedbStore, Store, ThreadStatus};
use ferrata::testing::crash_everywhere;
use ferrata::{
    Context, Delivery, Durability, END, Graph, GraphBuilder, NoticeKind, Outcome, Runner, START, Signal, State, Thread, View,
    Wait,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::notes::Told;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Order {
    #[state(append)]
    paid: Vec<u64>,
    #[state(append)]
    log: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Payment {
    cents: u64,
}

fn payment(cents: u64) -> Signal {
    Signal::new("payment", Payment { cents }).by("the bank")
}

async fn receive(ctx: Context) -> ferrata::Result<OrderUpdate> {
    let first: Payment = ctx.signal("payment").await?;
    let second: Payment = ctx.signal("payment").await?;
    Ok(Order::update().push_paid(first.cents).push_paid(second.cents))
}

fn order() -> GraphBuilder<Order> {
    Graph::<Order>::new("order").signal::<Payment>("payment").signal::<String>("news")
}

/// Waits for two payments in a node.
fn two() -> Graph<Order> {
    order().node("receive", receive).edge(START, "receive").edge("receive", END).build().expect("the graph is right")
}

/// Waits until that holds, for two minutes at most.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.unwrap_or_else(|_| panic!("it never comes that {what}"));
}

async fn is_done(thread: &Thread<Order>) -> bool {
    thread.state().await.expect("it is there").status == ThreadStatus::Done
}

async fn begin(thread: &Thread<Order>) {
    assert!(matches!(thread.run(Order::update()).await.expect("it runs"), Outcome::Outside(_)));
}

#[tokio::test]
async fn signals_come_before_while_and_after_somebody_waits_in_order_and_over_restarts() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || Runner::new(two(), RedbStore::open(dir.path().join("store.redb")).expect("a store"));
    let refused = open().thread("t").signal(payment(1)).await.expect_err("it has not begun");
    assert!(refused.is_unknown_thread(), "{refused}");
    begin(&open().thread("t")).await;
    // While it waits.
    assert_eq!(open().thread("t").signal(payment(10)).await.expect("it is taken"), Delivery::Delivered);
    let runner = open();
    let state = runner.thread("t").state().await.expect("it is there");
    assert_eq!((state.status, state.waits.len()), (ThreadStatus::Ready, 0));
    // Before it waits: the node has not come to its second wait.
    assert_eq!(runner.thread("t").signal(payment(20)).await.expect("it is taken"), Delivery::Kept);
    assert_eq!(runner.thread("t").signal(payment(30)).await.expect("it is taken"), Delivery::Kept);
    drop(runner);
    let done = open().thread("t").resume().await.expect("it goes on").done().expect("it is done");
    assert_eq!(done.paid, [10, 20]);
    // After all is over.
    let refused = open().thread("t").signal(payment(40)).await.expect_err("it is finished");
    assert_eq!(refused.code(), "thread-finished");
    let again = open().thread("t").signal(payment(10).id("late")).await.expect_err("it is finished, and this one is new");
    assert_eq!(again.code(), "thread-finished");
    let checked = open().verify().await.expect("it is looked at");
    assert!(checked.faults.is_empty(), "{:?}", checked.faults);
}

#[tokio::test]
async fn a_signal_that_is_sent_twice_counts_once_and_one_without_an_id_each_time() {
    let runner = Runner::new(two(), MemoryStore::new());
    let thread = runner.thread("t");
    begin(&thread).await;
    let tell = |id: &'static str| thread.signal(payment(5).id(id));
    assert_eq!(tell("a").await.expect("it is taken"), Delivery::Delivered);
    assert_eq!(tell("a").await.expect("it is known"), Delivery::Known);
    assert!(matches!(thread.resume().await.expect("it goes on"), Outcome::Outside(_)), "one payment is missing");
    assert_eq!(tell("a").await.expect("it is known"), Delivery::Known);
    assert_eq!(tell("b").await.expect("it is taken"), Delivery::Delivered);
    let done = thread.resume().await.expect("it goes on").done().expect("it is done");
    assert_eq!(done.paid, [5, 5]);
    assert_eq!(tell("b").await.expect("it is known, whatever has become of the thread"), Delivery::Known);
    // New input begins anew; what nobody took is gone, what was sent is known.
    begin(&thread).await;
    assert_eq!(tell("b").await.expect("it is known"), Delivery::Known);
    assert_eq!(thread.signal(payment(6)).await.expect("it is taken"), Delivery::Delivered);
}

#[tokio::test]
async fn what_is_wrong_with_a_signal_is_told_to_its_sender_and_changes_nothing() {
    let runner = Runner::new(two(), MemoryStore::new());
    let thread = runner.thread("t");
    begin(&thread).await;
    let records = thread.log().await.expect("the log").len();
    for (signal, code, word) in [
        (Signal::new("payment", "a lot"), "signal-misfit", "is not of type"),
        (Signal::new("payment", serde_json::json!({"cents": -1})), "signal-misfit", "/cents"),
        (Signal::new("payments", 1), "signal-unknown", "news, payment"),
        (Signal::new("payment", f64::NAN), "value", ""),
        (Signal::new("news", "x".repeat(20 << 20)), "update-limit", "signal"),
    ] {
        let refused = thread.signal(signal).await.expect_err(code);
        assert!(refused.code() == code && refused.to_string().contains(word), "{refused:?}");
    }
    assert_eq!(thread.log().await.expect("the log").len(), records);
    assert_eq!(thread.waits().await.expect("a list").len(), 1);
    // The limit of what is kept.
    for n in 0..1_000 {
        thread.signal(Signal::new("news", n.to_string())).await.expect("it is kept");
    }
    assert_eq!(thread.signal(Signal::new("news", "one more")).await.expect_err("too many").code(), "signal-limit");
    // A node that waits for what the graph does not know fails, and does not wait for ever.
    let wrong = |ctx: Context| async move { ctx.signal::<u64>("pyament").await.map(|cents| Order::update().push_paid(cents)) };
    let graph = order().node("receive", wrong).edge(START, "receive").edge("receive", END).build().expect("the graph is right");
    let failed = Runner::new(graph, MemoryStore::new()).thread("t").run(Order::update()).await.expect_err("it fails");
    assert!(failed.code() == "signal-unknown" && failed.to_string().contains("news, payment"), "{failed}");
    let twice = order().signal::<u64>("news").node("receive", receive).edge(START, "receive").edge("receive", END).build();
    assert!(twice.expect_err("two of one name").to_string().contains("there are two signals called \"news\""));
}

#[tokio::test]
async fn a_wait_node_takes_what_a_signal_says_and_goes_another_way_when_none_comes() {
    let note = |ctx: Context| async move { Ok(Order::update().push_log(ctx.node())) };
    let graph = || {
        order()
            .wait("paid", |_| Wait::signal("payment").within(Duration::from_secs(60)))
            .answered("paid", |_, payment: Payment| Order::update().push_paid(payment.cents))
            .node("ship", note)
            .node("remind", note)
            .edge(START, "paid")
            .edge("paid", "ship")
            .expired("paid", "remind")
            .edge("ship", END)
            .edge("remind", END)
    };
    let clock = ManualClock::at(Timestamp(1_000));
    let runner = Runner::with_clock(graph().build().expect("the graph is right"), MemoryStore::new(), clock.clone());
    for thread in ["paid", "late"] {
        begin(&runner.thread(thread)).await;
    }
    runner.thread("paid").signal(payment(7)).await.expect("it is taken");
    clock.advance_ms(60_000);
    // It has come too late, whether or not anybody has looked since.
    assert_eq!(runner.thread("late").signal(payment(8)).await.expect("it is kept"), Delivery::Kept);
    let paid = runner.thread("paid").resume().await.expect("it goes on").done().expect("it is done");
    let late = runner.thread("late").resume().await.expect("it goes on").done().expect("it is done");
    assert_eq!((&*paid.paid, &*paid.log), (&[7][..], &["ship".to_owned()][..]));
    assert_eq!((&*late.paid, &*late.log), (&[][..], &["remind".to_owned()][..]));
    let endless = order().wait("paid", |_| Wait::signal("payment").within(Duration::from_secs(60)));
    let endless = endless.edge(START, "paid").edge("paid", END).build().expect("the graph is right");
    let failed =
        Runner::new(endless, MemoryStore::new()).thread("t").run(Order::update()).await.expect_err("it says nowhere to go");
    assert!(failed.to_string().contains("add `.expired(\"paid\", ..)`"), "{failed}");
}

#[tokio::test]
async fn a_signal_in_time_and_none_are_two_things_inside_a_node() {
    let within = |ctx: Context| async move {
        let cents = ctx.signal_within::<Payment>("payment", Duration::from_secs(60)).await?.map(|payment| payment.cents);
        Ok(Order::update().push_log(format!("{cents:?}")))
    };
    let graph = order().node("receive", within).edge(START, "receive").edge("receive", END).build().expect("the graph is right");
    let clock = ManualClock::at(Timestamp(1_000));
    let runner = Runner::with_clock(graph, MemoryStore::new(), clock.clone());
    for thread in ["paid", "late"] {
        begin(&runner.thread(thread)).await;
    }
    runner.thread("paid").signal(payment(7)).await.expect("it is taken");
    clock.advance_ms(60_000);
    for (thread, said) in [("paid", "Some(7)"), ("late", "None")] {
        let done = runner.thread(thread).resume().await.expect("it goes on").done().expect("it is done");
        assert_eq!(done.log, [said]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_ready_when_something_of_it_can_go_on_and_not_before() {
    let both = |ctx: Context| async move {
        let (payment, news) = tokio::join!(ctx.signal::<Payment>("payment"), ctx.signal::<String>("news"));
        Ok(Order::update().push_paid(payment?.cents).push_log(news?))
    };
    let graph = order().node("both", both).edge(START, "both").edge("both", END).build().expect("the graph is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let supervisor = runner.supervise().start().await.expect("it begins");
    let thread = runner.thread("t");
    begin(&thread).await;
    thread.signal(payment(3)).await.expect("it is taken");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let (state, records) = (thread.state().await.expect("it is there"), thread.log().await.expect("the log").len());
    assert_eq!((state.status, state.waits.len()), (ThreadStatus::Outside, 1), "half of it is missing");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(thread.log().await.expect("the log").len(), records, "nothing is done for it");
    thread.signal(Signal::new("news", "good")).await.expect("it is taken");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = thread.state().await.expect("it is there");
    assert_eq!((state.status, &*state.values.paid, &*state.values.log), (ThreadStatus::Done, &[3][..], &["good".to_owned()][..]));
    // One that somebody has stopped takes signals, and is not gone on with.
    let held = runner.thread("held").pause_before(["both"]);
    assert!(matches!(held.run(Order::update()).await.expect("it stops"), Outcome::Suspended(_)));
    assert_eq!(held.signal(payment(1)).await.expect("it is kept"), Delivery::Kept);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(held.state().await.expect("it is there").status, ThreadStatus::Suspended);
    supervisor.drain(Duration::from_secs(10)).await;
}

/// Adds up a thousand signals, one by one.
fn adds(count: usize) -> Graph<Order> {
    let add = |ctx: Context| async move {
        let payment: Payment = ctx.signal("payment").await?;
        Ok(Order::update().push_paid(payment.cents))
    };
    order()
        .node("add", add)
        .edge(START, "add")
        .route_to("add", ["add", END], move |order: &Order| if order.paid.len() < count { "add" } else { END })
        .build()
        .expect("the graph is right")
}

async fn race(store: impl Store, signals: u32) {
    let runner = Runner::new(adds(signals as usize), store);
    let signals = u64::from(signals);
    let supervisor = runner.supervise().start().await.expect("it begins");
    let thread = runner.thread("t").durability(Durability::Step);
    begin(&thread).await;
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..50 {
        let thread = runner.thread("t");
        senders.spawn(async move {
            for n in (sender..signals).step_by(50) {
                // Each is sent twice, by people who do not know of each other.
                for _ in 0..2 {
                    while let Err(error) = thread.signal(payment(n).id(n.to_string())).await {
                        assert!(["thread-finished", "signal-limit"].contains(&error.code()), "{error}");
                        if error.code() == "thread-finished" {
                            break;
                        }
                    }
                }
            }
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent.expect("no panic");
    }
    until("all are paid", async || is_done(&thread).await).await;
    let mut paid = thread.state().await.expect("it is there").values.paid.clone();
    paid.sort_unstable();
    assert_eq!(paid, (0..signals).collect::<Vec<_>>(), "each once");
    supervisor.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_signals_at_once_are_taken_once_each() {
    race(MemoryStore::new(), 1_000).await;
    let dir = tempfile::tempdir().expect("a folder");
    race(RedbStore::open(dir.path().join("store.redb")).expect("a store"), 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_goes_on_takes_a_signal_in_and_a_supervisor_goes_on_with_one_that_rests() {
    let held = Arc::new(tokio::sync::Notify::new());
    let go = Arc::clone(&held);
    let hold = move |ctx: Context| {
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            Ok(Order::update().push_log(ctx.node()))
        }
    };
    let graph = order()
        .node("receive", receive)
        .node("hold", hold)
        .node("after", |ctx: Context| async move { Ok(Order::update().push_log(ctx.node())) })
        .edge(START, "receive")
        .edge(START, "hold")
        .edge("receive", "after")
        .edge("hold", END)
        .edge("after", END)
        .build()
        .expect("the graph is right");
    let told = Told::default();
    let runner = Runner::new(graph, MemoryStore::new());
    let supervisor = runner.supervise().notify(told.clone()).start().await.expect("it begins");
    let thread = runner.thread("t");
    let run = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Order::update()).await }
    });
    until("it waits", async || !thread.waits().await.expect("a list").is_empty()).await;
    assert_eq!(thread.signal(payment(1)).await.expect("it is taken"), Delivery::Delivered, "while the other branch runs");
    // The node has come to its second wait, in the same run.
    until("it waits", async || !thread.waits().await.expect("a list").is_empty()).await;
    held.notify_one();
    assert!(matches!(run.await.expect("no panic").expect("it runs"), Outcome::Outside(_)));
    assert_eq!(thread.signal(payment(2)).await.expect("it is taken"), Delivery::Delivered);
    until("it is done", async || is_done(&thread).await).await;
    let state = thread.state().await.expect("it is there");
    assert_eq!((&*state.values.paid, state.values.log.len()), (&[1, 2][..], 2));
    assert_eq!(told.of(NoticeKind::Failed), []);
    supervisor.drain(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_signal_that_came_early_reaches_a_run_that_is_stored_at_its_end() {
    let runner = || {
        order()
            .question("go", |_| ferrata::Approval::ask("Go?"))
            .node("receive", receive)
            .edge(START, "go")
            .approved("go", "receive")
            .rejected("go", END)
            .edge("receive", END)
            .build()
            .expect("the graph is right")
    };
    let dir = tempfile::tempdir().expect("a folder");
    let open = || Runner::new(runner(), RedbStore::open(dir.path().join("store.redb")).expect("a store"));
    let asked = open().thread("t").durability(Durability::Exit).run(Order::update()).await.expect("it runs");
    assert_eq!(open().thread("t").signal(payment(1)).await.expect("it is kept"), Delivery::Kept);
    let thread = open().thread("t").durability(Durability::Exit);
    let outcome = thread.answer(asked.questions()[0].id, ferrata::Approval::approve()).await.expect("it is taken");
    assert!(matches!(outcome, Outcome::Outside(_)), "one has come, and one has not");
    drop(thread);
    let thread = open().thread("t").durability(Durability::Exit);
    assert_eq!(thread.signal(payment(2)).await.expect("it is taken"), Delivery::Delivered);
    assert_eq!(thread.resume().await.expect("it goes on").done().expect("it is done").paid, [1, 2]);
    drop(thread);
    assert!(open().verify().await.expect("it is looked at").faults.is_empty());
}

#[tokio::test]
async fn waits_and_signals_survive_a_crash_at_every_moment() {
    let work = |state: View<Order>, ctx: Context| async move {
        ctx.sleep(Duration::from_secs(3_600)).await?;
        let paid = state.paid.len();
        ctx.effect("mail", |_| async move { Ok(paid) }).await?;
        let payment: Payment = ctx.signal("payment").await?;
        Ok(Order::update().push_paid(payment.cents))
    };
    let graph = move || {
        order()
            .wait("first", |_| Wait::signal("payment"))
            .answered("first", |_, payment: Payment| Order::update().push_paid(payment.cents))
            .node("work", work)
            .edge(START, "first")
            .edge("first", "work")
            .edge("work", END)
            .build()
            .expect("the graph is right")
    };
    let test = crash_everywhere(graph, Order::update()).signal("payment", serde_json::json!({"cents": 9}));
    let report = test.once("mail").await.unwrap_or_else(|faults| panic!("{faults}"));
    assert!(report.crashes.len() > 20, "{report}");
}
