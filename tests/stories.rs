//! What people were woken up for, and what becomes of it here: a mail that was sent twice, and a batch in which one file is broken.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::store::{RedbStore, ThreadStatus};
use ferrata::{Answer, Context, END, Graph, IntoNode, NodeError, Outcome, Retry, Runner, START, State, Thread, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Batch {
    remaining: Vec<String>,
    #[state(append)]
    done: Vec<String>,
    #[state(append)]
    failed: Vec<String>,
}

/// What was done outside, in order, and which files cannot be read.
#[derive(Clone, Default)]
struct World {
    acts: Arc<Mutex<Vec<String>>>,
    broken: Arc<Mutex<BTreeSet<String>>>,
}

impl World {
    fn act(&self, what: impl Into<String>) {
        self.acts.lock().expect("no panic").push(what.into());
    }

    /// What was done since this was asked the last time.
    fn acts(&self) -> Vec<String> {
        std::mem::take(&mut *self.acts.lock().expect("no panic"))
    }

    fn breaks(&self, file: &str) {
        self.broken.lock().expect("no panic").insert(file.to_owned());
    }

    fn mend(&self, file: &str) {
        self.broken.lock().expect("no panic").remove(file);
    }

    fn read(&self, file: &str) -> ferrata::Result<()> {
        self.act(file);
        let is_broken = self.broken.lock().expect("no panic").contains(file);
        if is_broken { Err(NodeError::new(format!("{file} cannot be parsed")).deterministic().not_performed()) } else { Ok(()) }
    }
}

fn files(numbers: std::ops::RangeInclusive<usize>) -> Vec<String> {
    numbers.map(|number| format!("file {number}")).collect()
}

fn thread(graph: Graph<Batch>, dir: &TempDir) -> Thread<Batch> {
    Runner::new(graph, RedbStore::open(dir.path().join("store.redb")).expect("a store")).thread("batch")
}

/// One file after the other. One that cannot be read ends the batch there, with lists of what is done, has failed and remains.
fn one_by_one(world: &World) -> Graph<Batch> {
    let world = world.clone();
    let read = move |batch: View<Batch>, ctx: Context| {
        let world = world.clone();
        async move {
            let file = batch.remaining.first().ok_or_else(|| NodeError::new("no file is left"))?.clone();
            ctx.effect("read", |_key| async { world.read(&file) }).arguments(&file).await?;
            Ok(Batch::update().remaining(batch.remaining[1..].to_vec()).push_done(file))
        }
    };
    let give_up = |batch: View<Batch>, ctx: Context| async move {
        assert!(ctx.failure().is_some_and(|failure| failure.message.contains("cannot be parsed")));
        Ok(Batch::update().remaining(batch.remaining[1..].to_vec()).push_failed(batch.remaining[0].clone()))
    };
    Graph::<Batch>::new("batch")
        .node("read", read.retry(Retry::transient(3)).on_error(give_up))
        .edge(START, "read")
        .route_to("read", ["read", END], |batch: &Batch| if batch.remaining.is_empty() { END } else { "read" })
        .build()
        .expect("the graph is right")
}

#[tokio::test]
async fn of_ten_files_one_is_broken_and_after_the_repair_only_what_remains_is_processed() {
    let (world, dir) = (World::default(), tempfile::tempdir().expect("a folder"));
    world.breaks("file 7");
    let batch = thread(one_by_one(&world), &dir);
    let state = batch.run(Batch::update().remaining(files(1..=10))).await.expect("it ends partly done").done().expect("it ends");
    assert_eq!(world.acts(), files(1..=7), "nothing is tried that cannot work, and nothing behind it");
    assert_eq!((&state.done, &state.failed, &state.remaining), (&files(1..=6), &files(7..=7), &files(8..=10)));

    // Another day, another process: the bad file is left out, and the batch goes on with the three that remain.
    drop(batch);
    let batch = thread(one_by_one(&world), &dir);
    let remaining = batch.state().await.expect("it is there").values.remaining.clone();
    let state = batch.run(Batch::update().remaining(remaining)).await.expect("it goes on").done().expect("it ends");
    assert_eq!(world.acts(), files(8..=10));
    assert_eq!((state.done.len(), &state.failed, state.remaining.len()), (9, &files(7..=7), 0));

    // And when the file has been mended, it alone.
    world.mend("file 7");
    let state = batch.run(Batch::update().remaining(files(7..=7))).await.expect("it goes on").done().expect("it ends");
    assert_eq!((world.acts(), state.done.len()), (files(7..=7), 10));
}

/// All files in one node, each an effect: the node fails, and what it has done is known.
fn in_one_node(world: &World) -> Graph<Batch> {
    let world = world.clone();
    let read_all = move |batch: View<Batch>, ctx: Context| {
        let world = world.clone();
        async move {
            for file in &batch.remaining {
                ctx.effect("read", |_key| async { world.read(file) }).arguments(file).await?;
            }
            Ok(Batch::update().done(batch.remaining.clone()).remaining(Vec::new()))
        }
    };
    Graph::<Batch>::new("batch").node("read", read_all).edge(START, "read").edge("read", END).build().expect("the graph is right")
}

#[tokio::test]
async fn within_one_node_nothing_that_was_done_is_done_again_either() {
    let (world, dir) = (World::default(), tempfile::tempdir().expect("a folder"));
    world.breaks("file 7");
    let batch = thread(in_one_node(&world), &dir);
    let error = batch.run(Batch::update().remaining(files(1..=10))).await.expect_err("it cannot be parsed");
    assert!(error.to_string().contains("file 7 cannot be parsed"), "{error}");
    assert_eq!(world.acts(), files(1..=7));
    let progress = batch.progress().await.expect("it is there");
    assert_eq!((progress.performed.len(), progress.failed.len(), progress.in_doubt.len()), (6, 1, 0));
    assert_eq!(batch.state().await.expect("it is there").status, ThreadStatus::Failed);

    world.mend("file 7");
    drop(batch);
    let state = thread(in_one_node(&world), &dir).resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(world.acts(), files(7..=10));
    assert_eq!((state.done.len(), state.remaining.len()), (10, 0));
}

/// All files at once, a task each: the others are done, and only the broken one remains.
fn at_once(world: &World) -> Graph<Batch> {
    let world = world.clone();
    let read = move |file: String| {
        let world = world.clone();
        async move {
            world.read(&file)?;
            Ok(Batch::update().push_done(file))
        }
    };
    let list = || async { Ok(Batch::update()) };
    Graph::<Batch>::new("batch")
        .node("list", list)
        .fan_out("list", "read", |batch: &Batch| batch.remaining.clone())
        .node("read", read.concurrency(2))
        .edge(START, "list")
        .edge("read", END)
        .build()
        .expect("the graph is right")
}

#[tokio::test]
async fn of_parallel_tasks_only_the_one_that_failed_runs_again() {
    let (world, dir) = (World::default(), tempfile::tempdir().expect("a folder"));
    world.breaks("file 7");
    let batch = thread(at_once(&world), &dir);
    batch.run(Batch::update().remaining(files(1..=10))).await.expect_err("one of them cannot be parsed");
    assert_eq!(world.acts().len(), 10);
    let progress = batch.progress().await.expect("it is there");
    assert_eq!((progress.done.len(), progress.failed.len(), progress.remaining.len()), (9, 1, 0));
    assert_eq!(progress.failed[0].0.send, Some(6));
    world.mend("file 7");
    drop(batch);
    let state = thread(at_once(&world), &dir).resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!((world.acts(), state.done.clone()), (files(7..=7), files(1..=10)));
}

/// "A step timed out after the mail had gone out; the retry sent it again."
#[tokio::test]
async fn a_mail_that_went_out_before_the_time_out_goes_out_once() {
    let (world, dir) = (World::default(), tempfile::tempdir().expect("a folder"));
    let graph = {
        let world = world.clone();
        let send = move |ctx: Context| {
            let world = world.clone();
            async move {
                let mail = |_key| async {
                    world.act("mail");
                    // The server has it, and its word does not come back.
                    std::future::pending::<ferrata::Result<String>>().await
                };
                Ok(Batch::update().push_done(ctx.effect("mail", mail).await?))
            }
        };
        let send = send.timeout(Duration::from_millis(50)).retry(Retry::any(5).delay_max(Duration::ZERO));
        Graph::<Batch>::new("mail").node("send", send).edge(START, "send").edge("send", END).build().expect("the graph is right")
    };
    let mail = thread(graph, &dir);
    let outcome = mail.run(Batch::update()).await.expect("it asks, and does not try again");
    let Outcome::Waiting(questions) = &outcome else { panic!("{outcome:?}") };
    assert!(questions[0].is_doubt() && questions[0].text.contains("ran out of time"), "{questions:?}");
    assert!(matches!(mail.resume().await.expect("it still asks"), Outcome::Waiting(_)));
    let answer = Answer::performed("it is in the outbox").by("dana");
    let state = mail.answer(questions[0].id, answer).await.expect("it fits").done().expect("it ends");
    assert_eq!((world.acts(), state.done.clone()), (vec!["mail".to_owned()], vec!["it is in the outbox".to_owned()]));
}
