//! `crash_everywhere`: graphs that keep to the rules pass at every moment, and what breaks them is found and named.
//!
//! How it could break: a moment that is left out, a crash after which the old process goes on, a doubt that is answered wrongly, a fault that nobody
//! can read, a test that never ends.

mod support {
    pub(crate) mod crash_graphs;
    pub(crate) mod crash_world;
}

use std::fmt::Debug;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::log::Record;
use ferrata::store::{Append, Appended, MemoryStore, Pending, RedbStore, Store, StoreError};
use ferrata::testing::{CrashFaults, CrashPoint, crash_everywhere, crash_everywhere_in};
use ferrata::{Answer, Approval, BuildError, Context, Durability, END, Graph, IntoNode, NodeError, Retry, START, View};
use ferrata_graphs::digest::{Digest, Settings};
use ferrata_nodes::{ChatModel, ChatReply, Extractive, Scripted};
use serde_json::json;
use support::crash_graphs::{all_kinds, asking, inner_parallel, line, one_node, refund};
use support::crash_world::{Outside, Work};

#[track_caller]
fn found<T: Debug>(result: Result<T, CrashFaults>, words: &[&str]) -> CrashFaults {
    let faults = result.expect_err("there is a fault in it");
    let text = faults.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
    faults
}

// ---- what passes ----

#[tokio::test]
async fn every_moment_of_a_line_is_visited() {
    let report = crash_everywhere_in(Outside::new, line, Work::update().n(1)).await.expect("it survives");
    // The input; start and result of "once", and of its node; the result of "often"; the result of its node, with which the run ends.
    assert_eq!((report.appends, report.effects), (6, 2), "{report}");
    let mut expected: Vec<CrashPoint> = Vec::new();
    expected.extend((1..=6).flat_map(|n| [CrashPoint::BeforeAppend(n), CrashPoint::AfterAppend(n)]));
    expected.extend((1..=2).flat_map(|n| [CrashPoint::BeforeEffect(n), CrashPoint::AfterEffect(n)]));
    assert_eq!(report.crashes, expected);
    assert_eq!((report.missed.len(), &*report.end), (0, "done"));
    // Between the start of "once" and its result: after append 2, before append 3, before effect 1, after effect 1.
    assert_eq!(report.doubts, 4);
    let text = report.to_string();
    assert_eq!(text, "6 appends and 2 effects: crashed 16 times, with 4 doubts, always the same end: done");
}

#[tokio::test]
async fn a_refund_is_paid_once_whatever_happens() {
    let report = crash_everywhere_in(Outside::new, refund, Work::update().n(42))
        .answer("approve", Approval::approve())
        .after_each(|outside, state| {
            assert_eq!(outside.performed("pay"), 1);
            assert_eq!(state.log, ["looked up 42", "paid 42"]);
        })
        .await
        .expect("it survives");
    eprintln!("refund: {report}");
    assert!(report.missed.is_empty() && report.doubts > 0, "{report}");
}

#[tokio::test]
async fn a_refund_that_is_refused_is_not_paid() {
    crash_everywhere_in(Outside::new, refund, Work::update().n(42))
        .answer_with("approve", |question| Approval::reject(format!("no {}", question.text)))
        .after_each(|outside, _| match outside.performed("pay") {
            0 => Ok(()),
            n => Err(format!("paid {n} times")),
        })
        .await
        .expect("it survives");
}

#[tokio::test]
async fn parallel_effects_in_a_subgraph_are_performed_once_each() {
    let report = crash_everywhere_in(Outside::new, inner_parallel, Work::update().n(3))
        .after_each(|outside, state| {
            assert_eq!((0..3).map(|n| outside.performed(&format!("mail {n}"))).collect::<Vec<_>>(), [1, 1, 1]);
            assert_eq!(state.log, ["sent 0", "sent 1", "sent 2", "the end"]);
        })
        .await
        .expect("it survives");
    eprintln!("in parallel: {report}");
    assert_eq!(report.effects, 3, "{report}");
}

#[tokio::test]
async fn a_node_that_asks_after_an_effect_does_not_repeat_it() {
    let test = || crash_everywhere_in(Outside::new, asking, Work::update().n(1));
    let report = test().answer("seats", Answer::new(4)).await.expect("it survives");
    assert_eq!((report.effects, &*report.end), (2, "done"), "{report}");

    // Without an answer the thread has come to its end there.
    let report = test().await.expect("it survives");
    assert_eq!((report.effects, &*report.end), (1, "waiting for \"seats\""), "{report}");
}

#[tokio::test]
async fn effects_within_effects_come_to_an_end_too() {
    let graph = |outside: &Outside| {
        let outside = outside.clone();
        one_node(move |ctx: Context| {
            let outside = outside.clone();
            async move {
                let inner = ctx.clone();
                let perform = |_| async move { inner.effect("inner", |_| async { Ok(outside.perform("inner")) }).await };
                Ok(Work::update().n(ctx.effect("outer", perform).await?))
            }
        })
    };
    let test = crash_everywhere_in(Outside::new, graph, Work::update());
    let report = test.after_each(|outside, _| assert_eq!(outside.performed("inner"), 1)).await.expect("it survives");
    assert_eq!(report.effects, 2, "{report}");
}

/// Does something when it is dropped.
struct LastWill(Outside, Context);

impl Drop for LastWill {
    fn drop(&mut self) {
        // The world hears of it, the log does not.
        self.0.perform("last will");
        drop(Box::pin(self.1.effect("last will", |_| async { Ok(()) }).into_future()));
    }
}

#[tokio::test]
async fn nothing_of_a_process_goes_on_after_its_crash() {
    let graph = |outside: &Outside| {
        let outside = outside.clone();
        one_node(move |ctx: Context| {
            let (outside, will) = (outside.clone(), LastWill(outside.clone(), ctx.clone()));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                outside.perform("ghost");
            });
            async move {
                ctx.effect("work", |_| async { Ok(()) }).await?;
                drop(will);
                Ok(Work::update().n(1))
            }
        })
    };
    let test = crash_everywhere_in(Outside::new, graph, Work::update());
    let test =
        test.after_each(|outside, _| assert_eq!((outside.performed("ghost"), outside.performed("last will") < 3), (0, true)));
    test.await.expect("it survives");
}

#[tokio::test]
async fn graphs_inside_of_every_kind_survive() {
    let mails = ["mail from continued", "mail from unstored", "mail from callable"];
    let report = crash_everywhere_in(Outside::new, all_kinds, Work::update())
        .after_each(move |outside, _| assert_eq!(mails.map(|mail| outside.performed(mail)), [2, 2, 2]))
        .await
        .expect("it survives");
    eprintln!("graphs inside: {report}");
    assert!(report.missed.is_empty(), "{report}");
}

#[tokio::test]
async fn any_store_can_be_in_it() {
    let (dir, count) = (tempfile::tempdir().expect("a folder"), AtomicU64::new(0));
    let path = dir.path().to_owned();
    let open = move || RedbStore::open(path.join(format!("{}.redb", count.fetch_add(1, Ordering::SeqCst)))).expect("a store");
    let test = crash_everywhere_in(Outside::new, refund, Work::update().n(42)).real_time();
    // The bank of that graph takes twenty seconds, so that it is not asked to pay.
    let report = test.answer("approve", Approval::reject("too slow")).store(open).await.expect("it survives");
    assert_eq!(report.end, "done");
}

#[tokio::test]
async fn it_holds_for_each_durability() {
    for durability in [Durability::Behind, Durability::Exit] {
        let test = crash_everywhere_in(Outside::new, refund, Work::update().n(42)).answer("approve", Approval::approve());
        let test = test.thread(move |thread| thread.durability(durability));
        test.after_each(|outside, _| assert_eq!(outside.performed("pay"), 1)).await.expect("it survives");
    }
}

fn digest_of(
    model: impl Fn() -> Arc<dyn ChatModel> + Send + Sync + 'static,
) -> (tempfile::TempDir, ferrata::testing::CrashTest<Digest>) {
    let dir = tempfile::tempdir().expect("a folder");
    let documents = ["The log keeps what changed. It is long.", "A node returns an update. It is short.", "A person decides."];
    let paths = documents.iter().enumerate().map(|(n, text)| {
        let path = dir.path().join(format!("{n}.md"));
        std::fs::write(&path, text).expect("a document");
        path.display().to_string()
    });
    let input = Digest::update().documents(paths.collect::<Vec<_>>());
    let out = dir.path().join("digest.md");
    let graph = move || ferrata_graphs::digest::graph(model(), Settings::new(&out));
    (dir, crash_everywhere(graph, input))
}

#[tokio::test]
async fn the_ready_made_digest_survives() {
    let (dir, test) = digest_of(|| Arc::new(Extractive::new()));
    let report = test.answer("approve", Approval::approve()).await.expect("it survives");
    eprintln!("digest: {report}");
    assert!(report.effects >= 4 && report.appends >= 8, "{report}");
    assert!(std::fs::read_to_string(dir.path().join("digest.md")).expect("it is published").contains("A person decides"));

    let scripted = || -> Arc<dyn ChatModel> { Arc::new(Scripted::answering(|_| Ok(ChatReply::new("in short")))) };
    let (_dir, test) = digest_of(scripted);
    test.answer("approve", Approval::approve()).await.expect("it survives");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_time_is_there_for_what_waits_for_others() {
    let graph = || {
        let node = |ctx: Context| async move {
            let wait = tokio::task::spawn_blocking(|| {
                std::sync::mpsc::channel::<()>().1.recv_timeout(Duration::from_millis(2)).is_err()
            });
            let waited: bool = ctx.effect("wait", |_| async { Ok(wait.await?) }).await?;
            Ok(Work::update().n(u64::from(waited)))
        };
        one_node(node.timeout(Duration::from_secs(30)))
    };
    crash_everywhere(graph, Work::update())
        .real_time()
        .after_each(|(), state| assert_eq!(state.n, 1))
        .await
        .expect("it survives");
}

// ---- what is found ----

#[tokio::test]
async fn a_mail_outside_of_an_effect_is_found() {
    let graph = |outside: &Outside| {
        let outside = outside.clone();
        one_node(move |ctx: Context| {
            let outside = outside.clone();
            async move {
                outside.perform("mail");
                ctx.effect("log", |_| async { Ok(()) }).await?;
                Ok(Work::update().n(1))
            }
        })
    };
    let result = crash_everywhere_in(Outside::new, graph, Work::update())
        .after_each(|outside, _| match outside.performed("mail") {
            1 => Ok(()),
            n => Err(format!("{n} mails were sent")),
        })
        .await;
    let faults = found(
        result,
        &["2 mails were sent", "after a crash before append 2 (start of \"log\")", ".only(CrashPoint::BeforeAppend(2))"],
    );
    // Whenever the node had begun and its result was not on record; not where it had none to repeat.
    let places: Vec<CrashPoint> = faults.faults()[0].at.iter().map(|(point, _)| *point).collect();
    assert!(places.contains(&CrashPoint::AfterAppend(2)) && !places.contains(&CrashPoint::BeforeAppend(1)), "{faults}");
}

#[tokio::test]
async fn a_repeatable_mail_that_must_be_sent_once_is_found() {
    let graph = |outside: &Outside| {
        let outside = outside.clone();
        one_node(move |ctx: Context| {
            let outside = outside.clone();
            async move {
                ctx.effect("mail", |_| async { Ok(outside.perform("mail")) }).repeatable().await?;
                Ok(Work::update().n(1))
            }
        })
    };
    let test = || crash_everywhere_in(Outside::new, graph, Work::update());
    test().await.expect("it survives");
    let result = test().once("mail").await;
    let faults = found(result, &["effect \"mail\" of task 0:only@1 was performed 2 times; it is declared repeatable"]);

    // What is said to play it alone does so.
    let (point, hit) = faults.faults()[0].at[0].clone();
    assert!(hit.contains("mail"), "{hit}");
    let alone = found(test().once("mail").only(point).await, &["performed 2 times"]);
    assert_eq!(alone.faults()[0].at, [(point, hit)]);
    test().once("mail").only(CrashPoint::BeforeAppend(1)).await.expect("it survives");
    let nowhere = test().only(CrashPoint::AfterEffect(2)).await;
    found(nowhere, &["the moment after effect 2 did not come: the run has 3 appends and 1 effect"]);
}

#[tokio::test]
async fn state_that_is_kept_outside_of_the_state_is_found() {
    // A process-wide total: gone with the process, or counted twice.
    let graph = || {
        let total = Arc::new(AtomicU64::new(0));
        let add = move |n: u64| {
            let total = Arc::clone(&total);
            move |s: View<Work>| {
                let total = total.fetch_add(n, Ordering::SeqCst) + n;
                async move { Ok(Work::update().n(total + s.n)) }
            }
        };
        Graph::<Work>::new("totals")
            .node("one", add(1))
            .node("two", add(2))
            .edge(START, "one")
            .edge("one", "two")
            .edge("two", END)
            .build()
    };
    found(crash_everywhere(graph, Work::update()).await, &["the state ended otherwise: `n` is 4 undisturbed, and 3 here"]);
}

#[tokio::test]
async fn keys_that_differ_from_life_to_life_are_found() {
    let lives = Arc::new(AtomicU64::new(0));
    let graph = move || {
        let life = lives.fetch_add(1, Ordering::SeqCst);
        one_node(move |ctx: Context| async move {
            for n in 0..2 {
                ctx.effect(&format!("mail {}", (n + life) % 3), |_| async { Ok(()) }).await?;
            }
            Ok(Work::update().n(1))
        })
    };
    let words = ["was performed, and never in the undisturbed run", "keys and their order may depend on"];
    found(crash_everywhere(graph, Work::update()).await, &words);
}

/// Says it has stored the results of effects, and stores something else in their place.
#[derive(Debug, Default)]
struct Liar {
    inner: MemoryStore,
    forgets: bool,
}

impl Store for Liar {
    ferrata::hand_on_store!(inner);

    fn append(&self, mut append: Append) -> Pending<'_, Appended> {
        for record in &mut append.records {
            let Record::EffectDone(done) = record else { continue };
            let effect = serde_json::to_value(&done.effect).expect("it is JSON");
            let failure = json!({"origin": "node", "class": "transient", "message": "a lie", "causes": []});
            let lie = if self.forgets {
                json!({"effect_started": {"effect": effect, "attempt": 1, "at": 1}})
            } else {
                json!({"effect_failed": {"effect": effect, "failure": failure}})
            };
            *record = serde_json::from_value(lie).expect("it is a record");
        }
        self.inner.append(append)
    }
}

#[tokio::test]
async fn an_engine_that_repeats_work_would_be_found() {
    let test = |forgets: bool| {
        crash_everywhere_in(Outside::new, line, Work::update().n(1)).store(move || Liar { inner: MemoryStore::new(), forgets })
    };
    let words =
        ["effect \"once\" of task 0:first@1 was performed 2 times", "was performed again, although its result was recorded"];
    found(test(false).await, &words);
    found(
        test(true).await,
        &["it is asked whether effect \"once\" of task 0:first@1 was performed, although its result was recorded"],
    );
}

/// Says it has stored what it keeps back until the next append, so that a crash loses it.
#[derive(Debug, Default)]
struct Lazy {
    inner: MemoryStore,
    kept_back: Mutex<Option<Append>>,
}

impl Lazy {
    async fn do_append(&self, append: Append) -> Result<Appended, StoreError> {
        let kept_back = self.kept_back.lock().expect("no panic").take();
        // Who appends at the same place has never heard of it: it is another process.
        if let Some(earlier) = kept_back.filter(|earlier| earlier.expected < append.expected) {
            self.inner.append(earlier).await?;
        }
        if append.records.iter().any(|record| matches!(record, Record::Stepped(_) | Record::Asked(_))) {
            return self.inner.append(append).await;
        }
        *self.kept_back.lock().expect("no panic") = Some(append);
        Ok(Appended { record_bytes: 1, snapshot_bytes: None })
    }
}

impl Store for Lazy {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(self.do_append(append))
    }
}

#[tokio::test]
async fn a_store_that_loses_the_last_append_would_be_found() {
    let result = crash_everywhere_in(Outside::new, inner_parallel, Work::update().n(3)).store(Lazy::default).await;
    let words = [
        "task 0:mails@1/send@2#2 began again, although its result was recorded",
        "asked whether effect \"mail\" of task 0:mails@1/send@2#2 was performed, although its result was recorded",
    ];
    found(result, &words);
}

// ---- what cannot be tested ----

#[tokio::test]
async fn an_answer_that_does_not_fit_says_so() {
    let test = || crash_everywhere_in(Outside::new, refund, Work::update().n(1));
    let words = ["does not fit question \"Refund 1?\"", "without any crash"];
    found(test().answer("approve", "perhaps").await, &words);
    let test = test().answer("approve", Approval::approve()).answer("aprove", Approval::approve());
    found(test.await, &["there is an answer for \"aprove\", which is not asked; asked were: \"approve\""]);
    let named = crash_everywhere_in(Outside::new, line, Work::update().n(1)).once("mial");
    found(named.await, &["`once` names \"mial\", which is no effect of the run; performed were: \"often\", \"once\""]);
}

#[tokio::test]
async fn a_graph_that_does_not_end_says_so() {
    let endless = || -> Result<Graph<Work>, BuildError> {
        let add = |s: View<Work>| async move { Ok(Work::update().n(s.n + 1)) };
        Graph::new("endless").node("add", add).edge(START, "add").route_to("add", ["add"], |_: &Work| "add").build()
    };
    found(crash_everywhere(endless, Work::update()).await, &["\"endless\"", "it came to no end", "step-limit"]);

    let waits = || one_node(|| async { std::future::pending::<ferrata::Result<support::crash_world::WorkUpdate>>().await });
    let result = crash_everywhere(waits, Work::update()).within(Duration::from_millis(50)).await;
    found(result, &["it came to no end within 50ms"]);

    let blocks = || {
        one_node(|| async {
            let (_sender, never) = std::sync::mpsc::channel::<()>();
            _ = never.recv_timeout(Duration::from_millis(200));
            Ok(Work::update())
        })
    };
    let result = crash_everywhere(blocks, Work::update()).within(Duration::from_millis(50)).await;
    found(result, &["it came to no end within 50ms"]);

    let asks = |outside: &Outside| {
        let asks = asking(outside)?;
        Graph::<Work>::new("again").node("ask", asks.shared()).edge(START, "ask").route_to("ask", ["ask"], |_| "ask").build()
    };
    let test = crash_everywhere_in(Outside::new, asks, Work::update()).answer("seats", Answer::new(1));
    found(test.thread(|thread| thread.steps_max(u64::MAX)).await, &["after 300 answers it still asks"]);
}

#[tokio::test]
async fn a_graph_that_fails_says_so_and_may() {
    let broken = || {
        let node = |ctx: Context| async move {
            ctx.effect("mail", |_| async { Ok(()) }).await?;
            Err::<support::crash_world::WorkUpdate, _>(NodeError::new("no paper").deterministic())
        };
        one_node(node.retry(Retry::transient(3)))
    };
    let words = ["the run failed (node-failed)", "no paper", "say so with `may_fail`"];
    found(crash_everywhere(broken, Work::update()).await, &words);
    let report = crash_everywhere(broken, Work::update()).may_fail().await.expect("it survives");
    assert_eq!(report.end, "failed: node-failed");
}

#[tokio::test]
async fn what_cannot_begin_says_so() {
    let refused = crash_everywhere_in(Outside::new, line, ferrata::state::Update::new().set("nothing", &1));
    found(refused.await, &["the run is refused, before anything is recorded", "nothing"]);

    let built = || Graph::<Work>::new("bad").node("lost", || async { Ok(Work::update()) }).build();
    found(crash_everywhere(built, Work::update()).await, &["cannot be built"]);

    let panics = || -> Graph<Work> { panic!("no such file") };
    found(crash_everywhere(panics, Work::update()).await, &["it panicked: no such file"]);
}

#[tokio::test]
async fn what_is_handed_in_is_there_in_each_life() {
    let graph = || one_node(|tools: ferrata::Dep<Outside>| async move { Ok(Work::update().n(tools.perform("look"))) });
    let test = crash_everywhere_in(Outside::new, move |_: &Outside| graph(), Work::update());
    let report = test.runner(|runner, outside| runner.provide(outside.clone())).may_fail().await;
    // The node counts what the process before it did: a world that is told of outside of effects.
    found(report, &["the state ended otherwise"]);
}
