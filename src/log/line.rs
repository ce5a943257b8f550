//! Branches: which records make up the line of history that leads to a position.

use super::fold::{FoldError, Folded};
use super::record::{Entry, Record};
use crate::id::Position;

/// Folds the line that leads to `to`, or to the end of the log. `entries` are all records of the thread from the first one on.
pub(crate) fn fold_line(mut folded: Folded, entries: &[Entry], to: Option<Position>) -> Result<Folded, FoldError> {
    let end = to.map_or(entries.len(), |to| (to.0 as usize + 1).min(entries.len()));
    for segment in segments(entries, end)? {
        for entry in segment {
            folded.facts.next = entry.position;
            folded.fold(&entry.record)?;
        }
    }
    // Whatever the line leaves out is in the log all the same: the next record goes behind all of it.
    folded.facts.next = Position(entries.len() as u64);
    folded.facts.forks = entries.iter().filter(|e| matches!(e.record, Record::Forked(_))).count() as u32;
    Ok(folded)
}

/// The stretches of records that follow each other in the line to `end`, the first one first.
fn segments(entries: &[Entry], mut end: usize) -> Result<Vec<&[Entry]>, FoldError> {
    let mut segments = Vec::new();
    loop {
        let fork = entries[..end].iter().rposition(|entry| matches!(entry.record, Record::Forked(_)));
        let start = fork.unwrap_or(0);
        segments.push(&entries[start..end]);
        let Some(Record::Forked(forked)) = fork.map(|fork| &entries[fork].record) else { break };
        let parent = usize::try_from(forked.parent.0).unwrap_or(usize::MAX);
        // A fork of what came later would never end.
        if parent >= start {
            return Err(FoldError::Misplaced { position: entries[start].position, what: "forked" });
        }
        end = parent + 1;
    }
    segments.reverse();
    Ok(segments)
}
