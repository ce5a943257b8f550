//! Graphs that a node calls again, in a later attempt or round, with another input than before.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::call::{Call, CallInput};
use super::{Env, Machine, Place, Step};
use crate::error::{Class, Failure, Origin, shortened};
use crate::graph::Shape;
use crate::id::{Frame, Path, TaskId};
use crate::log::{Arguments, Marked, Record};
use crate::state::{Change, fingerprint};

impl Call {
    /// What the graph is called with, if that is the caller's own choice: what a node that is a graph begins with follows from the state. Secret
    /// fields are no part of it, since a fingerprint tells something of what it is made of.
    pub(super) fn arguments(&self, shape: &Shape) -> Option<Arguments> {
        let (Some(_), CallInput::Changes(changes)) = (&self.graph, &self.input) else { return None };
        let is_taken = |name: &str| shape.input.as_ref().is_none_or(|fields| fields.iter().any(|field| field == name));
        let told = changes.iter().filter(|change| is_taken(&change.field) && !shape.schema.is_secret(&change.field));
        let told: Vec<&Change> = told.collect();
        // They may be as deep as a value can be, and this is around them.
        let exact = serde_json::to_value(&told).ok()?;
        Some(Arguments { fingerprint: fingerprint(&exact), shown: shortened(&Value::Object(shown(&told)).to_string()) })
    }
}

/// Changes as people read them: what is not simply set shows how it is written.
fn shown(changes: &[&Change]) -> Map<String, Value> {
    let one = |change: &Change| {
        let value = match serde_json::to_value(&change.op) {
            Ok(Value::Object(mut op)) if op.contains_key("set") => op.remove("set").unwrap_or_default(),
            op => op.unwrap_or_default(),
        };
        (change.field.to_string(), value)
    };
    changes.iter().map(|change| one(change)).collect()
}

impl Machine {
    /// Where the graph runs that a task calls, and whether it begins anew there although the task called it before. With another input it does in a
    /// later round of the node: elsewhere, and what keeps its state in its own place. Else another input is an error of the caller's.
    pub(super) fn place_of_call(
        &self,
        place: &Place,
        task: &TaskId,
        frame: Frame,
        now: Option<&Arguments>,
    ) -> Result<(Path, bool), Failure> {
        let path = task.path.inner(frame.clone());
        let called = self.folded.scope(&path).filter(|scope| scope.facts.caller.as_ref() == Some(task));
        let then = called.and_then(|scope| scope.facts.arguments.clone()).or_else(|| self.noted_input(task, &frame));
        let Some((then, now)) = then.zip(now).filter(|(then, now)| then.fingerprint != now.fingerprint) else {
            return Ok((path, false));
        };
        let round = self.folded.scope(&place.path).and_then(|scope| scope.facts.tasks.get(place.index));
        match frame.step {
            _ if round.is_none_or(|task| task.feedback.is_empty()) => Err(other_input(frame.key(), &then, now)),
            None => Ok((path, true)),
            Some(_) => Ok((task.path.inner(Frame { input: Some(now.fingerprint.as_str().into()), ..frame }), false)),
        }
    }

    /// A task begins to call a graph. What is recorded of a graph whose steps are not are its effects, and in a later round, whose input may be another
    /// one, it has to be known whose they are.
    pub(super) fn note_input(&mut self, task: &TaskId, path: &Path, given: Option<&Arguments>, env: &Env<'_>) -> Step {
        let frame = path.frames().last().filter(|frame| frame.input.is_none());
        let (Some(frame), Some(given), false) = (frame, given, self.is_stored(path)) else { return Ok(()) };
        let shape = self.motion(&task.path).map(|motion| &motion.shape);
        let rounds = shape.and_then(|shape| Some(shape.nodes[shape.index(&task.node)?].policy.rounds));
        if rounds.unwrap_or_default() == 0 || !self.is_stored(&task.path) || self.noted_input(task, frame).is_some() {
            return Ok(());
        }
        let (key, value) = (mark(frame), Value::String(given.fingerprint.clone()));
        self.record(Record::Marked(Box::new(Marked { task: task.clone(), key, value, at: env.now })))
    }

    fn noted_input(&self, task: &TaskId, frame: &Frame) -> Option<Arguments> {
        let noted = self.folded.facts.journals.get(task)?.mark(&mark(frame))?.as_str()?;
        Some(Arguments { fingerprint: noted.to_owned(), shown: format!("another input ({noted})") })
    }
}

/// What the input of a call is marked with. No key of a node's own begins like that.
fn mark(frame: &Frame) -> Arc<str> {
    format!("\0input {frame}").into()
}

fn other_input(key: &str, then: &Arguments, now: &Arguments) -> Failure {
    let message = format!(
        "graph \"{key}\" was called with {}, and the node now calls it with {}; the input and the order of calls must depend on nothing but the state \
         and earlier results: for another input, call it once more, or by another key",
        then.shown, now.shown
    );
    Failure { origin: Origin::EffectArguments, class: Class::Deterministic, message, causes: Vec::new(), tried: false }
}
