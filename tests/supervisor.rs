//! What has to happen without a caller happens: somebody is reminded, deadlines ring, what waits for a time goes on, over restarts and clocks that jump.
//!
//! How it could break: a reminder that comes twice, or never, because the process died in between; a deadline that only rings when somebody looks; a clock that is set back, so that
//! nothing rings any more or everything rings again; two supervisors that fight; a thread that is gone on with although nobody wants that.

mod support {
    pub(crate) mod notes;
    pub(crate) mod tokio_clock;
}

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata::clock::{Clock, Timestamp};
use ferrata::store::{InboxQuery, MemoryStore, Store, ThreadStatus};
use ferrata::{
    Approval, Context, END, Graph, IntoNode, Node, NoticeKind, OnExpiry, Outcome, Question, QuestionTerms, Runner, START, State,
    Supervisor, View, Wait,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::notes::Told;
use support::tokio_clock::TokioClock;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Case {
    ready: bool,
    #[state(append)]
    log: Vec<String>,
}

async fn note(ctx: Context) -> ferrata::Result<CaseUpdate> {
    Ok(Case::update().push_log(ctx.node()))
}

/// Asks, with what the approval says of its own times.
fn asks(approval: impl Fn() -> Approval + Send + Sync + 'static) -> Graph<Case> {
    Graph::<Case>::new("case")
        .question("approve", move |_| approval())
        .node("late", note)
        .node("yes", note)
        .edge(START, "approve")
        .approved("approve", "yes")
        .rejected("approve", END)
        .expired("approve", "late")
        .edge("yes", END)
        .edge("late", END)
        .build()
        .expect("the graph is right")
}

fn plain() -> Graph<Case> {
    Graph::<Case>::new("case")
        .question("approve", |_| Approval::ask("Go?"))
        .node("yes", note)
        .edge(START, "approve")
        .approved("approve", "yes")
        .rejected("approve", END)
        .edge("yes", END)
        .build()
        .expect("the graph is right")
}

/// Works for so long, without a sign of life.
fn works(time: Duration) -> Node<Case> {
    let work = move |ctx: Context| async move {
        tokio::time::sleep(time).await;
        note(ctx).await
    };
    work.patience(None)
}

/// A process that has a runner and a supervisor.
struct Process {
    runner: Runner<Case>,
    supervisor: Supervisor,
    told: Told,
}

impl Process {
    async fn over(store: impl Store, clock: &TokioClock, graph: Graph<Case>) -> Self {
        let (runner, told) = (Runner::with_clock(graph, store, clock.clone()), Told::default());
        let supervisor = runner.supervise().notify(told.clone()).start().await.expect("it begins");
        Self { runner, supervisor, told }
    }

    /// Runs a thread until it waits.
    async fn ask(&self, thread: &str) -> Arc<Question> {
        ask(&self.runner, thread).await
    }

    async fn status(&self, thread: &str) -> ThreadStatus {
        self.runner.thread(thread).state().await.expect("it is there").status
    }
}

async fn ask(runner: &Runner<Case>, thread: &str) -> Arc<Question> {
    let outcome = runner.thread(thread).run(Case::update()).await.expect("it runs");
    match outcome {
        Outcome::Waiting(open) | Outcome::Outside(open) => Arc::clone(&open[0]),
        other => panic!("it waits, and is not {other:?}"),
    }
}

/// Lets time pass, with everything that happens meanwhile.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_without_times_is_told_reminded_of_after_6_hours_and_suspends_its_thread_after_24() {
    let clock = TokioClock::new();
    let process = Process::over(MemoryStore::new(), &clock, plain()).await;
    let question = process.ask("t").await;
    assert_eq!(question.reminders, [clock.now().plus(6 * HOUR)]);
    assert_eq!(question.deadline, Some(clock.now().plus(24 * HOUR)));
    pass(MINUTE).await;
    assert_eq!(process.told.kinds(), [NoticeKind::Asked]);
    pass(6 * HOUR - 2 * MINUTE).await;
    assert_eq!(process.told.kinds().len(), 1);
    pass(2 * MINUTE).await;
    assert_eq!(process.told.kinds(), [NoticeKind::Asked, NoticeKind::Reminded]);
    assert_eq!(process.status("t").await, ThreadStatus::Waiting);
    pass(17 * HOUR).await;
    assert_eq!(process.told.kinds().len(), 2);
    pass(HOUR + MINUTE).await;
    assert_eq!(process.status("t").await, ThreadStatus::Suspended);
    let kinds = process.told.kinds();
    assert_eq!(kinds, [NoticeKind::Asked, NoticeKind::Reminded, NoticeKind::Expired, NoticeKind::Suspended]);
    let ids: std::collections::HashSet<_> = process.told.all().iter().map(|notice| notice.id).collect();
    assert_eq!(ids.len(), 4, "each has an id of its own");
    // Resumed, it is asked anew, on the same terms.
    let again = process.runner.thread("t").resume().await.expect("it goes on");
    assert_ne!(again.questions()[0].id, question.id);
    pass(MINUTE).await;
    assert_eq!(process.told.kinds().len(), 5);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn each_reminder_comes_once_however_often_the_process_is_restarted() {
    let (clock, store) = (TokioClock::new(), Arc::new(MemoryStore::new()));
    let mut told = Vec::new();
    for hour in 0..30_u32 {
        let process = Process::over(Arc::clone(&store), &clock, plain()).await;
        if hour == 0 {
            process.ask("t").await;
        }
        pass(50 * MINUTE).await;
        told.extend(process.told.kinds());
        let Process { runner, supervisor, .. } = process;
        // Every other one without a word.
        if hour % 2 == 0 {
            supervisor.drain(MINUTE).await;
        } else {
            drop(supervisor);
        }
        drop(runner);
        // Nobody is there for a while.
        pass(10 * MINUTE).await;
    }
    assert_eq!(told, [NoticeKind::Asked, NoticeKind::Reminded, NoticeKind::Expired, NoticeKind::Suspended]);
}

#[tokio::test(start_paused = true)]
async fn what_the_question_says_goes_before_the_terms_and_what_rang_while_nobody_was_there_rings_once() {
    let clock = TokioClock::new();
    let graph =
        || asks(|| Approval::ask("Go?").remind_after(HOUR).remind_after(2 * HOUR).remind_after(3 * HOUR).deadline(10 * HOUR));
    let store = Arc::new(MemoryStore::new());
    let process = Process::over(Arc::clone(&store), &clock, graph()).await;
    process.ask("t").await;
    process.told.until(1).await;
    process.supervisor.drain(MINUTE).await;
    pass(5 * HOUR).await;
    let process = Process::over(Arc::clone(&store), &clock, graph()).await;
    process.told.until(1).await;
    pass(HOUR).await;
    assert_eq!(process.told.kinds(), [NoticeKind::Reminded], "three reminders are one");
    pass(5 * HOUR).await;
    // Its `expired` edge was taken, without anybody doing anything.
    assert_eq!(process.told.kinds(), [NoticeKind::Reminded, NoticeKind::Expired]);
    assert_eq!(process.status("t").await, ThreadStatus::Done);
    assert_eq!(process.runner.thread("t").state().await.expect("it is there").values.log, ["late"]);
    assert!(process.runner.inbox(InboxQuery::new()).await.expect("a list").items.is_empty());
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_silences_the_rest_and_terms_can_be_others() {
    let clock = TokioClock::new();
    let (runner, told) = (Runner::with_clock(plain(), MemoryStore::new(), clock.clone()), Told::default());
    let terms = QuestionTerms::none().remind_after(HOUR);
    let supervisor = runner.supervise().notify(told.clone()).questions(terms).start().await.expect("it begins");
    for thread in ["a", "b"] {
        ask(&runner, thread).await;
    }
    told.until(2).await;
    let done = runner.thread("a").reply(Approval::approve()).await.expect("it is answered");
    assert!(done.done().is_some());
    pass(48 * HOUR).await;
    assert_eq!(told.kinds(), [NoticeKind::Asked, NoticeKind::Asked, NoticeKind::Reminded]);
    assert_eq!(told.all()[2].thread.as_ref().map(|thread| thread.as_str()), Some("b"));
    assert_eq!(runner.thread("b").state().await.expect("it is there").status, ThreadStatus::Waiting, "for ever");
    supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_puts_off_and_repeats_nothing_and_one_that_is_set_forward_is_believed() {
    let clock = TokioClock::new();
    clock.ahead_ms.store(10 * 3_600_000, Ordering::SeqCst);
    let graph = asks(|| Approval::ask("Go?").remind_after(HOUR).deadline(24 * HOUR));
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    process.ask("t").await;
    pass(HOUR + MINUTE).await;
    assert_eq!(process.told.kinds(), [NoticeKind::Asked, NoticeKind::Reminded]);
    clock.ahead_ms.store(9 * 3_600_000, Ordering::SeqCst);
    pass(3 * HOUR).await;
    assert_eq!(process.told.kinds().len(), 2, "nothing is told twice");
    // A year forward, while all sleep until tomorrow.
    clock.ahead_ms.store(365 * 24 * 3_600_000, Ordering::SeqCst);
    pass(MINUTE).await;
    assert_eq!(process.told.kinds()[2..], [NoticeKind::Expired]);
    assert_eq!(process.status("t").await, ThreadStatus::Done);
    // And back: what has expired stays so, and the next question has its times by the clock there is.
    clock.ahead_ms.store(10 * 3_600_000, Ordering::SeqCst);
    process.ask("u").await;
    pass(HOUR + MINUTE).await;
    assert_eq!(process.told.kinds()[3..], [NoticeKind::Asked, NoticeKind::Reminded]);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_rings_in_a_run_that_goes_on_elsewhere_in_the_graph() {
    let clock = TokioClock::new();
    let graph = Graph::<Case>::new("case")
        .question("approve", |_| Approval::ask("Go?").deadline(HOUR).on_expiry(Approval::reject("nobody answered")))
        .node("work", works(5 * HOUR))
        .node("refused", note)
        .edge(START, "approve")
        .edge(START, "work")
        .approved("approve", END)
        .rejected("approve", "refused")
        .edge("work", END)
        .edge("refused", END)
        .build()
        .expect("the graph is right");
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    let thread = process.runner.thread("t");
    let run = tokio::spawn(async move { thread.run(Case::update()).await });
    pass(2 * HOUR).await;
    assert!(process.runner.inbox(InboxQuery::new()).await.expect("a list").items.is_empty(), "it has expired after an hour");
    let done = run.await.expect("no panic").expect("it runs").done().expect("it is done");
    assert_eq!(done.log, ["work", "refused"]);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_time_goes_on_then_and_nothing_of_it_is_for_people() {
    let clock = TokioClock::new();
    let until = clock.now().plus(30 * HOUR);
    let sleep = move |ctx: Context| async move {
        ctx.sleep(10 * HOUR).await?;
        ctx.sleep_until(until).await?;
        ctx.sleep_until(Timestamp(0)).await?;
        note(ctx).await
    };
    let graph = Graph::<Case>::new("case")
        .wait("night", |_| Wait::time(8 * HOUR))
        .wait("past", |_| Wait::until(Timestamp(0)))
        .node("sleep", sleep)
        .edge(START, "night")
        .edge("night", "past")
        .edge("past", "sleep")
        .edge("sleep", END)
        .build()
        .expect("the graph is right");
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    let thread = process.runner.thread("t");
    let Outcome::Outside(waits) = thread.run(Case::update()).await.expect("it runs") else { panic!("it waits") };
    assert!(waits[0].is_outside() && waits[0].text.contains("Waits for a time"));
    let state = thread.state().await.expect("it is there");
    assert_eq!((state.status, state.questions.len(), state.waits.len()), (ThreadStatus::Outside, 0, 1));
    assert!(process.runner.inbox(InboxQuery::new()).await.expect("a list").items.is_empty());
    let refused = thread.answer(waits[0].id, true).await.expect_err("nobody is asked");
    assert_eq!(refused.code(), "not-a-question");
    pass(8 * HOUR + MINUTE).await;
    assert_eq!(thread.waits().await.expect("a list").len(), 1, "it sleeps in the node");
    pass(21 * HOUR).await;
    assert_eq!(process.status("t").await, ThreadStatus::Outside);
    pass(HOUR).await;
    assert_eq!(process.status("t").await, ThreadStatus::Done);
    assert!(process.told.all().is_empty(), "{:?}", process.told.kinds());
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_until_its_condition_holds_and_others_go_first() {
    let clock = TokioClock::new();
    let graph = Graph::<Case>::new("case")
        .node("ship", note.when("it is ready", |case: &Case| case.ready))
        .node("pack", note)
        .node("load", note)
        .node("make", |ctx: Context| async move { Ok(note(ctx).await?.ready(true)) })
        .edge(START, "ship")
        .edge(START, "pack")
        .edge("pack", "load")
        .route_to("load", ["make", END], |case: &Case| if case.log.len() < 3 { END } else { "make" })
        .edge("make", END)
        .edge("ship", END)
        .build()
        .expect("the graph is right");
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    let thread = process.runner.thread("t");
    // Nothing makes it ready: it is held back behind the others, and then the thread waits.
    let Outcome::Outside(waits) = thread.run(Case::update()).await.expect("it runs") else { panic!("it waits") };
    assert!(waits[0].text.contains("it is ready"), "{}", waits[0].text);
    assert_eq!(thread.state().await.expect("it is there").values.log, ["pack", "load"]);
    pass(48 * HOUR).await;
    assert_eq!(process.status("t").await, ThreadStatus::Outside, "no time makes it ready");
    thread.update(Case::update().ready(true), Some(START)).await.expect("it is edited");
    pass(MINUTE).await;
    // The supervisor goes on with it.
    let state = thread.state().await.expect("it is there");
    assert_eq!(
        (state.status, &*state.values.log),
        (ThreadStatus::Done, &["pack", "load", "ship", "pack", "load", "make"].map(String::from)[..])
    );
    // Another step makes it ready.
    let done =
        process.runner.thread("u").run(Case::update().push_log("before")).await.expect("it runs").done().expect("it is done");
    assert_eq!(done.log, ["before", "pack", "load", "make", "ship"]);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_failed_or_was_stopped_is_not_gone_on_with_by_a_deadline() {
    let clock = TokioClock::new();
    let fail = |state: View<Case>| async move {
        if state.ready { Ok(Case::update().push_log("mended")) } else { Err(ferrata::NodeError::new("it is broken")) }
    };
    let graph = Graph::<Case>::new("case")
        .question("approve", |_| Approval::ask("Go?").deadline(HOUR).on_expiry(Approval::reject("nobody answered")))
        .node("fail", fail)
        .edge(START, "approve")
        .edge(START, "fail")
        .approved("approve", END)
        .rejected("approve", END)
        .edge("fail", END)
        .build()
        .expect("the graph is right");
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    let thread = process.runner.thread("t");
    assert_eq!(thread.run(Case::update()).await.expect_err("it fails").code(), "node-failed");
    let begun = |log: &[ferrata::log::Entry]| {
        log.iter().filter(|entry| matches!(entry.record, ferrata::log::Record::RunStarted(_))).count()
    };
    pass(5 * HOUR).await;
    assert_eq!(process.status("t").await, ThreadStatus::Failed);
    assert_eq!(begun(&thread.log().await.expect("the log")), 1, "nobody wanted it to go on");
    assert!(thread.questions().await.expect("a list").is_empty(), "what it asked is over");
    assert_eq!(process.told.of(NoticeKind::Expired).len(), 1, "{:?}", process.told.kinds());
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_expires_while_the_run_goes_on_suspends_it_and_somebody_is_told() {
    let clock = TokioClock::new();
    let graph = Graph::<Case>::new("case")
        .question("approve", |_| Approval::ask("Go?"))
        .node("work", works(50 * HOUR))
        .edge(START, "approve")
        .edge(START, "work")
        .approved("approve", END)
        .rejected("approve", END)
        .edge("work", END)
        .build()
        .expect("the graph is right");
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    let thread = process.runner.thread("t");
    let outcome = thread.run(Case::update()).await.expect("it runs");
    assert!(matches!(outcome, Outcome::Suspended(ferrata::Suspension::Expired)), "{outcome:?}");
    pass(MINUTE).await;
    assert_eq!(process.told.kinds(), [NoticeKind::Asked, NoticeKind::Reminded, NoticeKind::Expired, NoticeKind::Suspended]);
    assert_eq!(process.status("t").await, ThreadStatus::Suspended);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_thread_that_is_edited_goes_on() {
    let clock = TokioClock::new();
    let graph = Graph::<Case>::new("case")
        .wait("night", |_| Wait::time(80 * HOUR))
        .node("day", note)
        .edge(START, "night")
        .edge("night", "day")
        .edge("day", END)
        .build()
        .expect("the graph is right");
    let process = Process::over(MemoryStore::new(), &clock, graph).await;
    process.ask("t").await;
    process.runner.thread("t").update(Case::update().ready(true), Some("night")).await.expect("it is edited");
    pass(MINUTE).await;
    assert_eq!(process.status("t").await, ThreadStatus::Done);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_has_one_supervisor_which_may_look_after_several_graphs() {
    let clock = TokioClock::new();
    let store = Arc::new(MemoryStore::new());
    let one = Runner::with_clock(plain(), Arc::clone(&store), clock.clone());
    let nap = |ctx: Context| async move {
        ctx.sleep(HOUR).await?;
        note(ctx).await
    };
    let nap = Graph::<Case>::new("nap").node("nap", nap).edge(START, "nap").edge("nap", END).build().expect("the graph is right");
    let other = Runner::with_clock(nap, Arc::clone(&store), clock.clone());
    let supervisor = one.supervise().start().await.expect("it begins");
    for runner in [&one, &other] {
        let refused = runner.supervise().start().await.expect_err("there is one");
        assert_eq!(refused.code(), "supervised");
    }
    drop(supervisor);
    let told = Told::default();
    let supervisor = one.supervise().also(&other).notify(told.clone()).start().await.expect("the other one is gone");
    for n in 0..10 {
        ask(&other, &format!("nap-{n}")).await;
    }
    pass(HOUR + MINUTE).await;
    for n in 0..10 {
        assert_eq!(other.thread(&format!("nap-{n}")).state().await.expect("it is there").status, ThreadStatus::Done);
    }
    assert!(told.all().is_empty());
    supervisor.drain(MINUTE).await;
    // A graph that nobody looks after is told of, once, and holds up nobody.
    let other = Runner::with_clock(other.graph().clone(), Arc::clone(&store), clock.clone());
    let one = Runner::with_clock(
        asks(|| Approval::ask("Go?").deadline(2 * HOUR).on_expiry(OnExpiry::GoOn)),
        Arc::clone(&store),
        clock.clone(),
    );
    let supervisor = one.supervise().notify(told.clone()).start().await.expect("it begins");
    ask(&other, "orphan").await;
    ask(&one, "asks").await;
    pass(3 * HOUR).await;
    assert_eq!(told.kinds(), [NoticeKind::Asked, NoticeKind::GivenUp, NoticeKind::Expired]);
    assert!(told.all()[1].text.contains("belongs to graph \"nap\""), "{}", told.all()[1].text);
    assert_eq!(one.thread("asks").state().await.expect("it is there").status, ThreadStatus::Done);
    let foreign = Runner::with_clock(plain(), MemoryStore::new(), clock.clone());
    drop(supervisor);
    assert_eq!(one.supervise().also(&foreign).start().await.expect_err("two stores").code(), "other-store");
    assert_eq!(Runner::without_store(plain()).supervise().start().await.expect_err("no store").code(), "no-store");
    let twice = one.supervise().notify(Told::default()).notify(Told::default());
    assert_eq!(twice.start().await.expect_err("two of one name").code(), "notifier");
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_steps_end_and_the_next_supervisor_goes_on_by_itself() {
    let (clock, store) = (TokioClock::new(), Arc::new(MemoryStore::new()));
    let step = |state: View<Case>, ctx: Context| async move {
        tokio::time::sleep(MINUTE).await;
        Ok(Case::update().push_log(format!("{} {}", ctx.node(), state.log.len())))
    };
    let graph = || {
        Graph::<Case>::new("case")
            .node("step", step)
            .edge(START, "step")
            .route_to("step", ["step", END], |case: &Case| if case.log.len() < 10 { "step" } else { END })
            .build()
            .expect("the graph is right")
    };
    let process = Process::over(Arc::clone(&store), &clock, graph()).await;
    let thread = process.runner.thread("t");
    let run = tokio::spawn(async move { thread.run(Case::update()).await });
    pass(90 * Duration::from_secs(1)).await;
    let down = process.supervisor.drain(5 * MINUTE).await;
    assert_eq!((down.ended.len(), down.cut.len(), down.stuck.len()), (1, 0, 0));
    assert!(matches!(run.await.expect("no panic"), Ok(Outcome::Suspended(ferrata::Suspension::ShutDown))));
    assert_eq!(process.runner.thread("t").state().await.expect("it is there").status, ThreadStatus::Ready);
    drop(process.runner);
    let process = Process::over(Arc::clone(&store), &clock, graph()).await;
    pass(20 * MINUTE).await;
    let state = process.runner.thread("t").state().await.expect("it is there");
    assert_eq!((state.status, state.values.log.len()), (ThreadStatus::Done, 10));
    assert!(process.told.all().is_empty(), "nothing had died");
    process.supervisor.drain(MINUTE).await;
}
