//! Graphs inside a thread, to be read and edited while they are at work.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::error::Error;
use super::keeper::status;
use super::outcome::{Checkpoint, ThreadState};
use super::thread::Thread;
use crate::graph::Shape;
use crate::id::{Frame, NodeName, Path};
use crate::log::{Entry, FoldError, Folded, Record, Scope, Seen, TaskState};
use crate::state::{State, Update};

/// A handle to a graph inside a thread: one that is at work, or that keeps its state. Made by [`Thread::inside`].
#[must_use]
pub struct Inside<S, T> {
    thread: Thread<S>,
    place: Place,
    state: PhantomData<fn() -> T>,
}

/// Where the graph is looked for.
enum Place {
    Nodes(Vec<NodeName>),
    Path(Path),
}

impl<S: State> Thread<S> {
    /// The graph inside the thread that the names of nodes lead to, outermost first; `T` is its state.
    ///
    /// ```
    /// use ferrata::{Answer, Ask, Context, END, Graph, Outcome, Runner, START, State, View, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Price { cents: u64 }
    ///
    /// async fn check(price: View<Price>, ctx: Context) -> ferrata::Result<PriceUpdate> {
    ///     let more = ctx.ask("more", Ask::<u64>::new(format!("How much more than {}?", price.cents))).await?;
    ///     Ok(Price::update().cents(price.cents + more))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let inner = Graph::<Price>::new("price").node("check", check).edge(START, "check").edge("check", END).build()?;
    /// let graph = Graph::<Price>::new("order").node("price", inner.shared()).edge(START, "price").edge("price", END).build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let thread = runner.thread("t");
    /// let Outcome::Waiting(_) = thread.run(Price::update().cents(10)).await? else { panic!("it asks") };
    ///
    /// // The graph inside has a state of its own, which can be corrected before it goes on.
    /// let inside = thread.inside::<Price>(["price"]);
    /// assert_eq!(inside.state().await?.next[0].as_str(), "check");
    /// inside.update(Price::update().cents(500), Some(START)).await?;
    /// let Outcome::Waiting(questions) = thread.resume().await? else { panic!("it asks again") };
    /// assert_eq!(questions[0].text, "How much more than 500?");
    /// assert_eq!(thread.answer(questions[0].id, Answer::new(1)).await?.done().unwrap().cents, 501);
    /// # Ok(()) }
    /// ```
    pub fn inside<T: State>(&self, nodes: impl IntoIterator<Item = impl Into<NodeName>>) -> Inside<S, T> {
        let nodes = nodes.into_iter().map(Into::into).collect();
        Inside { thread: self.clone(), place: Place::Nodes(nodes), state: PhantomData }
    }

    /// The graph that runs at exactly that path, for example that of a question's task, where the names of nodes are not enough: several tasks of
    /// one node, or calls with a key.
    pub fn inside_path<T: State>(&self, path: Path) -> Inside<S, T> {
        Inside { thread: self.clone(), place: Place::Path(path), state: PhantomData }
    }
}

impl<S: State, T: State> Inside<S, T> {
    /// The graph as it stands.
    ///
    /// # Errors
    ///
    /// No graph is at work there (code `no-subgraph`), several are, or its state is of another type.
    pub async fn state(&self) -> Result<ThreadState<T>, Error> {
        let folded = self.thread.folded("read a state").await?;
        let name = self.thread.name()?;
        let scope = self.find(&folded)?;
        state_of(&folded, scope, self.thread.inner.shape(), self.thread.is_live()).map_err(|error| Error::damaged(name, error))
    }

    /// All checkpoints of the graph, newest first. Costs as much as the thread's whole history.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state); but the last one that was at work is enough.
    pub async fn history(&self) -> Result<Vec<Checkpoint<T>>, Error> {
        let (name, log) = (self.thread.name()?, self.thread.whole().await?);
        let path = match &self.place {
            Place::Path(path) => path.clone(),
            Place::Nodes(nodes) => {
                last_at(self.thread.inner.shape(), &log.entries, nodes).ok_or_else(|| Error::no_subgraph(name, &self.place))?
            }
        };
        self.check_type(&path)?;
        let seen = self.thread.seen(log, &path)?;
        Ok(checkpoints(seen, self.thread.inner.shape()))
    }

    /// Changes the state of the graph, as if `as_node` had returned the update; see [`Thread::update`]. The graph outside stays where it is.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state) and [`Thread::update`].
    pub async fn update(&self, update: impl Into<Update>, as_node: Option<&str>) -> Result<(), Error> {
        let path = self.find(&self.thread.folded("keep an edit").await?)?.path.clone();
        self.thread.edit(&path, update.into(), as_node).await
    }

    fn find<'f>(&self, folded: &'f Folded) -> Result<&'f Scope, Error> {
        let name = self.thread.name()?;
        if folded.root.facts.head.is_none() {
            return Err(Error::unknown_thread(name));
        }
        let fits = |path: &Path| match &self.place {
            Place::Path(wanted) => path == wanted,
            Place::Nodes(nodes) => leads(self.thread.inner.shape(), path, nodes),
        };
        let mut found: Vec<&Scope> = folded.inner.values().filter(|scope| fits(&scope.path)).collect();
        if found.len() > 1 && found.iter().any(|scope| !scope.is_finished()) {
            found.retain(|scope| !scope.is_finished());
        }
        let scope = match &*found {
            [] => return Err(Error::no_subgraph(name, &self.place)),
            [one] => *one,
            many => return Err(Error::many_subgraphs(name, many.iter().map(|scope| &scope.path))),
        };
        self.check_type(&scope.path)?;
        Ok(scope)
    }

    fn check_type(&self, path: &Path) -> Result<(), Error> {
        let name = self.thread.name()?;
        let kind = self.thread.kind().at(path).ok_or_else(|| Error::no_subgraph(name, &self.place))?;
        match kind.other_than(std::any::TypeId::of::<T>()) {
            Some(found) => Err(Error::subgraph_type(name, path, found, std::any::type_name::<T>())),
            None => Ok(()),
        }
    }
}

impl<S, T> fmt::Debug for Inside<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").field("thread", &self.thread).field("place", &self.place.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => f.write_str(&nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join("/")),
            Self::Path(path) => path.fmt(f),
        }
    }
}

/// Whether the frames of a path are of these nodes.
fn leads(shape: &Arc<Shape>, path: &Path, nodes: &[NodeName]) -> bool {
    let frames = path.frames().iter().enumerate();
    let is_of = |((depth, frame), node): ((usize, &Frame), &NodeName)| {
        let outer = path.to_depth(depth);
        name_now(shape, &outer, &frame.node) == name_now(shape, &outer, node)
    };
    path.frames().len() == nodes.len() && frames.zip(nodes).all(is_of)
}

/// The last graph that began at these nodes.
fn last_at(shape: &Arc<Shape>, log: &[Entry], nodes: &[NodeName]) -> Option<Path> {
    log.iter().rev().find_map(|entry| match &entry.record {
        Record::Input(input) if leads(shape, &input.path, nodes) => Some(input.path.clone()),
        _ => None,
    })
}

/// A graph as it stands: live, with the results that are pending in its open step, or as it was recorded.
pub(super) fn state_of<T: State>(
    folded: &Folded,
    scope: &Scope,
    shape: &Arc<Shape>,
    is_live: bool,
) -> Result<ThreadState<T>, FoldError> {
    let facts = &scope.facts;
    let values = if is_live { scope.live(folded.facts.next)? } else { scope.state.clone() };
    let tasks = facts.tasks.iter().enumerate().filter(|(_, task)| task.result().is_none());
    let within = folded.facts.questions.iter().filter(|question| question.task.path.is_within(&scope.path)).cloned();
    let (waits, questions) = within.partition(|question| question.is_outside());
    Ok(ThreadState {
        values: values.view(),
        next: tasks.map(|(_, task)| name_now(shape, &scope.path, &task.due.node)).collect(),
        questions,
        waits,
        status: status(folded),
        step: scope.facts.head.map_or(scope.step_due().before(), |head| head.step),
        source: facts.head.map(|head| head.source),
        tasks: (0..facts.tasks.len()).map(|index| task_state(folded, scope, index)).collect(),
        missing: scope.missing(is_live),
    })
}

/// The name that a node of the graph at `path` has now.
fn name_now(shape: &Arc<Shape>, path: &Path, node: &NodeName) -> NodeName {
    shape.at(path).map_or_else(|| node.clone(), |shape| shape.name_now(node).clone())
}

fn task_state(folded: &Folded, scope: &Scope, index: usize) -> TaskState {
    let task = scope.task_id(index);
    let asked = |q: &&Arc<crate::log::Question>| q.task == task || folded.works_for(&q.task.path, &task);
    let questions = folded.facts.questions.iter().filter(asked).cloned().collect();
    let error = match &scope.facts.tasks[index].status {
        crate::log::TaskStatus::Failed(failure) => Some(failure.origin.code().to_owned()),
        _ => None,
    };
    TaskState { task, questions, error }
}

/// Checkpoints as they are shown, newest first.
pub(super) fn checkpoints<T: State>(seen: Vec<Seen>, shape: &Arc<Shape>) -> Vec<Checkpoint<T>> {
    let checkpoint = |Seen { position, at, scope, tasks, parent }: Seen| {
        let head = scope.facts.head?;
        Some(Checkpoint {
            position,
            at,
            branch: scope.facts.branch,
            step: head.step,
            source: head.source,
            parent,
            values: scope.state.view(),
            next: scope.next().iter().map(|node| name_now(shape, &scope.path, node)).collect(),
            tasks,
            missing: scope.missing(false),
        })
    };
    seen.into_iter().rev().filter_map(checkpoint).collect()
}
