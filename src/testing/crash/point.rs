//! The moments at which a course crashes.

use std::fmt;

/// A moment at which a course crashes. All are counted from 1, in the course itself: with parallel tasks the n-th append need not hold the same in
/// each course.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CrashPoint {
    /// Just before the n-th append: nothing of it is stored.
    BeforeAppend(u64),
    /// Just after the n-th append: it is stored, and nothing has followed from it.
    AfterAppend(u64),
    /// Just before the n-th effect is performed. The start of one that is not repeatable is stored.
    BeforeEffect(u64),
    /// Just after the n-th effect was performed, or has failed: it has happened, and nothing of that is stored.
    AfterEffect(u64),
}

impl CrashPoint {
    /// All moments of a run with so many appends and effects.
    pub(super) fn all(appends: u64, effects: u64) -> impl Iterator<Item = Self> {
        let appends = (1..=appends).flat_map(|n| [Self::BeforeAppend(n), Self::AfterAppend(n)]);
        appends.chain((1..=effects).flat_map(|n| [Self::BeforeEffect(n), Self::AfterEffect(n)]))
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeAppend(n) => write!(f, "before append {n}"),
            Self::AfterAppend(n) => write!(f, "after append {n}"),
            Self::BeforeEffect(n) => write!(f, "before effect {n}"),
            Self::AfterEffect(n) => write!(f, "after effect {n}"),
        }
    }
}
