//! The engine's threads as a script sees them: running, and reading what is recorded.

use std::collections::HashSet;
use std::sync::Arc;

use ferrata::log::{Entry, Question, Record, Source, TaskDone, TaskState};
use ferrata::state::{Change, Update, Values};
use ferrata::{Event, Events, Outcome, Position, QuestionId, Suspension, TaskId};
use serde_json::{Map, Value};

use super::engine::{self, Runner, Thread};
use super::operation::Durability;
use super::scenario::START;
use super::update::shown;

/// Why an operation has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    Engine(ferrata::Error),
    /// What the engine's API makes impossible to ask for, under the scenario's name.
    Refused(&'static str),
    Unsupported(&'static str),
}

impl From<ferrata::Error> for Failure {
    fn from(error: ferrata::Error) -> Self {
        Self::Engine(error)
    }
}

/// What a script says about one run beside its input.
#[derive(Default)]
pub(crate) struct Limits {
    pub(crate) steps_max: Option<u64>,
    pub(crate) before: Option<Vec<String>>,
    pub(crate) after: Option<Vec<String>>,
    pub(crate) durability: Option<Durability>,
}

/// A handle to a thread. New input drops open work, as scenarios want it.
pub(crate) fn handle(runner: &Runner, name: &str, limits: &Limits) -> Thread {
    let mut thread = runner.thread(name).supersede();
    if let Some(steps) = limits.steps_max {
        thread = thread.steps_max(steps);
    }
    if let Some(before) = &limits.before {
        thread = thread.pause_before(before.iter().map(String::as_str));
    }
    if let Some(after) = &limits.after {
        thread = thread.pause_after(after.iter().map(String::as_str));
    }
    match limits.durability {
        None => thread,
        Some(Durability::Async) => thread.durability(ferrata::Durability::Behind),
        Some(Durability::Sync) => thread.durability(ferrata::Durability::Step),
        Some(Durability::Exit) => thread.durability(ferrata::Durability::Exit),
    }
}

/// The thread as if that checkpoint were its newest.
pub(crate) fn at(thread: &Thread, position: Position) -> Thread {
    thread.clone().at(position)
}

/// What a run begins with.
pub(crate) enum Begin {
    Input(Vec<Change>),
    Resume,
    Answer(QuestionId, Value),
}

/// How a run ended.
pub(crate) enum Ended {
    Done(Map<String, Value>),
    Asked(Vec<Arc<Question>>),
    Stopped,
}

/// Something that happened in a run, as far as traces care.
pub(crate) enum Happened {
    /// A body starts, in its first attempt or a later one.
    Started {
        node: String,
        input: Value,
    },
    Emitted {
        node: String,
        value: Value,
    },
    Updated {
        node: String,
        update: Option<Map<String, Value>>,
    },
    Failed {
        node: String,
        again: bool,
    },
    Asked {
        node: String,
        question: Value,
    },
    Merged {
        values: Map<String, Value>,
    },
}

/// Runs, and appends what happens to `told`.
pub(crate) async fn run(thread: &Thread, begin: Begin, told: &mut Vec<Happened>) -> Result<Ended, Failure> {
    let outcome = match begin {
        Begin::Input(changes) => watch(thread.stream(Update::from_changes(changes))?, told).await?,
        Begin::Resume => watch(thread.stream_resume()?, told).await?,
        Begin::Answer(question, value) => watch(thread.stream_answer(question, value)?, told).await?,
    };
    Ok(match outcome {
        Outcome::Done(state) => Ended::Done(state.to_object()),
        Outcome::Waiting(questions) => Ended::Asked(questions),
        Outcome::Suspended(Suspension::Breakpoint) => Ended::Stopped,
        Outcome::Suspended(_) => return Err(Failure::Unsupported("a run that was dropped")),
    })
}

async fn watch(mut events: Events<Values>, told: &mut Vec<Happened>) -> Result<Outcome<Values>, ferrata::Error> {
    while let Some(event) = events.next().await {
        told.extend(happened(event));
    }
    events.outcome().await
}

fn happened(event: Event<Values>) -> Option<Happened> {
    Some(match event {
        Event::Update { node, changes } => Happened::Updated { node: node.to_string(), update: shown(&changes) },
        Event::Values { state, .. } => Happened::Merged { values: state.to_object() },
        Event::Failed { node, again, .. } => Happened::Failed { node: node.to_string(), again },
        Event::Asked(question) => Happened::Asked { node: question.task.node.to_string(), question: engine::asked(&question) },
        Event::Custom { node, value } => match value.get("start") {
            Some(input) => Happened::Started { node: node.to_string(), input: input.clone() },
            None => Happened::Emitted { node: node.to_string(), value: value["emit"].clone() },
        },
        _ => return None,
    })
}

/// Results of the open step that are recorded already: a run that continues does not make them again.
pub(crate) fn kept(log: &[Entry]) -> Vec<(String, Option<Map<String, Value>>)> {
    let merged = log.iter().rposition(|entry| matches!(entry.record, Record::Stepped(_) | Record::Input(_) | Record::Forked(_)));
    let open = merged.map_or(&[][..], |place| &log[place + 1..]);
    open.iter().filter_map(|entry| done(&entry.record)).map(|done| (done.task.node.to_string(), shown(&done.changes))).collect()
}

/// A state that a thread is or was in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shot {
    /// Where it stands in the log; the thread as it stands has no place.
    pub(crate) position: Option<Position>,
    pub(crate) values: Map<String, Value>,
    pub(crate) next: Vec<String>,
    pub(crate) step: Option<i64>,
    pub(crate) source: Option<&'static str>,
    pub(crate) parent: bool,
    pub(crate) tasks: Vec<ShotTask>,
}

#[derive(Clone, Debug)]
pub(crate) struct ShotTask {
    pub(crate) name: String,
    pub(crate) interrupts: Vec<Value>,
    pub(crate) error: Option<&'static str>,
}

/// All checkpoints, newest first.
pub(crate) async fn history(thread: &Thread) -> Result<Vec<Shot>, Failure> {
    let shots = thread.history().await?.into_iter().map(|checkpoint| {
        let is_input = checkpoint.source == Source::Input;
        // An input that is not applied yet has the start as its next task.
        let start = || ShotTask { name: START.to_owned(), interrupts: Vec::new(), error: None };
        Shot {
            position: Some(checkpoint.position),
            values: checkpoint.values.to_object(),
            next: if is_input { vec![START.to_owned()] } else { checkpoint.next.iter().map(ToString::to_string).collect() },
            step: Some(checkpoint.step.0),
            source: Some(source(checkpoint.source)),
            parent: checkpoint.parent,
            tasks: if is_input { vec![start()] } else { checkpoint.tasks.iter().map(task).collect() },
        }
    });
    Ok(shots.collect())
}

fn task(state: &TaskState) -> ShotTask {
    ShotTask {
        name: state.task.node.to_string(),
        interrupts: state.questions.iter().map(|question| engine::asked(question)).collect(),
        error: state.error.as_deref().map(engine::task_error),
    }
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Input => "input",
        Source::Loop => "loop",
        Source::Update => "update",
        Source::Fork => "fork",
        _ => "unknown",
    }
}

/// The thread as it stands; `None` if there is no such thread.
pub(crate) async fn live(thread: &Thread) -> Result<Option<Shot>, Failure> {
    // Reading the log is refused without a store, which the state would not tell from an unknown thread.
    let log = thread.log().await?;
    let state = match thread.state().await {
        Err(error) if error.is_unknown_thread() => return Ok(None),
        state => state?,
    };
    let newest = thread.history().await?.into_iter().next();
    let done: HashSet<&TaskId> = log.iter().filter_map(|entry| done(&entry.record)).map(|done| &done.task).collect();
    let tasks = newest.iter().flat_map(|checkpoint| &checkpoint.tasks).map(|state| {
        let mut task = task(state);
        if done.contains(&state.task) {
            task.interrupts.clear();
        }
        task
    });
    Ok(Some(Shot {
        position: None,
        values: state.values.to_object(),
        next: state.next.iter().map(ToString::to_string).collect(),
        step: newest.as_ref().map(|checkpoint| checkpoint.step.0),
        source: newest.as_ref().map(|checkpoint| source(checkpoint.source)),
        parent: newest.as_ref().is_some_and(|checkpoint| checkpoint.parent),
        tasks: tasks.collect(),
    }))
}

fn done(record: &Record) -> Option<&TaskDone> {
    match record {
        Record::TaskDone(done) => Some(done),
        _ => None,
    }
}

/// Writes as a node would have.
pub(crate) async fn edit(thread: &Thread, changes: Vec<Change>, as_node: Option<&str>) -> Result<(), Failure> {
    Ok(thread.update(Update::from_changes(changes), as_node).await?)
}

/// The open questions with their values. Refused without a store.
pub(crate) async fn questions(thread: &Thread) -> Result<Vec<(QuestionId, Value)>, Failure> {
    thread.log().await?;
    Ok(thread.questions().await?.iter().map(|question| (question.id, engine::asked(question))).collect())
}
