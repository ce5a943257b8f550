//! The tracing spans of a run: run, step, task, attempt; an effect's is in its own place.

use std::collections::HashMap;

use tracing::{Span, info_span};

use crate::id::{StepNumber, TaskId, ThreadName};

/// The spans that are open now. With nobody listening none is made.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    step: Option<(StepNumber, Span)>,
    /// Tasks of the step; the attempts of one task share its span.
    tasks: HashMap<usize, Span>,
}

impl Spans {
    /// The span of an attempt, in that of its task, in that of its step, in that of the run.
    pub(crate) fn attempt(&mut self, task: &TaskId, index: usize, number: u32) -> Span {
        if tracing::enabled!(tracing::Level::INFO) {
            let step = self.step(task.step).clone();
            let span = self.tasks.entry(index).or_insert_with(|| info_span!(parent: &step, "task", task = %task));
            info_span!(parent: &*span, "attempt", number)
        } else {
            Span::none()
        }
    }

    fn step(&mut self, number: StepNumber) -> &Span {
        if self.step.as_ref().is_none_or(|(open, _)| *open != number) {
            self.tasks.clear();
            self.step = None;
        }
        &self.step.get_or_insert_with(|| (number, info_span!("step", number = number.0))).1
    }
}

/// The span of a run.
pub(crate) fn run(graph: &str, thread: &ThreadName) -> Span {
    info_span!("run", graph, thread = %thread)
}
