//! History: every checkpoint of a thread as it was recorded, in whichever line.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::fold::{FoldError, Folded};
use super::question::Question;
use super::record::{Entry, Record, RunOutcome};
use super::scope::Scope;
use crate::clock::Timestamp;
use crate::id::{NodeName, Path, Position, QuestionId, TaskId};

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
    pub(crate) at: Timestamp,
    pub(crate) scope: Scope,
    pub(crate) tasks: Vec<TaskState>,
    /// Whether another checkpoint comes before it in its line.
    pub(crate) parent: bool,
}

/// All checkpoints of the graph at `path`, in the order in which they were written. `base` is the fold of
/// what stands before `entries`, and these go to the end of the log.
///
/// Holds the state of each checkpoint: it costs as much as all of them together.
pub(crate) fn history(base: Folded, entries: &[Entry], path: &Path) -> Result<Vec<Seen>, FoldError> {
    let mut seen: Vec<Seen> = Vec::new();
    // The checkpoints of all graphs, since the line can be forked at each, with the one of this graph that is the newest there.
    let mut places: HashMap<Position, (Folded, Option<usize>)> = HashMap::new();
    let forked: HashSet<Position> = entries.iter().filter_map(|entry| Some(entry.record.forked()?.parent)).collect();
    let mut folded = base;
    // What a task asks next takes the place of what was answered.
    let mut answered: HashSet<QuestionId> = HashSet::new();
    // The checkpoint that the records are about.
    let mut current: Option<usize> = None;
    for Entry { position, at, record } in entries {
        if let Record::Forked(forked) = record {
            let misplaced = FoldError::Misplaced { position: *position, what: "forked" };
            (folded, current) = places.get(&forked.parent).cloned().ok_or(misplaced)?;
        }
        folded.facts.next = *position;
        folded.fold(record)?;
        if matches!(record, Record::Input(input) if input.unlisted) {
            continue;
        }
        match record.checkpoint() {
            Some(of) if of == path => {
                let Some(scope) = folded.scope(path).cloned() else { continue };
                let tasks = (0..scope.facts.tasks.len()).map(|index| scope.task_id(index));
                let tasks = tasks.map(|task| TaskState { task, questions: Vec::new(), error: None }).collect();
                seen.push(Seen { position: *position, at: *at, scope, tasks, parent: current.is_some() });
                current = Some(seen.len() - 1);
            }
            // Its caller's step is merged: another call begins anew.
            Some(_) if folded.scope(path).is_none() => current = None,
            _ => {
                if let Some(at) = current {
                    note(&mut seen[at].tasks, &mut answered, record);
                }
            }
        }
        if forked.contains(position) {
            places.insert(*position, (folded.clone(), current));
        }
    }
    Ok(seen)
}

/// What a record says about a task of the step.
fn note(tasks: &mut [TaskState], answered: &mut HashSet<QuestionId>, record: &Record) {
    let of = |tasks: &mut [TaskState], task: &TaskId, then: &dyn Fn(&mut TaskState)| {
        tasks.iter_mut().filter(|state| state.task == *task).for_each(then);
    };
    match record {
        Record::Asked(question) => {
            for state in tasks.iter_mut().filter(|s| s.task == question.task || question.task.path.is_inside(&s.task)) {
                state.questions.retain(|earlier| !answered.contains(&earlier.id));
                state.questions.push(Arc::clone(question));
            }
        }
        Record::Answered(answer) => _ = answered.insert(answer.question),
        Record::Expired(expired) => _ = answered.insert(expired.question),
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
