//! The tracing spans of a run: run, step, task, attempt; an effect's is in its own place.

use std::collections::{BTreeMap, HashMap};

use tracing::{Span, info_span};

use crate::id::{NodeName, Path, StepNumber, TaskId, ThreadName};

/// The spans that are open now, by graph. With nobody listening none is made.
#[derive(Debug, Default)]
pub(crate) struct Spans(HashMap<Path, Step>);

/// The span of a step, and those of its tasks; the attempts of one task share its span.
#[derive(Debug)]
struct Step {
    number: StepNumber,
    span: Span,
    tasks: HashMap<(NodeName, Option<u32>), Span>,
}

impl Spans {
    /// The span of an attempt, in that of its task, in that of its step, in that of the run or of the task that called the graph.
    pub(crate) fn attempt(&mut self, task: &TaskId, number: u32) -> Span {
        if !tracing::enabled!(tracing::Level::INFO) {
            return Span::none();
        }
        if self.0.get(&task.path).is_none_or(|step| step.number != task.step) {
            let number = task.step.0;
            let span = match self.caller(&task.path) {
                Some(caller) => info_span!(parent: caller, "step", number),
                None => info_span!("step", number),
            };
            self.0.insert(task.path.clone(), Step { number: task.step, span, tasks: HashMap::new() });
        }
        let Some(step) = self.0.get_mut(&task.path) else { return Span::none() };
        let key = (task.node.clone(), task.send);
        let span = step.tasks.entry(key).or_insert_with(|| info_span!(parent: &step.span, "task", task = %task));
        info_span!(parent: &*span, "attempt", number)
    }

    /// The graph at `path` has come to an end.
    pub(crate) fn forget(&mut self, path: &Path) {
        self.0.remove(path);
    }

    fn caller(&self, path: &Path) -> Option<&Span> {
        let frame = path.frames().last()?;
        let mut tasks = self.0.get(&path.outer()?)?.tasks.iter();
        tasks.find(|((node, send), _)| *node == frame.node && *send == frame.send).map(|(_, span)| span)
    }
}

/// The span of a run.
pub(crate) fn run(graph: &str, thread: &ThreadName, tags: &BTreeMap<String, String>) -> Span {
    if tags.is_empty() { info_span!("run", graph, thread = %thread) } else { info_span!("run", graph, thread = %thread, ?tags) }
}
