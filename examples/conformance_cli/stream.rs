//! Chunks of a stream, from what happened in a run, in the order that the rules of "Stream order" give.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use ferrata::Path;

use super::expr::canonical;
use super::runs::{Happened, Shot};
use super::trace::snapshot;

/// How a run began.
#[derive(Default)]
pub(crate) struct Start {
    /// Whether its input wrote a field.
    pub(crate) wrote: bool,
    /// The checkpoint it continues from, if it has no new input.
    pub(crate) continued: Option<Shot>,
    /// Results of the open step that were there before.
    pub(crate) kept: Vec<(String, Option<Map<String, Value>>)>,
    /// The checkpoints it made, oldest first.
    pub(crate) made: Vec<Shot>,
    /// How long the log was before.
    pub(crate) log: usize,
}

/// How it ended.
#[derive(Default)]
pub(crate) struct End {
    /// The values with the updates of the open step, if questions are open.
    pub(crate) asked: Option<Map<String, Value>>,
    pub(crate) at_breakpoint: bool,
}

/// What a reader wants to see.
pub(crate) struct Watch<'m> {
    pub(crate) modes: &'m [String],
    pub(crate) subgraphs: bool,
}

/// The chunks of a run in these modes.
pub(crate) fn chunks(
    watch: &Watch<'_>,
    start: Start,
    mut inner: BTreeMap<Path, Start>,
    happened: Vec<(Path, Happened)>,
    end: &End,
) -> Vec<Value> {
    let mut streams = Streams { all: BTreeMap::from([(Path::ROOT, Stream::new(watch.modes, &Path::ROOT, start))]) };
    for (path, event) in happened {
        if let Happened::Asked { question, .. } = &event {
            // The tasks outside ask it too.
            for depth in 0..path.frames().len() {
                let outer = path.to_depth(depth);
                let asked = Happened::Asked { node: path.frames()[depth].node.to_string(), question: question.clone() };
                streams.all.get_mut(&outer).into_iter().for_each(|stream| stream.take(asked.clone()));
            }
        }
        if !path.is_root() {
            if !watch.subgraphs {
                continue;
            }
            let start = inner.remove(&path).unwrap_or_default();
            streams.all.entry(path.clone()).or_insert_with(|| Stream::new(watch.modes, &path, start));
        }
        if matches!(event, Happened::Merged { .. }) {
            streams.close_inside(&path);
        }
        streams.all.get_mut(&path).into_iter().for_each(|stream| stream.take(event.clone()));
    }
    streams.close_inside(&Path::ROOT);
    streams.all.remove(&Path::ROOT).map(|stream| stream.end(end)).unwrap_or_default()
}

/// The streams of the graphs at work: what one tells is put with the node that it is.
struct Streams<'m> {
    all: BTreeMap<Path, Stream<'m>>,
}

impl Streams<'_> {
    fn close_inside(&mut self, path: &Path) {
        let inside: Vec<Path> = self.all.keys().filter(|inner| inner.outer().as_ref() == Some(path)).cloned().collect();
        for inner in inside {
            self.close_inside(&inner);
            let (Some(stream), Some(frame)) = (self.all.remove(&inner), inner.frames().last()) else { continue };
            let chunks = stream.end(&End::default());
            if let Some(outer) = self.all.get_mut(path) {
                chunks.into_iter().for_each(|chunk| outer.of_node(frame.node.as_str(), 1, chunk));
            }
        }
    }
}

struct Stream<'m> {
    modes: BTreeSet<&'m str>,
    /// The nodes that lead to its graph.
    ns: Vec<String>,
    chunks: Vec<Value>,
    /// The values as of the open superstep's start.
    values: Map<String, Value>,
    /// The number that the open superstep's checkpoint will get.
    step: i64,
    made: std::vec::IntoIter<Shot>,
    open: Superstep,
}

/// What has happened in the superstep that is not merged yet.
#[derive(Default)]
struct Superstep {
    is_input: bool,
    wrote: bool,
    starts: Vec<(String, Value)>,
    /// Chunks by node, each with its place among the node's: custom, update, finish.
    nodes: BTreeMap<String, Vec<(u8, Value)>>,
    /// How many tasks of each node have started, and how many of them will do so again.
    tasks: BTreeMap<String, usize>,
    retries: BTreeMap<String, usize>,
    questions: Vec<Value>,
}

impl<'m> Stream<'m> {
    fn new(modes: &'m [String], path: &Path, start: Start) -> Self {
        let continued = start.continued;
        let mut stream = Stream {
            modes: modes.iter().map(String::as_str).collect(),
            ns: path.frames().iter().map(|frame| frame.node.to_string()).collect(),
            chunks: Vec::new(),
            values: continued.as_ref().map(|shot| shot.values.clone()).unwrap_or_default(),
            step: continued.as_ref().and_then(|shot| shot.step).map_or(0, |step| step + 1),
            made: start.made.into_iter(),
            open: Superstep { is_input: continued.is_none(), wrote: start.wrote, ..Superstep::default() },
        };
        match &continued {
            Some(shot) => {
                stream.values_chunk(&shot.values.clone());
                stream.checkpoint(shot);
            }
            None => stream.next_checkpoint(),
        }
        for (node, update) in start.kept {
            stream.open.wrote |= update.is_some();
            stream.updated(&node, update, true);
        }
        stream
    }

    fn take(&mut self, event: Happened) {
        match event {
            Happened::Started { node, input } => self.started(node, &input),
            Happened::Emitted { node, value } => {
                if self.modes.contains("custom") {
                    self.of_node(&node, 0, self.chunk("custom", &value));
                }
            }
            Happened::Updated { node, update } => {
                self.open.wrote |= update.is_some();
                self.updated(&node, update.clone(), false);
                let result = json!(update.unwrap_or_default());
                self.finished(&node, &json!({"result": result, "error": null, "interrupts": []}));
            }
            Happened::Failed { node, again: true } => *self.open.retries.entry(node).or_default() += 1,
            Happened::Failed { node, again: false } => {
                self.finished(&node, &json!({"result": {}, "error": "NodeError", "interrupts": []}));
            }
            Happened::Asked { node, question } => {
                self.finished(&node, &json!({"result": {}, "error": null, "interrupts": [question]}));
                self.open.questions.push(question);
            }
            Happened::Merged { values } => self.merged(values),
        }
    }

    fn started(&mut self, node: String, input: &Value) {
        let retries = self.open.retries.entry(node.clone()).or_default();
        if *retries > 0 {
            *retries -= 1;
            return;
        }
        *self.open.tasks.entry(node.clone()).or_default() += 1;
        let data = json!({"kind": "start", "name": node, "input": input});
        let chunks = self.task_chunks("task", &data);
        self.open.starts.extend(chunks.into_iter().map(|chunk| (node.clone(), chunk)));
    }

    fn updated(&mut self, node: &str, update: Option<Map<String, Value>>, cached: bool) {
        if self.modes.contains("updates") {
            let mut data = json!({ node: update });
            if cached {
                data["__cached__"] = true.into();
            }
            self.of_node(node, 2, self.chunk("updates", &data));
        }
    }

    fn finished(&mut self, node: &str, result: &Value) {
        let mut data = json!({"kind": "finish", "name": node});
        for key in ["result", "error", "interrupts"] {
            data[key] = result[key].clone();
        }
        for chunk in self.task_chunks("task_result", &data) {
            self.of_node(node, 3, chunk);
        }
    }

    /// The same data in the modes `tasks` and `debug`.
    fn task_chunks(&self, kind: &str, data: &Value) -> Vec<Value> {
        let debug = || self.chunk("debug", &json!({"type": kind, "step": self.step, "payload": data}));
        let tasks = self.modes.contains("tasks").then(|| self.chunk("tasks", data));
        tasks.into_iter().chain(self.modes.contains("debug").then(debug)).collect()
    }

    fn of_node(&mut self, node: &str, place: u8, chunk: Value) {
        self.open.nodes.entry(node.to_owned()).or_default().push((place, chunk));
    }

    fn merged(&mut self, values: Map<String, Value>) {
        let open = self.flush();
        if open.wrote {
            self.values_chunk(&values);
        }
        self.values = values;
        self.next_checkpoint();
    }

    /// Puts down what happened in the superstep, and begins another one.
    fn flush(&mut self) -> Superstep {
        let mut open = std::mem::take(&mut self.open);
        open.starts.sort_by_cached_key(|(node, chunk)| (node.clone(), canonical(chunk)));
        self.chunks.extend(open.starts.drain(..).map(|(_, chunk)| chunk));
        for (node, mut chunks) in std::mem::take(&mut open.nodes) {
            if open.tasks.get(&node).is_some_and(|tasks| *tasks > 1) {
                chunks.sort_by_cached_key(|(place, chunk)| (*place, canonical(chunk)));
            } else {
                chunks.sort_by_key(|(place, _)| *place);
            }
            self.chunks.extend(chunks.into_iter().map(|(_, chunk)| chunk));
        }
        open.questions.sort_by_cached_key(canonical);
        for mode in ["updates", "values"] {
            for question in open.questions.iter().filter(|_| self.modes.contains(mode)) {
                let mut data = if mode == "values" { json!(self.values) } else { json!({}) };
                data["__interrupt__"] = json!([question]);
                self.chunks.push(self.chunk(mode, &data));
            }
        }
        open
    }

    fn values_chunk(&mut self, values: &Map<String, Value>) {
        if self.modes.contains("values") {
            self.chunks.push(self.chunk("values", &json!(values)));
        }
    }

    /// The checkpoint that was made now. When it was made, nobody had asked or failed yet.
    fn next_checkpoint(&mut self) {
        if let Some(mut shot) = self.made.next() {
            self.step = shot.step.map_or(self.step, |step| step + 1);
            for task in &mut shot.tasks {
                (task.interrupts, task.error) = (Vec::new(), None);
            }
            self.checkpoint(&shot);
        }
    }

    fn checkpoint(&mut self, shot: &Shot) {
        let data = snapshot(Some(shot));
        if self.modes.contains("checkpoints") && shot.position.is_some() {
            self.chunks.push(self.chunk("checkpoints", &data));
        }
        if self.modes.contains("debug") && shot.position.is_some() {
            let step = &data["step"];
            self.chunks.push(self.chunk("debug", &json!({"type": "checkpoint", "step": step, "payload": data})));
        }
    }

    fn chunk(&self, mode: &str, data: &Value) -> Value {
        json!({"mode": mode, "ns": self.ns, "data": data})
    }

    fn end(mut self, end: &End) -> Vec<Value> {
        let open = self.flush();
        if let Some(values) = end.asked.as_ref().filter(|_| open.wrote && !open.is_input) {
            self.values_chunk(values);
        }
        if end.at_breakpoint && self.modes.contains("updates") {
            self.chunks.push(self.chunk("updates", &json!({"__interrupt__": []})));
        }
        self.chunks
    }
}
