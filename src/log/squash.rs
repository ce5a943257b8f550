//! Durability "at the end": which records wait for the end of the run, and how the steps of each graph become one checkpoint.

use std::collections::HashMap;

use super::fold::Folded;
use super::parts::Source;
use super::record::{CloseReason, Input, Record, Squashed, Stepped};
use crate::id::Path;

/// Whether a record waits for the end of a run whose steps are stored as one. Input, answers and effects never do.
pub(crate) fn is_kept_back(record: &Record) -> bool {
    match record {
        Record::Asked(question) => !question.is_doubt(),
        Record::TaskDone(_) | Record::AttemptFailed(_) | Record::TaskFailed(_) | Record::RunEnded(_) => true,
        Record::Input(input) => !input.path.is_root(),
        Record::Closed(closed) => closed.why == CloseReason::Abandoned,
        // Edits and copies of checkpoints are not steps of the run.
        Record::Stepped(stepped) => stepped.source == Source::Loop,
        _ => false,
    }
}

/// Turns the records that were kept back into one checkpoint for each graph that is still there, with all changes in order, and what
/// belongs to its open step behind it.
pub(crate) fn squash(kept: Vec<Record>, folded: &Folded) -> Vec<Record> {
    let mut last: HashMap<Path, Last> = HashMap::new();
    for (place, record) in kept.iter().enumerate() {
        match record {
            Record::Stepped(stepped) => {
                let last = last.entry(stepped.path.clone()).or_default();
                (last.step, last.steps) = (place, last.steps + u64::from(!stepped.merged.is_empty()));
            }
            Record::Input(input) => {
                let last = last.entry(input.path.clone()).or_default();
                (last.input, last.was) = (Some(place), last.was.take().or_else(|| input.was.clone()));
            }
            _ => {}
        }
    }
    let mut records = Vec::new();
    for (place, record) in kept.into_iter().enumerate() {
        let Some(path) = record.step_path().or_else(|| asked_in(&record)) else {
            records.push(record);
            continue;
        };
        let (Some(scope), Last { input, step, steps, was }) = (folded.scope(path), last.get(path).cloned().unwrap_or_default())
        else {
            continue;
        };
        match record {
            Record::Input(call) if input == Some(place) => {
                records.push(Record::Input(Box::new(Input { unlisted: true, was, ..*call })))
            }
            Record::Stepped(stepped) if place == step => {
                let ran = stepped.merged.iter().map(|task| task.node.clone()).collect();
                let resolved = scope.applied.clone().unwrap_or_default();
                let (squashed, written) =
                    (Some(Squashed { steps, last: ran, rounds: scope.counted.clone() }), scope.facts.written.clone());
                records.push(Record::Stepped(Box::new(Stepped { merged: Vec::new(), resolved, squashed, written, ..*stepped })));
            }
            record if place >= step => records.push(record),
            _ => {}
        }
    }
    records
}

/// Where the last checkpoint of a graph and its last input stand, and how many steps were made.
#[derive(Clone, Default)]
struct Last {
    input: Option<usize>,
    step: usize,
    steps: u64,
    /// Where the graph kept its state before the run.
    was: Option<Path>,
}

fn asked_in(record: &Record) -> Option<&Path> {
    match record {
        Record::Asked(question) => Some(&question.task.path),
        _ => None,
    }
}
