//! One course: a thread from its input to its end, in one process, or in two with a crash between them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::seen::{Inside, Life, Seen};
use super::store::LifeStore;
use super::{CrashPoint, Plan};
use crate::clock::{Clock, Timestamp};
use crate::graph::Answer;
use crate::id::QuestionId;
use crate::log::{OnExpiry, Question, QuestionKind};
use crate::runner::{Error, Lived, Outcome, Runner, Signal, Thread, live};
use crate::state::{State, StateCell, View};
use crate::store::Store;

/// How often a life may be answered or resumed.
const ROUNDS_MAX: u32 = 300;

/// How a course ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    Done,
    /// Nobody has an answer to these questions.
    Waiting(Vec<Value>),
    /// The run failed with this code and this text.
    Failed(&'static str, String),
}

impl End {
    /// Whether it is the same, whatever the texts of errors say.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Failed(code, _), Self::Failed(other, _)) => code == other,
            _ => self == other,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Waiting(questions) => {
                let keys: Vec<String> = questions.iter().map(|question| question["key"].to_string()).collect();
                write!(f, "waiting for {}", keys.join(", "))
            }
            Self::Failed(code, _) => write!(f, "failed: {code}"),
        }
    }
}

/// How the last life of a course found the thread at its end.
pub(super) struct Ended<S> {
    pub(super) end: End,
    /// Nothing if the thread has no record.
    pub(super) state: Option<View<S>>,
    pub(super) values: Map<String, Value>,
    /// What the log yields when it is read from its beginning, where that is something else.
    pub(super) unlike_log: Vec<String>,
}

/// A course that was played to its end.
pub(super) struct Played<S, W> {
    pub(super) ended: Ended<S>,
    pub(super) seen: Inside,
    pub(super) world: Arc<W>,
}

/// A course that came to no end.
pub(super) struct NoEnd {
    pub(super) what: String,
    pub(super) seen: Box<Inside>,
}

/// Plays a course.
pub(super) fn play<S: State, W: Send + Sync + 'static>(
    plan: &Arc<Plan<S, W>>,
    point: Option<CrashPoint>,
) -> Result<Played<S, W>, NoEnd> {
    let (world, seen) = (Arc::new((plan.world)()), Arc::new(Seen::new(point)));
    let kept = (plan.store)();
    let mut generation = 0;
    loop {
        let life = Life { seen: Arc::clone(&seen), pulse: Arc::default() };
        let pulse = Arc::clone(&life.pulse);
        let (plan_of_life, world_of_life, kept) = (Arc::clone(plan), Arc::clone(&world), Arc::clone(&kept));
        let lived = live(&pulse, plan.real_time, plan.within, move || lead(plan_of_life, world_of_life, kept, life, generation));
        let what = match lived {
            Lived::Ended(Ok(ended)) => {
                let seen = std::mem::take(&mut *seen.lock());
                return Ok(Played { ended, seen, world });
            }
            Lived::Died => {
                // What was never stored need not be told apart.
                generation += u64::from(seen.lock().is_begun);
                continue;
            }
            Lived::Ended(Err(what)) => what,
            Lived::Late => format!("it came to no end within {:?}; if it takes longer, say so with `within`", plan.within),
            Lived::Panicked(text) => format!("it panicked: {text}"),
        };
        return Err(NoEnd { what, seen: Box::new(std::mem::take(&mut *seen.lock())) });
    }
}

/// One life, in a process of its own as it were.
async fn lead<S: State, W>(
    plan: Arc<Plan<S, W>>,
    world: Arc<W>,
    kept: Arc<dyn Store>,
    life: Life,
    generation: u64,
) -> Result<Ended<S>, String> {
    let graph = (plan.graph)(&world)?;
    let seen = Arc::clone(&life.seen);
    seen.lock().graph = Some((graph.name().to_owned(), Arc::clone(&graph.shape.schema)));
    let clock = LifeClock { generation, ids: AtomicU64::new(0), seen: Arc::clone(&seen) };
    let store = LifeStore { kept, life: life.clone() };
    let runner = (plan.runner)(Runner::observed(graph, store, clock, Arc::new(life)), &world);
    let thread = (plan.thread)(runner.thread("crash-test"));
    let end = go_on(&plan, &thread, &seen).await?;
    let mut unlike_log = Vec::new();
    let (mut state, mut values) = (None, Map::new());
    match thread.state().await {
        Ok(found) => {
            values = read(&runner, &found.values)?;
            state = Some(found.values);
        }
        Err(error) if error.is_unknown_thread() => {}
        Err(error) => unlike_log.push(format!("the thread cannot be read: {error}")),
    }
    if end == End::Done && unlike_log.is_empty() {
        match thread.history().await {
            Ok(history) => match history.first() {
                Some(newest) if read(&runner, &newest.values)? == values => {}
                _ => unlike_log.push("the newest checkpoint of the history is not the state".to_owned()),
            },
            Err(error) => unlike_log.push(format!("the history cannot be read: {error}")),
        }
    }
    match runner.verify().await {
        Ok(checked) => unlike_log.extend(checked.faults.iter().map(|(_, fault)| format!("the log is damaged: {fault}"))),
        Err(error) => unlike_log.push(format!("the log cannot be read: {error}")),
    }
    Ok(Ended { end, state, values, unlike_log })
}

fn read<S: State>(runner: &Runner<S>, state: &S) -> Result<Map<String, Value>, String> {
    StateCell::new(state.clone()).values(&runner.graph().shape.schema).map_err(|error| error.to_string())
}

/// Runs, answers and resumes until nothing is left to do.
async fn go_on<S: State, W>(plan: &Plan<S, W>, thread: &Thread<S>, seen: &Seen) -> Result<End, String> {
    let mut outcome = thread.run_once(plan.input.clone()).await;
    for _ in 0..ROUNDS_MAX {
        outcome = match outcome {
            Ok(Outcome::Done(_)) => return Ok(End::Done),
            Ok(Outcome::Suspended(_)) => thread.resume().await,
            Ok(Outcome::Waiting(questions)) => {
                let answers = answers(&plan.answers, &questions, seen);
                if answers.is_empty() && wait(&questions, seen) {
                    thread.resume().await
                } else if answers.is_empty() {
                    return Ok(End::Waiting(questions.iter().map(|question| shown(question)).collect()));
                } else {
                    thread.answer_all(answers).await
                }
            }
            Ok(Outcome::Outside(waits)) => {
                if send(&plan.signals, thread, &waits).await? || wait(&waits, seen) {
                    thread.resume().await
                } else {
                    return Ok(End::Waiting(waits.iter().map(|wait| shown(wait)).collect()));
                }
            }
            Err(error) if error.is_answer_refused() => return Err(error.to_string()),
            Err(error) => return failed(plan, thread, &error).await,
        };
    }
    Err(format!("it came to no end: after {ROUNDS_MAX} answers it still asks, or stops"))
}

/// Waits until the first of these questions has expired. False if none of them lets the thread go on then.
fn wait(questions: &[Arc<Question>], seen: &Seen) -> bool {
    let ends = |question: &&Arc<Question>| question.on_expiry != OnExpiry::Suspend;
    let Some(deadline) = questions.iter().filter(ends).filter_map(|question| question.deadline).min() else { return false };
    let mut seen = seen.lock();
    seen.waited_ms = seen.waited_ms.max(deadline.ms_since(Timestamp(BEGINNING_MS)));
    true
}

/// Sends the course's signals that a thread waits for. False if there are none.
async fn send<S: State>(known: &BTreeMap<String, Value>, thread: &Thread<S>, waits: &[Arc<Question>]) -> Result<bool, String> {
    let mut sent = false;
    for wait in waits {
        let QuestionKind::Signal(name) = &wait.kind else { continue };
        let Some(value) = known.get(name) else { continue };
        // What is sent again after a crash is known by the wait that it is for.
        let signal = Signal::new(name.as_str(), value).id(wait.id.to_string()).by("crash-test");
        thread.signal(signal).await.map_err(|error| error.to_string())?;
        sent = true;
    }
    Ok(sent)
}

/// What the course's answers are to these questions.
fn answers(known: &BTreeMap<String, super::GiveAnswer>, questions: &[Arc<Question>], seen: &Seen) -> Vec<(QuestionId, Answer)> {
    let answer = |question: &Question| match &question.kind {
        QuestionKind::Doubt(effect) => Some(seen.result(effect).map_or_else(Answer::not_performed, Answer::performed)),
        _ => known.get(&*question.key).map(|give| give(question)),
    };
    let by = |answer: Answer| if answer.by.is_some() { answer } else { answer.by("crash-test") };
    questions.iter().filter_map(|question| Some((question.id, by(answer(question)?)))).collect()
}

/// What is compared of a question.
fn shown(question: &Question) -> Value {
    json!({"key": &*question.key, "occurrence": question.occurrence, "task": question.task, "kind": question.kind,
           "text": question.text, "show": question.show, "schema": question.schema})
}

async fn failed<S: State, W>(plan: &Plan<S, W>, thread: &Thread<S>, error: &Error) -> Result<End, String> {
    if thread.log().await.is_ok_and(|log| log.is_empty()) {
        return Err(format!("the run is refused, before anything is recorded: {error:?}"));
    }
    if error.is_step_limit() && !plan.may_fail {
        return Err(format!("it came to no end: {error:?}"));
    }
    Ok(End::Failed(error.code(), error.to_string()))
}

/// Time that goes on from life to life, and identifiers that count up: each course has the same.
#[derive(Debug)]
struct LifeClock {
    /// Counts the lives that have stored something.
    generation: u64,
    ids: AtomicU64,
    /// Knows how far the course has waited.
    seen: Arc<Seen>,
}

const BEGINNING_MS: u64 = 1_700_000_000_000;
const LIFE_MS: u64 = 1_000;

impl Clock for LifeClock {
    fn now(&self) -> Timestamp {
        Timestamp(BEGINNING_MS + self.generation * LIFE_MS + self.seen.lock().waited_ms)
    }

    fn new_id(&self) -> Uuid {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        Uuid::from_u128((u128::from(self.generation + 1) << 64) | u128::from(id))
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}
