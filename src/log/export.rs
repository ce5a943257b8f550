//! A thread as lines of JSON, and back.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::record::{Entry, Record};
use super::snapshot::Snapshot;
use crate::id::{Position, ThreadName};
use crate::state::Schema;

/// The version of what is exported.
const VERSION: u32 = 1;

/// No log is as long. Behind it the numbers would run out.
const POSITION_MAX: u64 = u64::MAX / 2;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Heading {
    ferrata_export: u32,
    thread: ThreadName,
    /// Position of the first record.
    from: Position,
    /// How many records follow.
    records: u64,
}

/// A line that is no record.
#[derive(Serialize, Deserialize)]
struct Base<S> {
    snapshot: S,
}

/// Why lines are no thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It could not be read or written.
    #[error("the export could not be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// A newer program wrote it.
    #[error("the export has version {found}, this program reads up to {VERSION}; use the newer program")]
    Newer {
        /// Its version.
        found: u32,
    },
    /// A line is not what it should be.
    #[error("line {line} of the export is wrong: {why}; nothing was imported")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
}

/// A whole thread outside a store.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) thread: ThreadName,
    pub(crate) base: Option<Snapshot>,
    pub(crate) entries: Vec<Entry>,
}

impl Exported {
    pub(crate) fn write(&self, into: &mut dyn Write) -> Result<(), ExportError> {
        let from = self.base.as_ref().map_or(Position(0), Snapshot::position);
        let heading = Heading { ferrata_export: VERSION, thread: self.thread.clone(), from, records: self.entries.len() as u64 };
        line(into, &heading)?;
        if let Some(snapshot) = &self.base {
            line(into, &Base { snapshot })?;
        }
        self.entries.iter().try_for_each(|entry| line(into, entry))?;
        Ok(into.flush()?)
    }

    pub(crate) fn read(from: &mut dyn BufRead) -> Result<Self, ExportError> {
        let mut lines = Lines { from, number: 0 };
        let Heading { ferrata_export, thread, from, records } = lines.next()?;
        if ferrata_export > VERSION {
            return Err(ExportError::Newer { found: ferrata_export });
        }
        ThreadName::new(thread.as_str()).map_err(|error| lines.wrong(error))?;
        if from == Position(0) && records == 0 {
            return Err(lines.wrong("there is nothing in it"));
        }
        if from.0.checked_add(records).is_none_or(|end| end >= POSITION_MAX) {
            return Err(lines.wrong(format!("no thread has {records} records from {} on", from.0)));
        }
        let base = if from == Position(0) { None } else { Some(lines.next::<Base<Snapshot>>()?.snapshot) };
        if base.as_ref().is_some_and(|base| base.position() != from) {
            return Err(lines.wrong("the snapshot does not stand where the records begin"));
        }
        if base.as_ref().and_then(Snapshot::opened).is_some_and(|opened| opened.thread != thread) {
            return Err(lines.wrong(of_another(&thread)));
        }
        let mut entries = Vec::new();
        for position in (from.0..).take(usize::try_from(records).unwrap_or(usize::MAX)) {
            let entry: Entry = lines.next()?;
            if entry.position.0 != position {
                return Err(lines.wrong(format!("it holds record {}, not {position}", entry.position.0)));
            }
            if !tells_its_shapes(&entry.record) {
                return Err(lines.wrong("its schema is not the one whose fingerprint stands beside it"));
            }
            match &entry.record {
                Record::Opened(opened) if opened.thread != thread => return Err(lines.wrong(of_another(&thread))),
                Record::Opened(_) => {}
                _ if position == 0 => return Err(lines.wrong("no thread begins with such a record")),
                _ => {}
            }
            entries.push(entry);
        }
        if lines.more()? {
            lines.number += 1;
            return Err(lines.wrong(format!("the first line promises {records} records")));
        }
        Ok(Self { thread, base, entries })
    }

    /// Makes it another thread: its effects have keys of their own from now on.
    pub(crate) fn rename(&mut self, thread: &ThreadName, id: Uuid) {
        let base = self.base.as_ref().map_or(Position(0), Snapshot::position);
        let end = self.entries.last().map_or(base, |last| Position(last.position.0 + 1));
        let in_base = self.base.as_mut().and_then(Snapshot::opened_mut);
        let in_log = self.entries.first_mut().and_then(|entry| match &mut entry.record {
            Record::Opened(opened) => Some(&mut **opened),
            _ => None,
        });
        for opened in in_base.into_iter().chain(in_log) {
            opened.was.push((end, opened.id));
            (opened.thread, opened.id) = (thread.clone(), id);
        }
        self.thread = thread.clone();
    }
}

/// Whether the schemas of a record are those that it has fingerprints of.
fn tells_its_shapes(record: &Record) -> bool {
    let is_right = |schema: &Schema, fingerprint: &str| schema.fingerprint() == fingerprint;
    match record {
        Record::Opened(opened) => {
            let own = opened.fingerprint.as_deref().is_none_or(|fingerprint| is_right(&opened.schema, fingerprint));
            own && opened.inner.iter().all(|inner| is_right(&inner.schema, &inner.fingerprint))
        }
        Record::Upgraded(upgraded) => {
            let inner = upgraded.inner.iter().all(|inner| is_right(&inner.schema, &inner.fingerprint));
            is_right(&upgraded.schema, &upgraded.fingerprint) && inner
        }
        _ => true,
    }
}

fn of_another(thread: &ThreadName) -> String {
    format!(
        "it belongs to another thread than \"{thread}\", which the first line names; import under a new name instead of changing the lines"
    )
}

fn line(into: &mut dyn Write, value: &impl Serialize) -> Result<(), ExportError> {
    let text = serde_json::to_string(value).map_err(std::io::Error::from)?;
    Ok(writeln!(into, "{text}")?)
}

struct Lines<'r> {
    from: &'r mut dyn BufRead,
    number: u64,
}

impl Lines<'_> {
    fn next<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, ExportError> {
        let mut line = Vec::new();
        self.number += 1;
        self.from.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(self.wrong("it is missing: the export is cut"));
        }
        serde_json::from_slice(&line).map_err(|error| self.wrong(error))
    }

    fn more(&mut self) -> Result<bool, ExportError> {
        let mut rest = Vec::new();
        while self.from.read_until(b'\n', &mut rest)? > 0 {
            if !rest.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn wrong(&self, why: impl ToString) -> ExportError {
        ExportError::Line { line: self.number, why: why.to_string() }
    }
}
