//! A question that nobody answers in time: what was said happens, and "expired" is neither "rejected" nor "approved".
//!
//! How it could break: a deadline that is kept in a process and dies with it; an expired question that still takes an answer, or that stays in the
//! list of what waits; one that is taken for a refusal, or worse, for a yes; a thread that waits for ever for somebody who has gone.

use std::sync::Arc;
use std::time::Duration;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::log::Record;
use ferrata::store::{MemoryStore, RedbStore, ThreadQuery, ThreadStatus};
use ferrata::{
    Answer, Approval, Ask, Context, END, Graph, GraphBuilder, OnExpiry, Outcome, Question, QuestionId, Runner, START, State,
    Suspension, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Case {
    seats: Option<u32>,
    #[state(append)]
    log: Vec<String>,
}

const HOUR: Duration = Duration::from_secs(3600);

async fn note(ctx: Context) -> ferrata::Result<CaseUpdate> {
    Ok(Case::update().push_log(ctx.node()))
}

/// An approval with its three ways on.
fn three_ways(ask: impl Fn(&Case) -> Approval + Send + Sync + 'static) -> GraphBuilder<Case> {
    Graph::<Case>::new("case")
        .question("approve", ask)
        .refused("approve", |_, reason| Case::update().push_log(format!("refused: {reason}")))
        .node("ship", note)
        .node("cancel", note)
        .edge(START, "approve")
        .approved("approve", "ship")
        .rejected("approve", "cancel")
        .edge("ship", END)
        .edge("cancel", END)
}

/// And a fourth one, for when nobody answers.
fn four_ways(ask: impl Fn(&Case) -> Approval + Send + Sync + 'static) -> GraphBuilder<Case> {
    three_ways(ask).node("remind", note).expired("approve", "remind").edge("remind", END)
}

fn wait(clock: &ManualClock, time: Duration) {
    clock.advance_ms(u64::try_from(time.as_millis()).expect("short"));
}

struct Desk {
    clock: ManualClock,
    runner: Runner<Case>,
}

impl Desk {
    fn new(graph: GraphBuilder<Case>) -> Self {
        let clock = ManualClock::default();
        let runner = Runner::with_clock(graph.build().expect("the graph is right"), MemoryStore::new(), clock.clone());
        Self { clock, runner }
    }

    fn wait(&self, time: Duration) {
        wait(&self.clock, time);
    }

    async fn ask(&self) -> Arc<Question> {
        let outcome = self.runner.thread("t").run(Case::update()).await.expect("it runs");
        outcome.questions().first().expect("it asks").clone()
    }

    async fn log(&self) -> Vec<String> {
        self.runner.thread("t").state().await.expect("it is there").values.log.clone()
    }

    async fn answer(&self, question: QuestionId, answer: Answer) -> &'static str {
        match self.runner.thread("t").answer(question, answer).await {
            Ok(_) => "accepted",
            Err(error) => error.code(),
        }
    }

    async fn is_waiting(&self) -> bool {
        let waiting = ThreadQuery::new().status(ThreadStatus::Waiting);
        !self.runner.threads(waiting).await.expect("a list").is_empty()
    }
}

#[tokio::test]
async fn a_question_says_who_may_answer_until_when_and_when_to_remind() {
    let desk = Desk::new(four_ways(|_| {
        Approval::ask("Ship?").assignee("finance").deadline(24 * HOUR).remind_after(12 * HOUR).remind_after(6 * HOUR)
    }));
    desk.wait(HOUR);
    let question = desk.ask().await;
    let hours = |hours: u64| Timestamp(hours * 3_600_000);
    assert_eq!(question.assignee.as_deref(), Some("finance"));
    assert_eq!((question.deadline, question.reminders.as_slice()), (Some(hours(25)), [hours(7), hours(13)].as_slice()));
    assert_eq!(question.on_expiry, OnExpiry::GoOn, "it has edges for that");
    assert!(!question.is_overdue(hours(24)) && question.is_overdue(hours(25)));
}

#[tokio::test]
async fn an_expired_question_takes_its_own_way_and_no_answer_any_more() {
    let desk = Desk::new(four_ways(|_| Approval::ask("Ship?").deadline(HOUR)));
    let question = desk.ask().await;
    desk.wait(HOUR);
    let before = desk.runner.thread("t").log().await.expect("the log").len();
    assert_eq!(desk.answer(question.id, Approval::approve()).await, "question-expired", "it comes too late");
    assert_eq!(desk.runner.thread("t").log().await.expect("the log").len(), before, "nothing was recorded");

    desk.runner.thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(desk.log().await, ["remind"]);
    assert!(!desk.is_waiting().await);
    assert_eq!(desk.answer(question.id, Approval::approve()).await, "question-expired");
    let log = desk.runner.thread("t").log().await.expect("the log");
    let expired = log.iter().filter(|entry| matches!(&entry.record, Record::Expired(e) if e.question == question.id)).count();
    assert_eq!((expired, log.iter().filter(|entry| matches!(entry.record, Record::Answered(_))).count()), (1, 0));
}

#[tokio::test]
async fn until_the_deadline_a_question_is_answered_as_any_other() {
    let desk = Desk::new(four_ways(|_| Approval::ask("Ship?").deadline(HOUR)));
    let question = desk.ask().await;
    desk.wait(HOUR - Duration::from_millis(1));
    assert!(matches!(desk.runner.thread("t").resume().await, Ok(Outcome::Waiting(_))));
    assert_eq!(desk.answer(question.id, Approval::reject("no")).await, "accepted");
    assert_eq!(desk.log().await, ["refused: no", "cancel"]);
}

#[tokio::test]
async fn without_a_word_about_it_the_thread_is_suspended_and_asks_anew() {
    let desk = Desk::new(three_ways(|_| Approval::ask("Ship?").deadline(HOUR)));
    let first = desk.ask().await;
    desk.wait(2 * HOUR);
    let outcome = desk.runner.thread("t").resume().await.expect("it is no failure");
    assert!(matches!(outcome, Outcome::Suspended(Suspension::Expired)), "{outcome:?}");
    assert!(!desk.is_waiting().await);
    assert_eq!(desk.answer(first.id, Approval::approve()).await, "question-expired");
    let outcome = desk.runner.thread("t").resume().await.expect("it asks anew");
    let second = outcome.questions()[0].clone();
    assert_ne!(first.id, second.id);
    assert_eq!(second.deadline, Some(Timestamp(3 * 3_600_000)));
    assert_eq!(desk.answer(second.id, Approval::approve()).await, "accepted");
    assert_eq!(desk.log().await, ["ship"]);
}

#[tokio::test]
async fn what_stands_for_an_answer_is_a_refusal_where_the_graph_says_so_and_never_a_yes() {
    let refuse = || Approval::ask("Ship?").deadline(HOUR).on_expiry(Approval::reject("nobody answered"));
    let desk = Desk::new(three_ways(move |_| refuse()));
    desk.ask().await;
    desk.wait(HOUR);
    desk.runner.thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(desk.log().await, ["refused: nobody answered", "cancel"]);

    for wrong in [Approval::approve(), Approval::edit(7), Answer::new("what")] {
        let desk = Desk::new(three_ways(move |_| Approval::ask("Ship?").edits::<u32>().deadline(HOUR).on_expiry(wrong.clone())));
        let error = desk.runner.thread("t").run(Case::update()).await.expect_err("a deadline approves nothing");
        assert_eq!(error.code(), "node-failed", "{error}");
        assert!(error.to_string().contains("approve"), "{error}");
    }
    // To go on, it has to know where.
    let desk = Desk::new(three_ways(|_| Approval::ask("Ship?").deadline(HOUR).on_expiry(OnExpiry::GoOn)));
    let error = desk.runner.thread("t").run(Case::update()).await.expect_err("it leads nowhere");
    assert!(error.to_string().contains(".expired("), "{error}");
}

#[tokio::test]
async fn a_free_question_expires_to_its_edge_and_not_to_the_one_of_its_answer() {
    let graph = Graph::<Case>::new("case")
        .question("seats", |_: &Case| Ask::<u32>::new("How many?").deadline(HOUR))
        .answered("seats", |_, seats: u32| Case::update().seats(seats))
        .node("book", note)
        .node("remind", note)
        .edge(START, "seats")
        .edge("seats", "book")
        .expired("seats", "remind")
        .edge("book", END)
        .edge("remind", END);
    let desk = Desk::new(graph);
    let question = desk.ask().await;
    desk.wait(HOUR);
    desk.runner.thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(desk.log().await, ["remind"]);
    assert_eq!(desk.answer(question.id, Answer::new(3)).await, "question-expired");
}

#[tokio::test]
async fn inside_a_node_an_expired_question_is_an_error_of_its_own_or_its_default() {
    async fn ask(ctx: Context) -> ferrata::Result<CaseUpdate> {
        ctx.effect("mail", |_key| async { Ok(()) }).await?;
        let seats = ctx.ask("seats", Ask::<u32>::new("How many?").deadline(HOUR).on_expiry(Answer::new(2))).await?;
        match ctx.ask("name", Ask::<String>::new("Whose?").deadline(HOUR).on_expiry(OnExpiry::GoOn)).await {
            Ok(name) => Ok(Case::update().seats(seats).push_log(name)),
            Err(error) if error.is_expired() => Ok(Case::update().seats(seats).push_log("nobody's")),
            Err(error) => Err(error),
        }
    }
    let desk = Desk::new(Graph::<Case>::new("case").node("ask", ask).edge(START, "ask").edge("ask", END));
    desk.ask().await;
    desk.wait(HOUR);
    let outcome = desk.runner.thread("t").resume().await.expect("it goes on");
    assert_eq!(outcome.questions()[0].text, "Whose?");
    desk.wait(HOUR);
    desk.runner.thread("t").resume().await.expect("it goes on").done().expect("it ends");
    let state = desk.runner.thread("t").state().await.expect("it is there");
    assert_eq!((state.values.seats, state.values.log.as_slice()), (Some(2), ["nobody's".to_owned()].as_slice()));
    let log = desk.runner.thread("t").log().await.expect("the log");
    assert_eq!(log.iter().filter(|entry| matches!(entry.record, Record::EffectStarted(_))).count(), 1, "the mail went once");
}

#[tokio::test]
async fn when_one_of_two_questions_expires_the_answer_to_the_other_still_counts() {
    async fn ask(state: View<Case>, ctx: Context) -> ferrata::Result<CaseUpdate> {
        let _ = state;
        let ask = Ask::<String>::new(ctx.node());
        let ask = if ctx.node() == "a" { ask.deadline(HOUR).on_expiry(Answer::new("default")) } else { ask };
        Ok(Case::update().push_log(ctx.ask("q", ask).await?))
    }
    let graph = Graph::<Case>::new("case").node("a", ask).node("b", ask);
    let desk = Desk::new(graph.edge(START, "a").edge(START, "b").edge("a", END).edge("b", END));
    let outcome = desk.runner.thread("t").run(Case::update()).await.expect("it asks twice");
    let [a, b] = outcome.questions() else { panic!("{outcome:?}") };
    desk.wait(HOUR);
    assert_eq!(desk.answer(a.id, Answer::new("late")).await, "question-expired");
    assert_eq!(desk.answer(b.id, Answer::new("mine")).await, "accepted");
    assert_eq!(desk.log().await, ["default", "mine"]);
}

/// F27, but for the process that is killed: that is `people_killed.rs`.
#[tokio::test]
async fn a_deadline_is_kept_with_the_thread_and_honoured_by_whoever_opens_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, clock) = (dir.path().join("store.redb"), ManualClock::default());
    let open = || {
        let graph = four_ways(|_| Approval::ask("Ship?").deadline(Duration::from_secs(1)));
        let store = RedbStore::open(&path).expect("a store");
        Runner::with_clock(graph.build().expect("the graph is right"), store, clock.clone())
    };
    let question = open().thread("t").run(Case::update()).await.expect("it runs").questions()[0].id;
    wait(&clock, Duration::from_secs(3));
    let runner = open();
    assert!(runner.thread("t").run_once(Case::update()).await.expect("it goes on").done().is_some());
    assert_eq!(runner.thread("t").state().await.expect("it is there").values.log, ["remind"]);
    let waiting = ThreadQuery::new().status(ThreadStatus::Waiting);
    assert!(runner.threads(waiting).await.expect("a list").is_empty());
    let error = runner.thread("t").answer(question, Approval::approve()).await.expect_err("it is too late");
    assert_eq!((error.code(), error.is_answer_refused()), ("question-expired", true));
}

#[test]
fn edges_of_expiry_belong_to_questions_and_lead_past_no_approval() {
    let mistakes = |graph: GraphBuilder<Case>| graph.build().expect_err("it is wrong").to_string();
    let no_question = Graph::<Case>::new("case").node("a", note).edge(START, "a").expired("a", END).edge("a", END);
    assert!(mistakes(no_question).contains("is no question"));
    let guarded = |to: &str| {
        use ferrata::IntoNode;
        Graph::<Case>::new("case")
            .question("approve", |_: &Case| Approval::ask("Pay?"))
            .node("pay", note.irreversible())
            .edge(START, "approve")
            .approved("approve", "pay")
            .rejected("approve", END)
            .expired("approve", to)
            .edge("pay", END)
    };
    assert!(mistakes(guarded("pay")).contains("can be reached without an approval: START -> approve -> pay"));
    let graph = guarded(END).build().expect("it is right");
    assert!(graph.mermaid().contains("-- expired -->"), "{}", graph.mermaid());
}

#[tokio::test]
async fn a_stored_question_without_the_new_words_reads_as_one_that_suspends() {
    let json = json!({
        "id": "67e55044-10b1-426f-9247-bb680e5fe0c8", "key": "approve", "occurrence": 0, "kind": "approval", "text": "Ship?",
        "task": {"branch": 0, "path": [], "step": 0, "node": "approve"}, "schema": {}, "asked_at": 5
    });
    let question: Question = serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!((question.on_expiry, question.assignee, question.reminders), (OnExpiry::Suspend, None, Vec::new()));
}
