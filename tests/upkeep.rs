//! What is done with threads as a whole: listed, deleted, expired.
//!
//! How it could break: a list that misses a thread, or shows it twice; a question that is answered after its thread is gone; an expiry that takes what
//! still waits.

mod support {
    pub(crate) mod desk;
}

use ferrata::clock::Timestamp;
use ferrata::store::{Order, ThreadQuery, ThreadStatus};
use ferrata::{Approval, Outcome};
use support::desk::{Case, Desk, asked, done, names};

#[tokio::test]
async fn threads_are_listed_by_what_they_do() {
    let desk = Desk::new();
    let runner = desk.open();
    for name in ["order-1", "order-2", "mail-1"] {
        assert_eq!(runner.thread(name).run(Case::update().topic("rope")).await.expect("it runs").questions().len(), 1);
    }
    let question = runner.thread("order-2").questions().await.expect("the questions")[0].id;
    done(runner.thread("order-2").answer(question, Approval::approve()).await);
    desk.fails("draft");
    runner.thread("order-3").run(Case::update()).await.expect_err("it fails");
    let stopped = runner.thread("order-4").pause_before(["draft"]).run(Case::update()).await.expect("it stops");
    assert!(matches!(stopped, Outcome::Suspended(_)));
    let at_work = desk.hold("draft");
    let held = tokio::spawn({
        let thread = runner.thread("order-5");
        async move { thread.run(Case::update()).await }
    });
    at_work.reached().await;
    let of = |status: ThreadStatus| ThreadQuery::new().status(status);
    let mail = runner.threads(ThreadQuery::new().prefix("mail")).await.expect("a list")[0].since;
    for (query, wanted) in [
        (ThreadQuery::new(), vec!["mail-1", "order-1", "order-2", "order-3", "order-4", "order-5"]),
        (of(ThreadStatus::Waiting), vec!["mail-1", "order-1"]),
        (of(ThreadStatus::Waiting).prefix("order"), vec!["order-1"]),
        (of(ThreadStatus::Done), vec!["order-2"]),
        (of(ThreadStatus::Failed), vec!["order-3"]),
        (of(ThreadStatus::Suspended).status(ThreadStatus::Running), vec!["order-4", "order-5"]),
        (ThreadQuery::new().order(Order::OldestFirst).limit(2), vec!["order-1", "mail-1"]),
        (ThreadQuery::new().order(Order::NewestFirst).limit(3), vec!["order-5", "order-4", "order-3"]),
        (ThreadQuery::new().unchanged_since(mail), vec!["order-1"]),
    ] {
        assert_eq!(names(&runner.threads(query.clone()).await.expect("a list")), wanted, "{query:?}");
    }
    at_work.let_go();
    assert_eq!(held.await.expect("it ends").expect("it runs").questions().len(), 1);
    let waiting = of(ThreadStatus::Waiting).limit(2);
    let page = runner.threads(waiting.clone()).await.expect("a page");
    assert_eq!(names(&page), ["mail-1", "order-1"]);
    assert_eq!(names(&runner.threads(waiting.after(&page[1])).await.expect("the next")), ["order-5"]);
}

#[tokio::test]
async fn a_thread_that_is_deleted_is_gone_with_its_questions() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    let at_work = desk.hold("pay");
    let answer = tokio::spawn({
        let thread = thread.clone();
        async move { thread.answer(question, Approval::approve()).await }
    });
    at_work.reached().await;
    assert!(thread.delete().await.expect_err("it is at work").is_busy());
    at_work.let_go();
    done(answer.await.expect("it ends"));
    assert!(thread.delete().await.expect("it is deleted"));
    drop((thread, runner));
    let runner = desk.open();
    let thread = runner.thread("t");
    assert!(thread.state().await.expect_err("it is gone").is_unknown_thread());
    assert!(thread.log().await.expect("nothing").is_empty());
    assert!(thread.answer(question, Approval::approve()).await.is_err());
    // One of the same name is another thread: it does everything anew, under keys of its own.
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    done(thread.answer(question, Approval::approve()).await);
    let keys = desk.performed();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert!((0..4).all(|n| (0..n).all(|earlier| keys[n].1 != keys[earlier].1)), "{keys:?}");
}

#[tokio::test]
async fn only_what_is_done_expires_unless_something_else_is_named() {
    let desk = Desk::new();
    let runner = desk.open();
    for number in 0..25 {
        let thread = format!("done {number:02}");
        let question = runner.thread(&thread).run(Case::update()).await.expect("it runs").questions()[0].id;
        done(runner.thread(&thread).answer(question, Approval::reject("no")).await);
    }
    asked(&runner, "waiting", Case::update()).await;
    let stopped = runner.thread("suspended").pause_before(["draft"]).run(Case::update()).await.expect("it stops");
    assert!(matches!(stopped, Outcome::Suspended(_)));
    desk.fails("draft");
    runner.thread("failed").run(Case::update()).await.expect_err("it fails");
    let at_work = desk.hold("draft");
    let run = tokio::spawn({
        let thread = runner.thread("at work");
        async move { thread.run(Case::update()).await }
    });
    at_work.reached().await;
    let infos = runner.threads(ThreadQuery::new().prefix("done")).await.expect("a list");
    let old = ThreadQuery::new().unchanged_since(infos[20].since).limit(3);
    let gone = runner.expire(old).await.expect("they expire");
    assert_eq!(
        gone.iter().map(ferrata::ThreadName::as_str).collect::<Vec<_>>(),
        names(&infos[..20]),
        "page after page, and no younger one"
    );
    let all = || ThreadQuery::new().unchanged_since(Timestamp(u64::MAX));
    let gone = runner.expire(all().prefix("done 2")).await.expect("they expire");
    assert_eq!(gone.len(), 5);
    assert_eq!(runner.expire(all()).await.expect("nothing is left"), []);
    let left = || async { names(&runner.threads(ThreadQuery::new()).await.expect("a list")).join(", ") };
    assert_eq!(left().await, "at work, failed, suspended, waiting");
    // A status that is named; what is at work stays whatever is named.
    let every = ThreadStatus::ALL.into_iter().filter(|status| *status != ThreadStatus::Waiting).fold(all(), ThreadQuery::status);
    assert_eq!(runner.expire(every).await.expect("they expire").len(), 2);
    assert_eq!(left().await, "at work, waiting");
    at_work.let_go();
    assert_eq!(run.await.expect("it ends").expect("it runs").questions().len(), 1);
    assert_eq!(left().await, "at work, waiting");
}

#[tokio::test]
async fn a_thread_whose_process_died_expires_only_if_it_is_named() {
    let desk = Desk::new();
    let runner = desk.open();
    let _stays = desk.hold("draft");
    // The store outlives the runtime, as a file outlives its process.
    let runtime = std::thread::spawn({
        let thread = runner.thread("t");
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let run = thread.run(Case::update());
                tokio::select! {
                    _ = run => panic!("it is held"),
                    () = _stays.reached() => {}
                }
            });
            runtime.shutdown_background();
        }
    });
    runtime.join().expect("it ends");
    drop(runner);
    let runner = desk.open();
    let all = || ThreadQuery::new().unchanged_since(Timestamp(u64::MAX));
    assert_eq!(runner.threads(ThreadQuery::new()).await.expect("a list")[0].status, ThreadStatus::Running);
    assert_eq!(runner.expire(all()).await.expect("nothing is done"), []);
    assert_eq!(runner.expire(all().status(ThreadStatus::Running)).await.expect("it expires")[0].as_str(), "t");
}
