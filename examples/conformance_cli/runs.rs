//! The engine's threads as a script sees them: running, and reading what is recorded.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::Pin;
use std::sync::Arc;

use ferrata::log::{Entry, Question, Record, Source, TaskDone, TaskState};
use ferrata::state::{Change, Update, Values};
use ferrata::{Checkpoint, Event, Events, Outcome, Path, Position, QuestionId, Suspension, TaskId, ThreadState};
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
    Answers(Vec<(QuestionId, Value)>),
}

/// The nodes that are graphs, with the fields that they see.
pub(crate) type GraphNodes = BTreeMap<String, BTreeSet<String>>;

/// How a run ended.
pub(crate) enum Ended {
    Done(Map<String, Value>),
    Asked(Vec<Arc<Question>>),
    Stopped,
}

/// Something that happened in a run, as far as traces care.
#[derive(Clone)]
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
pub(crate) async fn run(
    thread: &Thread,
    begin: Begin,
    graphs: &GraphNodes,
    told: &mut Vec<(Path, Happened)>,
) -> Result<Ended, Failure> {
    let outcome = match begin {
        Begin::Input(changes) => watch(thread.stream(Update::from_changes(changes))?, graphs, told).await?,
        Begin::Resume => watch(thread.stream_resume()?, graphs, told).await?,
        Begin::Answers(answers) => watch(thread.stream_answers(answers)?, graphs, told).await?,
    };
    Ok(match outcome {
        Outcome::Done(state) => Ended::Done(state.to_object()),
        Outcome::Waiting(questions) => Ended::Asked(questions),
        Outcome::Suspended(Suspension::Breakpoint) => Ended::Stopped,
        Outcome::Outside(_) => return Err(Failure::Unsupported("a run that waits for a signal or a time")),
        Outcome::Suspended(_) => return Err(Failure::Unsupported("a run that was dropped")),
    })
}

async fn watch(
    mut events: Events<Values>,
    graphs: &GraphNodes,
    told: &mut Vec<(Path, Happened)>,
) -> Result<Outcome<Values>, ferrata::Error> {
    while let Some(event) = events.next().await {
        let path = event.path().cloned().unwrap_or_default();
        told.extend(happened(event, graphs).map(|happened| (path, happened)));
    }
    events.outcome().await
}

fn happened(event: Event<Values>, graphs: &GraphNodes) -> Option<Happened> {
    Some(match event {
        // Bodies tell themselves what they begin with; a node that is a graph has none.
        Event::TaskStarted { task, payload, state, .. } => {
            let seen = graphs.get(task.node.as_str())?;
            let mut input = state.to_object().ok()?;
            input.retain(|name, _| seen.contains(name));
            Happened::Started { node: task.node.to_string(), input: payload.map_or(input.into(), |sent| (*sent).clone()) }
        }
        // What is said to the graph outside is told there.
        Event::Update { to_parent: true, .. } => return None,
        Event::Update { task, changes, .. } => Happened::Updated { node: task.node.to_string(), update: shown(&changes) },
        Event::Values { state, .. } => Happened::Merged { values: state.to_object() },
        Event::InnerValues { state, .. } => Happened::Merged { values: state.to_object().ok()? },
        Event::Failed { task, again, .. } => Happened::Failed { node: task.node.to_string(), again },
        Event::Asked(question) => Happened::Asked { node: question.task.node.to_string(), question: engine::asked(&question) },
        Event::Custom { task, value } => match value.get("start") {
            Some(input) => Happened::Started { node: task.node.to_string(), input: input.clone() },
            None => Happened::Emitted { node: task.node.to_string(), value: value["emit"].clone() },
        },
        _ => return None,
    })
}

/// Results of the open step of a graph that are recorded already: a run that continues does not make them again.
pub(crate) fn kept(log: &[Entry], path: &Path) -> Vec<(String, Option<Map<String, Value>>)> {
    let merges = |entry: &Entry| match &entry.record {
        Record::Stepped(stepped) => stepped.path == *path,
        Record::Input(input) => input.path == *path,
        Record::Forked(_) => true,
        _ => false,
    };
    let open = log.iter().rposition(merges).map_or(&[][..], |place| &log[place + 1..]);
    let done = open.iter().filter_map(|entry| done(&entry.record)).filter(|done| done.task.path == *path);
    done.map(|done| (done.task.node.to_string(), shown(&done.changes))).collect()
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
    pub(crate) id: Option<TaskId>,
    pub(crate) name: String,
    pub(crate) interrupts: Vec<Value>,
    pub(crate) error: Option<&'static str>,
    /// The state of the graph that the task is, if it was asked for.
    pub(crate) state: Option<Option<Box<Shot>>>,
}

/// All checkpoints of the thread, or of the graph inside it at these nodes, newest first.
pub(crate) async fn history(thread: &Thread, inside: &[String]) -> Result<Vec<Shot>, Failure> {
    let checkpoints = match inside {
        [] => thread.history().await?,
        nodes => thread.inside::<Values>(nodes.iter().map(String::as_str)).history().await?,
    };
    Ok(checkpoints.into_iter().map(shot).collect())
}

/// All checkpoints of the graph at exactly that path, newest first.
pub(crate) async fn history_at(thread: &Thread, path: &Path) -> Vec<Shot> {
    let checkpoints = thread.inside_path::<Values>(path.clone()).history().await;
    checkpoints.unwrap_or_default().into_iter().map(shot).collect()
}

fn shot(checkpoint: Checkpoint<Values>) -> Shot {
    let is_input = checkpoint.source == Source::Input;
    // An input that is not applied yet has the start as its next task.
    let start = || ShotTask { id: None, name: START.to_owned(), interrupts: Vec::new(), error: None, state: None };
    Shot {
        position: Some(checkpoint.position),
        values: checkpoint.values.to_object(),
        next: if is_input { vec![START.to_owned()] } else { checkpoint.next.iter().map(ToString::to_string).collect() },
        step: Some(checkpoint.step.0),
        source: Some(source(checkpoint.source)),
        parent: checkpoint.parent,
        tasks: if is_input { vec![start()] } else { checkpoint.tasks.iter().map(task).collect() },
    }
}

fn task(state: &TaskState) -> ShotTask {
    ShotTask {
        id: Some(state.task.clone()),
        name: state.task.node.to_string(),
        interrupts: state.questions.iter().map(|question| engine::asked(question)).collect(),
        error: state.error.as_deref().map(engine::task_error),
        state: None,
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

/// The thread as it stands, or the graph inside it at these nodes; `None` if there is no such thread.
pub(crate) async fn live(thread: &Thread, inside: &[String]) -> Result<Option<Shot>, Failure> {
    // Reading the log is refused without a store, which the state would not tell from an unknown thread.
    let log = thread.log().await?;
    let state = match inside {
        [] => thread.state().await,
        nodes => thread.inside::<Values>(nodes.iter().map(String::as_str)).state().await,
    };
    let state = match state {
        Err(error) if error.is_unknown_thread() => return Ok(None),
        state => state?,
    };
    let newest = history(thread, inside).await?.into_iter().next().unwrap_or_default();
    Ok(Some(as_it_stands(&log, &state, newest)))
}

/// The newest checkpoint, with what happened since.
fn as_it_stands(log: &[Entry], state: &ThreadState<Values>, newest: Shot) -> Shot {
    let done: HashSet<&TaskId> = log.iter().filter_map(|entry| done(&entry.record)).map(|done| &done.task).collect();
    let tasks = newest.tasks.into_iter().map(|mut task| {
        if task.id.as_ref().is_some_and(|id| done.contains(id)) {
            task.interrupts.clear();
        }
        task
    });
    let (values, next) = (state.values.to_object(), state.next.iter().map(ToString::to_string).collect());
    Shot { position: None, values, next, tasks: tasks.collect(), ..newest }
}

/// Adds the states of the graphs that pending tasks are.
pub(crate) fn with_inner<'t>(thread: &'t Thread, shot: &'t mut Shot) -> Pin<Box<dyn Future<Output = ()> + 't>> {
    Box::pin(async move {
        let log = thread.log().await.unwrap_or_default();
        for task in &mut shot.tasks {
            let called = |entry: &Entry| match &entry.record {
                Record::Input(input) if input.caller.is_some() && input.caller == task.id => Some(input.path.clone()),
                _ => None,
            };
            let mut state = None;
            if let Some(path) = log.iter().rev().find_map(called).filter(|_| shot.next.contains(&task.name))
                && let Ok(inner) = thread.inside_path::<Values>(path.clone()).state().await
            {
                let newest = history_at(thread, &path).await.into_iter().next().unwrap_or_default();
                let mut inner = as_it_stands(&log, &inner, newest);
                with_inner(thread, &mut inner).await;
                state = Some(Box::new(inner));
            }
            task.state = Some(state);
        }
    })
}

fn done(record: &Record) -> Option<&TaskDone> {
    match record {
        Record::TaskDone(done) => Some(done),
        _ => None,
    }
}

/// Writes as a node would have, in the thread or in the graph inside it at these nodes.
pub(crate) async fn edit(thread: &Thread, inside: &[String], changes: Vec<Change>, as_node: Option<&str>) -> Result<(), Failure> {
    let update = Update::from_changes(changes);
    match inside {
        [] => thread.update(update, as_node).await?,
        nodes => thread.inside::<Values>(nodes.iter().map(String::as_str)).update(update, as_node).await?,
    }
    Ok(())
}

/// The open questions with their values. Refused without a store.
pub(crate) async fn questions(thread: &Thread) -> Result<Vec<(QuestionId, Value)>, Failure> {
    thread.log().await?;
    Ok(thread.questions().await?.iter().map(|question| (question.id, engine::asked(question))).collect())
}
