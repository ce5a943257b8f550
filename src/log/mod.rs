//! What has happened: the records of a thread, and the fold that makes state of them.
//!
//! A program can read a thread's records with [`Thread::log`](crate::Thread::log); each one serializes to readable JSON. The format of what is
//! stored is described in the module [`mod@format`].

pub(crate) mod codec;
pub(crate) mod fold;
mod history;
mod line;
mod question;
mod record;
mod report;
mod snapshot;
mod squash;

#[doc = include_str!("../docs/format.md")]
pub mod format {}

pub use codec::{CodecError, RECORD_VERSION};
pub use fold::FoldError;
pub(crate) use fold::{EffectStatus, Folded, Journal, TaskStatus};
pub use history::TaskState;
pub(crate) use history::{Seen, history};
pub(crate) use line::fold_line;
pub(crate) use question::QuestionSpec;
pub use question::{Question, QuestionKind};
pub use record::{
    Answered, Arrival, AttemptFailed, CloseReason, Closed, Cost, Doubt, Due, Durability, EffectDone, EffectDoubted, EffectFailed,
    EffectStarted, Entry, Fault, Forked, Input, Opened, Record, RunEnded, RunOutcome, RunStarted, Source, Squashed, Stepped,
    Target, TaskDone, TaskFailed, TaskRef, Trigger,
};
pub use report::{NodeCost, Report};
pub use snapshot::Snapshot;
pub(crate) use snapshot::SnapshotMeter;
pub(crate) use squash::{is_kept_back, squash};
