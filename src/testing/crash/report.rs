//! What came of a crash test.

use std::fmt;

use super::CrashPoint;

/// What a graph went through without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashReport {
    /// How the undisturbed run ended, and with it all courses: `done`, `waiting for "approve"`, `failed: node-failed`.
    pub end: String,
    /// Appends of the undisturbed run.
    pub appends: u64,
    /// Effects that were performed in the undisturbed run, each time counted.
    pub effects: u64,
    /// The courses that crashed, each at another moment.
    pub crashes: Vec<CrashPoint>,
    /// Moments that did not come: with parallel tasks a course can have fewer appends than the undisturbed run. These courses ended undisturbed.
    pub missed: Vec<CrashPoint>,
    /// Questions whether an effect was performed, over all courses. Each was answered as it was.
    pub doubts: u64,
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, appends, effects, crashes, missed, doubts } = self;
        let (appends, effects, doubts) = (counted(*appends, "append"), counted(*effects, "effect"), counted(*doubts, "doubt"));
        let crashes = crashes.len();
        write!(f, "{appends} and {effects}: crashed {crashes} times, with {doubts}, always the same end: {end}")?;
        if missed.is_empty() { Ok(()) } else { write!(f, " ({} moments did not come)", missed.len()) }
    }
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashFault {
    /// What.
    pub what: String,
    /// Where courses crashed that went wrong like this, each with what stood there. Nothing if the undisturbed run did.
    pub at: Vec<(CrashPoint, String)>,
}

/// How many places are listed.
const LISTED_MAX: usize = 6;

impl fmt::Display for CrashFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what.trim_end().replace('\n', "\n    "))?;
        let Some((first, _)) = self.at.first() else { return f.write_str("\n      without any crash") };
        f.write_str("\n      after a crash")?;
        for (place, (point, hit)) in self.at.iter().take(LISTED_MAX).enumerate() {
            write!(f, "{} {point} ({hit})", if place == 0 { "" } else { "," })?;
        }
        if self.at.len() > LISTED_MAX {
            write!(f, " and {} more", self.at.len() - LISTED_MAX)?;
        }
        write!(f, "\n      to play it alone: .only(CrashPoint::{first:?})")
    }
}

/// Everything that went wrong in a crash test. What went wrong alike at several moments is one fault.
#[derive(Default, thiserror::Error)]
#[error("the graph{} does not survive every crash, {}:{}", quoted(.graph.as_deref()), counted(.faults.len() as u64, "fault"), list(.faults))]
pub struct CrashFaults {
    /// Its name, if one was built.
    pub(super) graph: Option<String>,
    pub(super) faults: Vec<CrashFault>,
}

fn quoted(name: Option<&str>) -> String {
    name.map(|name| format!(" \"{name}\"")).unwrap_or_default()
}

/// A number of things.
pub(super) fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn list(faults: &[CrashFault]) -> String {
    faults.iter().map(|fault| format!("\n  - {fault}")).collect()
}

impl CrashFaults {
    /// Each of them.
    pub fn faults(&self) -> &[CrashFault] {
        &self.faults
    }

    /// Takes note of what went wrong in one course.
    pub(super) fn add(&mut self, whats: Vec<String>, at: Option<(CrashPoint, String)>) {
        for what in whats {
            match self.faults.iter_mut().find(|fault| fault.what == what) {
                Some(fault) => fault.at.extend(at.clone()),
                None => self.faults.push(CrashFault { what, at: at.clone().into_iter().collect() }),
            }
        }
    }
}

// A test that unwraps shows this.
impl fmt::Debug for CrashFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
