//! Graphs that a task calls: how they begin, and what comes of them.

use std::any::TypeId;
use std::sync::Arc;

use super::{Command, Ending, Env, Live, Machine, Motion, Place, Step};
use crate::error::{Class, Failure, Origin};
use crate::graph::Keeps;
use crate::id::{Frame, NodeName, Path, TaskId};
use crate::log::{Arguments, Target};
use crate::state::{Change, StateCell, check};

/// A task calls a graph.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) place: Place,
    /// What the graph is declared as, if the node is not that graph itself.
    pub(crate) graph: Option<Arc<str>>,
    /// Counts the calls of one graph in one attempt.
    pub(crate) call: u32,
    pub(crate) on_error: bool,
    /// The type of the state that the caller takes it to have.
    pub(crate) expects: TypeId,
    pub(crate) input: CallInput,
}

/// What a called graph begins with.
#[derive(Debug)]
pub(crate) enum CallInput {
    Changes(Vec<Change>),
    /// The state of the graph outside, and these changes of it. What the graph changes is what comes of it.
    Shared(Vec<Change>),
}

/// How a graph inside begins.
pub(super) struct Called {
    pub(super) caller: TaskId,
    /// Whether it begins with the state of the graph outside.
    pub(super) shared: bool,
    /// Where it kept its state until now, if its node had another name.
    pub(super) was: Option<Path>,
    /// What a node called it with by a key.
    pub(super) arguments: Option<Arguments>,
}

/// What came of a graph that was called.
#[derive(Debug)]
pub(crate) enum CallOutcome {
    /// It ended, with that state, of which it gives these fields back, and with those changes if it shares the state.
    Done {
        state: StateCell,
        output: Option<Vec<String>>,
        changes: Vec<Change>,
    },
    /// One of its nodes spoke to the graph outside.
    Handed {
        changes: Vec<Change>,
        goto: Vec<Target>,
    },
    /// It cannot go on in this run: a person has to answer, or there is a breakpoint.
    Paused,
    Failed(Failure),
}

impl Machine {
    /// A task calls a graph: one that it called before goes on where it stands. An error is the caller's own.
    pub(crate) fn call_starts(&mut self, call: Call, env: &Env<'_>) -> Step<Result<Path, Failure>> {
        let refuse = |message: String| {
            Ok(Err(Failure { origin: Origin::Node, class: Class::Deterministic, message, causes: Vec::new(), tried: false }))
        };
        let Some((task, motion)) = self.current(&call.place).zip(self.motion(&call.place.path)) else {
            return refuse("the attempt is over".to_owned());
        };
        let key = call.graph.as_deref().unwrap_or(task.node.as_str());
        let Some(subgraph) = motion.shape.subgraph(key) else {
            return refuse(format!("there is no graph \"{key}\" to call; there are: {}", motion.shape.subgraph_names()));
        };
        let shape = Arc::clone(&subgraph.shape);
        if let Some(name) = shape.kind.other_than(call.expects) {
            return refuse(format!("the state of the graph \"{key}\" is {name}; call it with that type"));
        }
        let arguments = call.arguments(&shape);
        let frame = frame(&call, &task, subgraph.keeps);
        let (path, anew) = match self.place_of_call(&call.place, &task, frame, arguments.as_ref()) {
            Ok(place) => place,
            Err(failure) => return Ok(Err(failure)),
        };
        if self.inner.contains_key(&path) || self.is_called_by_another(&path, &task) {
            return refuse(format!(
                "the graph \"{key}\" keeps its state and is at work for another task; call it one after the other"
            ));
        }
        if let Some(failure) = self.spoiled.get(&path) {
            return Ok(Err(failure.clone()));
        }
        let known = self.folded.scope(&path).filter(|scope| !anew && scope.facts.caller.as_ref() == Some(&task));
        let tasks = known.map(|scope| scope.facts.tasks.len());
        if tasks.is_none()
            && let CallInput::Changes(changes) | CallInput::Shared(changes) = &call.input
        {
            if let Err(error) = check(&shape.schema, changes) {
                return refuse(format!("the input of the graph \"{key}\" cannot be applied: {error}"));
            }
            if let Err(failure) = self.bounds.changes(|| format!("the input of the graph \"{key}\""), changes) {
                return Ok(Err(failure.seen_outside()));
            }
        }
        // An input that could not be applied the last time still has to be.
        let is_begun = self.folded.scope(&path).is_some_and(|scope| scope.facts.input.is_none());
        self.waits_for_call(&call.place, true);
        self.inner.insert(path.clone(), Motion::new(shape, tasks.unwrap_or(0)));
        let begun = match tasks {
            Some(_) if is_begun => Ok(()),
            Some(_) => self.merge_step(&path)?,
            None => {
                self.note_input(&task, &path, arguments.as_ref(), env)?;
                let (changes, shared) = match call.input {
                    CallInput::Changes(changes) => (changes, false),
                    CallInput::Shared(changes) => (changes, true),
                };
                let called = Called { was: self.was(&path, &task), caller: task, shared, arguments };
                self.take_input(&path, Some(called), changes, env)?
            }
        };
        match begun {
            Err(failure) => self.call_ends(&path, Ending::Failed(failure))?,
            Ok(()) if !(tasks.is_some() && is_begun) && self.stops_here(&path) => self.call_ends(&path, Ending::Paused)?,
            Ok(()) => self.proceed(&path, env)?,
        }
        Ok(Ok(path))
    }

    /// Where a graph that keeps its state did so when its node had another name, if it was not called since.
    fn was(&self, path: &Path, task: &TaskId) -> Option<Path> {
        let frame = path.frames().last().filter(|frame| frame.step.is_none() && self.folded.scope(path).is_none())?;
        let earlier = |old: &NodeName| task.path.inner(Frame { node: old.clone(), ..frame.clone() });
        let shape = self.root.shape.at(&task.path)?;
        shape.earlier_names(&task.node).map(earlier).find(|path| self.folded.scope(path).is_some())
    }

    /// A graph has come to an end in this run: its caller goes on.
    pub(super) fn call_ends(&mut self, path: &Path, ending: Ending) -> Step {
        self.inner.remove(path);
        let outcome = match (ending, self.folded.scope(path)) {
            (Ending::Done, Some(scope)) => {
                let output = self.root.shape.at(path).and_then(|shape| shape.output.clone());
                CallOutcome::Done { state: scope.state.clone(), output, changes: scope.net_changes()? }
            }
            (Ending::Handed { changes, goto }, _) => CallOutcome::Handed { changes, goto },
            (Ending::Failed(failure), _) => CallOutcome::Failed(failure.seen_outside()),
            _ => CallOutcome::Paused,
        };
        let caller = self.folded.scope(path).and_then(|scope| scope.facts.caller.clone());
        if let Some((scope, index)) = caller.as_ref().and_then(|caller| self.folded.find(caller))
            && let Some(Live::Running { serial, .. }) =
                self.motion(&scope.path).and_then(|motion| motion.tasks.get(index)).copied()
        {
            let place = Place { path: scope.path.clone(), index, serial };
            self.waits_for_call(&place, false);
        }
        self.commands.push(Command::Answer { path: path.clone(), outcome });
        Ok(())
    }

    /// Whether another task called the graph and has no result yet: it has to find it as it left it.
    fn is_called_by_another(&self, path: &Path, task: &TaskId) -> bool {
        let caller = self.folded.scope(path).and_then(|scope| scope.facts.caller.as_ref()).filter(|caller| *caller != task);
        let found = caller.and_then(|caller| self.folded.find(caller));
        found.is_some_and(|(outer, index)| outer.facts.tasks[index].result().is_none())
    }

    /// A task that waits for a graph is not at work.
    fn waits_for_call(&mut self, place: &Place, begins: bool) {
        let Some(motion) = self.motion_mut(&place.path) else { return };
        let Some(Live::Running { calls, .. }) = motion.tasks.get_mut(place.index) else { return };
        let before = *calls;
        *calls = if begins { before + 1 } else { before.saturating_sub(1) };
        match (before, *calls) {
            (0, 1) => self.at_work -= 1,
            (1, 0) => self.at_work += 1,
            _ => {}
        }
    }

    /// A task has ended: nobody waits any more for the graphs that it called.
    pub(super) fn cut_off(&mut self, task: &TaskId) {
        if self.inner.is_empty() {
            return;
        }
        let inside: Vec<Path> = self.inner.keys().filter(|path| self.folded.works_for(path, task)).cloned().collect();
        for path in inside {
            if let Some(motion) = self.inner.remove(&path) {
                self.at_work -= motion.at_work();
            }
            self.held_back.remove(&path);
            self.take_back(|of| of.is_within(&path));
            self.commands.push(Command::Abort(path));
        }
    }
}

fn frame(call: &Call, task: &TaskId, keeps: Keeps) -> Frame {
    let continued = keeps == Keeps::Continued;
    Frame {
        node: task.node.clone(),
        step: (!continued).then_some(task.step),
        send: task.send.filter(|_| !continued),
        graph: call.graph.clone(),
        call: call.call,
        on_error: call.on_error,
        input: None,
    }
}
