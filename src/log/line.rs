//! Branches: which records make up the line of history that leads to a position.

use super::fold::{FoldError, Folded};
use super::record::{Entry, Record};
use crate::id::Position;

/// Folds the line that leads to `to`, or to the end of the log. `base` is the fold of all records before the first of `entries`, and these go to
/// the end of the log. Nothing if the line leads through what stands before them.
pub(crate) fn fold_line(base: Folded, entries: &[Entry], to: Option<Position>) -> Result<Option<Folded>, FoldError> {
    let first = base.facts.next;
    let end = to.map_or(entries.len(), |to| index(first, to).map_or(0, |index| (index + 1).min(entries.len())));
    let Some(segments) = segments(first, entries, end)? else { return Ok(None) };
    let forks = base.facts.forks;
    let mut folded = base;
    for segment in segments {
        for entry in segment {
            folded.facts.next = entry.position;
            folded.fold(&entry.record)?;
        }
    }
    // Whatever the line leaves out is in the log all the same: the next record goes behind all of it.
    folded.facts.next = Position(first.0 + entries.len() as u64);
    folded.facts.forks = forks + entries.iter().filter(|e| matches!(e.record, Record::Forked(_))).count() as u32;
    Ok(Some(folded))
}

fn index(first: Position, position: Position) -> Option<usize> {
    usize::try_from(position.0.checked_sub(first.0)?).ok()
}

/// The stretches of records that follow each other in the line to `end`, the first one first.
fn segments(first: Position, entries: &[Entry], mut end: usize) -> Result<Option<Vec<&[Entry]>>, FoldError> {
    let mut segments = Vec::new();
    loop {
        let fork = entries[..end].iter().rposition(|entry| matches!(entry.record, Record::Forked(_)));
        let start = fork.unwrap_or(0);
        segments.push(&entries[start..end]);
        let Some(Record::Forked(forked)) = fork.map(|fork| &entries[fork].record) else { break };
        let Some(parent) = index(first, forked.parent) else { return Ok(None) };
        // A fork of what came later would never end.
        if parent >= start {
            return Err(FoldError::Misplaced { position: entries[start].position, what: "forked" });
        }
        end = parent + 1;
    }
    segments.reverse();
    Ok(Some(segments))
}

/// Where the log may begin so that at least the checkpoints that `keeps` says stay, the newest always, and every fork behind it finds its parent.
/// Nothing if no checkpoint can go.
pub(crate) fn cut(entries: &[Entry], keeps: impl Fn(usize, &Entry) -> bool) -> Option<Position> {
    let checkpoints: Vec<&Entry> =
        entries.iter().filter(|entry| entry.record.checkpoint().is_some_and(|path| path.is_root())).collect();
    let newest = checkpoints.len().checked_sub(1)?;
    let kept = (0..checkpoints.len()).find(|index| *index == newest || keeps(newest - index, checkpoints[*index]))?;
    let mut at = checkpoints[kept].position;
    // From the end: the parent of a fork may stand behind an earlier one.
    for entry in entries.iter().rev() {
        match &entry.record {
            Record::Forked(forked) if entry.position >= at => at = at.min(forked.parent),
            _ => {}
        }
    }
    checkpoints.iter().any(|checkpoint| checkpoint.position < at).then_some(at)
}
