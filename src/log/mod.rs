//! What has happened: the records of a thread, and the fold that makes state of them.
//!
//! A program can read a thread's records with [`Thread::log`](crate::Thread::log); each one serializes to readable JSON. The format of what is
//! stored is described in the module [`mod@format`].

mod asked;
pub(crate) mod codec;
mod compensation;
mod effect;
mod export;
pub(crate) mod fold;
#[cfg(test)]
mod fuzz;
mod history;
mod journal;
mod lacks;
pub(crate) mod large;
mod line;
mod outside;
mod parts;
mod progress;
mod question;
mod question_terms;
mod record;
mod report;
mod rounds;
mod scope;
mod secret;
mod snapshot;
mod squash;
mod terms;
mod texts;
mod upgraded;
mod verdict;
mod waits;

#[doc = include_str!("../docs/format.md")]
pub mod format {}

pub(crate) use asked::{OpenQuestions, open_questions};
pub use codec::{CodecError, RECORD_VERSION};
pub(crate) use compensation::Compensable;
pub use effect::{Compensating, Doubt, EffectDone, EffectDoubted, EffectFailed, EffectStarted, Marked};
pub use export::ExportError;
pub(crate) use export::Exported;
pub use fold::FoldError;
pub(crate) use fold::Folded;
pub use history::TaskState;
pub(crate) use history::{Seen, history};
pub(crate) use journal::{EffectStatus, Journal};
pub(crate) use lacks::Lack;
pub(crate) use line::{cut, fold_line};
pub use outside::{Delivered, Reminded, Signalled, Suspension};
pub use parts::{Arrival, Cost, Due, Durability, Source, Target, TaskRef, Trigger};
pub use progress::Progress;
pub(crate) use question::QuestionSpec;
pub use question::{OnExpiry, Question, QuestionKind};
pub use question_terms::QuestionTerms;
pub use record::{
    Answered, AttemptFailed, CloseReason, Closed, Entry, Expired, Fault, Forked, Input, Opened, Record, Rerouted, RunEnded,
    RunOutcome, RunStarted, Squashed, Stepped, TaskDone, TaskFailed,
};
pub use report::{NodeCost, Report};
pub use rounds::{Repeated, Rounds};
pub(crate) use scope::{Scope, TaskStatus, Written};
pub(crate) use secret::Walk;
pub use snapshot::Snapshot;
pub(crate) use snapshot::SnapshotMeter;
pub(crate) use squash::{is_kept_back, squash};
pub use terms::{Arguments, Compensation, EffectTerms, InDoubt};
pub(crate) use texts::{SecretTexts, tells};
pub use upgraded::{InnerSchema, Upgraded, UpgradedState};
pub(crate) use upgraded::{Misshapen, Why, inner_schemas};
