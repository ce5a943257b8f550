//! What somebody has to be told is kept until it got through.
//!
//! How it could break: a notice that does not get through and holds up all others; one notifier that gets what is another one's; somebody who asked to be left alone
//! and is not; a notifier that panics, and is never asked again; a store that fails for a moment, and a notice that is lost by it; an end that loses the last notice, or holds the file.

mod support {
    #[allow(dead_code, reason = "its `now` is used")]
    pub(crate) mod tokio_clock;
}

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata::store::{Append, Appended, AtWork, MemoryStore, Pending, RedbStore, Store, StoreError};
use ferrata::{
    Approval, END, Graph, NodeError, Notice, NoticeKind, Notifier, NotifyError, Notifying, Outcome, Runner, START, State,
    Supervisor, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::tokio_clock::tokio_now;
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Case {
    text: String,
}

fn asks() -> Graph<Case> {
    Graph::<Case>::new("case")
        .question("approve", |_: &Case| Approval::ask("Go?"))
        .approved("approve", END)
        .rejected("approve", END)
        .edge(START, "approve")
        .build()
        .expect("the graph is right")
}

fn fails() -> Graph<Case> {
    let node = |_: View<Case>| async { Err::<CaseUpdate, _>(NodeError::new("no paper").deterministic()) };
    Graph::<Case>::new("case").node("print", node).edge(START, "print").edge("print", END).build().expect("the graph is right")
}

async fn ask(runner: &Runner<Case>, names: impl IntoIterator<Item = String>) {
    for name in names {
        let outcome = runner.thread(&name).run(Case::update().text("x")).await.expect("it asks");
        assert!(matches!(outcome, Outcome::Waiting(_)));
    }
}

type Answers = dyn Fn(&Notice, usize) -> Result<(), NotifyError> + Send + Sync;

/// Somebody who is told, and says what comes of it: by the notice, and by how often it came before.
#[derive(Clone)]
struct Post {
    name: &'static str,
    answers: Arc<Answers>,
    told: Arc<watch::Sender<Vec<(String, Instant)>>>,
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Post {
    fn new(name: &'static str, answers: impl Fn(&Notice, usize) -> Result<(), NotifyError> + Send + Sync + 'static) -> Self {
        Self { name, answers: Arc::new(answers), told: Arc::new(watch::Sender::new(Vec::new())) }
    }

    /// Of which threads, how often.
    fn times(&self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        self.told.borrow().iter().for_each(|(thread, _)| *times.entry(thread.clone()).or_default() += 1);
        times
    }

    fn at(&self, number: usize) -> Instant {
        self.told.borrow()[number].1
    }

    async fn was_told(&self, times: usize) {
        self.told.subscribe().wait_for(|told| told.len() >= times).await.expect("it is here");
    }

    async fn was_told_of(&self, threads: usize) {
        while self.times().len() < threads {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Notifier for Post {
    fn name(&self) -> &str {
        self.name
    }

    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
        let thread = notice.thread.as_ref().map(ToString::to_string).unwrap_or_default();
        let before = self.told.borrow().iter().filter(|(told, _)| *told == thread).count();
        self.told.send_modify(|told| told.push((thread, tokio_now())));
        Box::pin(async move { (self.answers)(notice, before) })
    }
}

async fn supervised(runner: &Runner<Case>, posts: &[&Post]) -> Supervisor {
    let notifiers = posts.iter().fold(runner.supervise(), |all, post| all.notify((*post).clone()));
    notifiers.start().await.expect("it begins")
}

fn later(what: &str) -> Result<(), NotifyError> {
    Err(NotifyError::later(what))
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_always_fails_holds_up_no_other_one() {
    let post = Post::new("post", |notice, _| match notice.thread.as_ref().is_some_and(|thread| thread.as_str() == "bad") {
        true => later("no room for this one"),
        false => Ok(()),
    });
    let runner = Runner::new(asks(), MemoryStore::new());
    let supervisor = supervised(&runner, &[&post]).await;
    ask(&runner, ["bad".to_owned()]).await;
    post.was_told(9).await;
    let (before, begun) = (post.times()["bad"], tokio_now());
    ask(&runner, (0..200).map(|number| format!("case-{number}"))).await;
    post.was_told_of(201).await;
    assert!(tokio_now() - begun < Duration::from_secs(30), "{:?}", tokio_now() - begun);
    // Only that one comes again.
    post.was_told(before + 204).await;
    assert!(post.times().iter().all(|(thread, times)| *times == 1 || thread == "bad"), "{:?}", post.times());
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn who_is_down_is_not_asked_more_often_by_many_notices() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let post = Post::new("post", move |_, _| if up.load(Ordering::SeqCst) { Ok(()) } else { later("down") });
    let runner = Runner::new(asks(), MemoryStore::new());
    let supervisor = supervised(&runner, &[&post]).await;
    ask(&runner, (0..200).map(|number| format!("case-{number}"))).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let tried = post.told.borrow().len();
    assert!((10..40).contains(&tried), "{tried}");
    is_up.store(true, Ordering::SeqCst);
    let begun = tokio_now();
    post.was_told_of(200).await;
    assert!(tokio_now() - begun < Duration::from_secs(600), "{:?}", tokio_now() - begun);
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn who_wants_to_be_left_alone_is_left_alone() {
    let post = Post::new("post", |_, before| match before {
        0 => Err(NotifyError::later("busy").after(Duration::from_secs(3_600))),
        _ => Ok(()),
    });
    let runner = Runner::new(asks(), MemoryStore::new());
    let supervisor = supervised(&runner, &[&post]).await;
    ask(&runner, ["t".to_owned()]).await;
    post.was_told(1).await;
    ask(&runner, ["u".to_owned()]).await;
    post.was_told(2).await;
    let wait = post.at(1) - post.at(0);
    assert!(wait >= Duration::from_secs(3_600) && wait < Duration::from_secs(4_000), "{wait:?}");
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn names_that_begin_alike_are_two_names() {
    let (one, other) = (Post::new("host/a", |_, _| Ok(())), Post::new("host/a/b", |_, _| later("down")));
    let runner = Runner::new(asks(), MemoryStore::new());
    let supervisor = supervised(&runner, &[&one, &other]).await;
    ask(&runner, (0..5).map(|number| format!("case-{number}"))).await;
    one.was_told(5).await;
    other.was_told(9).await;
    assert!(one.times().len() == 5 && one.times().values().all(|times| *times == 1), "{:?}", one.times());
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn a_notifier_that_panics_is_asked_again() {
    let post = Post::new("post", |_, before| if before == 0 { panic!("no ink") } else { Ok(()) });
    let runner = Runner::new(asks(), MemoryStore::new());
    let supervisor = supervised(&runner, &[&post]).await;
    ask(&runner, ["t".to_owned()]).await;
    tokio::time::timeout(Duration::from_secs(60), post.was_told(2)).await.expect("it is tried again");
    drop(supervisor);
}

/// A store that takes its time to keep a note, and whose first read of one fails.
#[derive(Debug, Default)]
struct Slow {
    inner: Arc<MemoryStore>,
    has_failed: AtomicBool,
}

impl Store for Slow {
    ferrata::hand_on_store!(inner; load, threads, questions, alarms, notes, delete, restore, prune, resource, keep_resource);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.inner.append(append)
    }

    fn at_work(&self) -> Option<&AtWork> {
        self.inner.at_work()
    }

    fn note<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        if !self.has_failed.swap(true, Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        }
        self.inner.note(key)
    }

    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.inner.keep_note(key, note).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_moment_loses_no_notice() {
    let post = Post::new("post", |_, _| Ok(()));
    let runner = Runner::new(asks(), Slow::default());
    let supervisor = supervised(&runner, &[&post]).await;
    ask(&runner, ["t".to_owned()]).await;
    tokio::time::timeout(Duration::from_secs(600), post.was_told(1)).await.expect("it is read again");
    drop(supervisor);
}

#[tokio::test(start_paused = true)]
async fn what_the_last_runs_have_to_tell_is_kept_by_a_drain() {
    let post = Post::new("post", |_, _| later("down"));
    let store = Arc::new(MemoryStore::new());
    let runner = Runner::new(fails(), Slow { inner: Arc::clone(&store), has_failed: AtomicBool::new(true) });
    let supervisor = supervised(&runner, &[&post]).await;
    for number in 0..10 {
        runner.thread(&format!("case-{number}")).run(Case::update().text("x")).await.expect_err("it fails");
    }
    supervisor.drain(Duration::from_secs(1)).await;
    let keys = store.notes("notice/", None, 100).await.expect("they are there");
    assert_eq!(keys.len(), 10);
    for key in keys {
        let bytes = store.note(&key).await.expect("it is there").expect("it is there");
        assert_eq!(serde_json::from_slice::<Notice>(&bytes).expect("it is one").kind, NoticeKind::Failed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_go_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("threads.redb");
    for round in 0..3 {
        let post = Post::new("post", |_, _| Ok(()));
        let runner = Runner::new(asks(), RedbStore::open(&file).expect("nobody has it"));
        let supervisor = supervised(&runner, &[&post]).await;
        ask(&runner, [format!("case-{round}")]).await;
        post.was_told(1).await;
        supervisor.drain(Duration::from_secs(1)).await;
    }
}
