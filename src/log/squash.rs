//! Durability "at the end": which records wait for the end of the run, and how its steps become one checkpoint.

use super::record::{Record, Source, Squashed, Stepped};
use crate::state::Change;

/// Whether a record waits for the end of a run whose steps are stored as one. Input, answers and effects never do.
pub(crate) fn is_kept_back(record: &Record) -> bool {
    match record {
        Record::Asked(question) => !question.is_doubt(),
        Record::TaskDone(_) | Record::AttemptFailed(_) | Record::TaskFailed(_) | Record::RunEnded(_) => true,
        // Edits and copies of checkpoints are not steps of the run.
        Record::Stepped(stepped) => stepped.source == Source::Loop,
        _ => false,
    }
}

/// Turns the records that were kept back into one checkpoint, with all changes in order, and what belongs to the open step behind it.
pub(crate) fn squash(kept: Vec<Record>, applied: Vec<Change>) -> Vec<Record> {
    let steps = kept.iter().filter(|record| matches!(record, Record::Stepped(stepped) if !stepped.merged.is_empty())).count();
    let Some(last) = kept.iter().rposition(|record| matches!(record, Record::Stepped(_))) else { return kept };
    let mut records = Vec::with_capacity(kept.len() - last);
    for (place, record) in kept.into_iter().enumerate().skip(last) {
        records.push(match record {
            Record::Stepped(stepped) if place == last => {
                let ran = stepped.merged.iter().map(|task| task.node.clone()).collect();
                let squashed = Some(Squashed { steps: steps as u64, last: ran });
                Record::Stepped(Box::new(Stepped { merged: Vec::new(), resolved: applied.clone(), squashed, ..*stepped }))
            }
            record => record,
        });
    }
    records
}
