//! Which questions of a thread are open: followed from append to append, and read from a thread of any graph.

use std::sync::Arc;

use super::fold::{FoldError, Folded};
use super::line::fold_line;
use super::question::Question;
use super::record::{Entry, Opened, Record};
use super::snapshot::Snapshot;
use crate::state::StateKind;

/// The questions that are open as far as the log tells. The fold of a run can be ahead of what is stored of it.
#[derive(Debug)]
pub(crate) struct OpenQuestions(Vec<Arc<Question>>);

impl OpenQuestions {
    /// Those of a thread as it was read.
    pub(crate) fn of(folded: &Folded) -> Self {
        Self(folded.facts.questions.clone())
    }

    /// Those that are open once these records are stored too; nothing if the records say nothing of questions.
    pub(crate) fn after(&mut self, records: &[Record]) -> Option<&[Arc<Question>]> {
        let mut changes = false;
        for record in records {
            match record {
                Record::Asked(question) => self.0.push(Arc::clone(question)),
                Record::Answered(answered) => self.0.retain(|question| question.id != answered.question),
                Record::Closed(closed) => self.0.retain(|question| !closed.questions.contains(&question.id)),
                Record::Expired(expired) => self.0.retain(|question| question.id != expired.question),
                Record::Delivered(delivered) => self.0.retain(|question| question.id != delivered.question),
                Record::Reminded(reminded) => {
                    let known = self.0.iter_mut().filter(|question| question.id == reminded.question);
                    known.for_each(|question| Arc::make_mut(question).reminded = reminded.reminders);
                }
                // What is left may have others than the checkpoint that was read.
                Record::Forked(_) => self.0.clear(),
                // New input and edits close what they take the place of by a record of its own.
                _ => continue,
            }
            changes = true;
        }
        changes.then_some(&*self.0)
    }
}

/// The open questions of a thread, whatever graph it belongs to: states are folded as they were recorded, with secrets as they are stored. `program` is asked
/// for what older logs do not tell, if the thread is one of its graph. Nothing if the thread's line leads through records that are not among these.
pub(crate) fn open_questions(
    snapshot: Option<Snapshot>,
    entries: &[Entry],
    program: impl FnOnce(&Opened) -> Option<Arc<StateKind>>,
) -> Result<Option<Vec<Arc<Question>>>, FoldError> {
    let opened = match (&snapshot, entries.first().map(|first| &first.record)) {
        (Some(snapshot), _) => snapshot.opened(),
        (None, Some(Record::Opened(opened))) => Some(&**opened),
        _ => None,
    };
    let Some(opened) = opened else { return Ok(Some(Vec::new())) };
    let kind = opened.kind(program(opened).as_ref());
    let base = match snapshot {
        Some(snapshot) => snapshot.restore(&kind)?,
        None => Folded::new(kind),
    };
    Ok(fold_line(base, entries, None)?.map(|folded| folded.facts.questions))
}
