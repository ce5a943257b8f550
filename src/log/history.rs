//! History: every checkpoint of a thread as it was recorded, in whichever line.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::fold::{FoldError, Folded};
use super::question::Question;
use super::record::{Entry, Record, RunOutcome};
use crate::id::{NodeName, Position, TaskId};

/// A task of a step, as it stands or as it was recorded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskState {
    /// The task.
    pub task: TaskId,
    /// What it asked last, answered or not.
    pub questions: Vec<Arc<Question>>,
    /// The code of the error it failed with, for example `node-failed`.
    pub error: Option<String>,
}

/// A checkpoint: what the fold of its line yields there, and what became of its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) position: Position,
    pub(crate) folded: Folded,
    pub(crate) tasks: Vec<TaskState>,
    /// Whether another checkpoint comes before it in its line.
    pub(crate) parent: bool,
}

/// All checkpoints in the order in which they were written. `entries` are all records of the thread.
///
/// Holds the state of each checkpoint: it costs as much as all of them together.
pub(crate) fn history(fresh: Folded, entries: &[Entry]) -> Result<Vec<Seen>, FoldError> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut places: HashMap<Position, usize> = HashMap::new();
    let mut folded = fresh;
    // Tasks that were answered, and run again: what they ask next takes the place of what they asked.
    let mut answered: HashSet<TaskId> = HashSet::new();
    // The checkpoint that the records are about.
    let mut current: Option<usize> = None;
    for Entry { position, record } in entries {
        if let Record::Forked(forked) = record {
            let misplaced = FoldError::Misplaced { position: *position, what: "forked" };
            current = Some(*places.get(&forked.parent).ok_or(misplaced)?);
            folded = current.map_or(folded, |at| seen[at].folded.clone());
        }
        folded.facts.next = *position;
        folded.fold(record)?;
        if matches!(record, Record::Input(input) if input.unlisted) {
            continue;
        }
        if matches!(record, Record::Input(_) | Record::Stepped(_)) {
            let tasks = (0..folded.facts.tasks.len()).map(|index| folded.facts.task_id(index));
            let tasks = tasks.map(|task| TaskState { task, questions: Vec::new(), error: None }).collect();
            places.insert(*position, seen.len());
            seen.push(Seen { position: *position, folded: folded.clone(), tasks, parent: current.is_some() });
            current = Some(seen.len() - 1);
        } else if let Some(at) = current {
            note(&mut seen[at].tasks, &mut answered, record);
        }
    }
    Ok(seen)
}

/// What a record says about a task of the step.
fn note(tasks: &mut [TaskState], answered: &mut HashSet<TaskId>, record: &Record) {
    let of = |tasks: &mut [TaskState], task: &TaskId, then: &dyn Fn(&mut TaskState)| {
        tasks.iter_mut().filter(|state| state.task == *task).for_each(then);
    };
    match record {
        Record::Asked(question) => {
            let again = answered.remove(&question.task);
            of(tasks, &question.task, &|state| {
                if again {
                    state.questions.clear();
                }
                state.questions.push(Arc::clone(question));
            });
        }
        Record::Answered(answer) => {
            let asked = tasks.iter().filter(|state| state.questions.iter().any(|q| q.id == answer.question));
            answered.extend(asked.map(|state| state.task.clone()));
        }
        Record::TaskDone(done) => of(tasks, &done.task, &|state| state.error = None),
        Record::TaskFailed(failed) if !failed.handled => {
            of(tasks, &failed.task, &|state| state.error = Some(failed.failure.origin.code().to_owned()));
        }
        Record::RunEnded(ended) => {
            if let RunOutcome::Failed(fault) = &ended.outcome
                && fault.code == "route"
                && let Some(node) = &fault.node
            {
                let node: &NodeName = node;
                tasks.iter_mut().filter(|s| s.task.node == *node).for_each(|s| s.error = Some(fault.code.clone()));
            }
        }
        _ => {}
    }
}
