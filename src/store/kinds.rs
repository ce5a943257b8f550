//! What goes into a store, and what comes out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{Position, QuestionId, ThreadName};
use crate::log::{Entry, Question, Record, Snapshot};

/// The time that never comes.
pub(super) const NEVER: Timestamp = Timestamp(u64::MAX);

/// Records to append as a unit.
#[derive(Debug)]
pub struct Append {
    /// The thread.
    pub thread: ThreadName,
    /// Where the writer believes the log ends.
    pub expected: Position,
    /// What to append; at least one record.
    pub records: Vec<Record>,
    /// A snapshot, if one is due: of everything up to the end of this append, or up to its beginning.
    pub snapshot: Option<Box<Snapshot>>,
    /// What the index of threads should say from now on.
    pub status: ThreadStatus,
    /// What the index of open questions should say of the thread from now on, each question once; `None` if that is what it says.
    pub questions: Option<Vec<OpenQuestion>>,
    /// What the index of alarms should say of the thread from now on, each once; `None` if that is what it says.
    pub alarms: Option<Vec<Alarm>>,
    /// When.
    pub at: Timestamp,
}

/// What an append took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Bytes of the records.
    pub record_bytes: u64,
    /// Bytes of the snapshot, if there was one.
    pub snapshot_bytes: Option<u64>,
}

/// How much of a log is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The newest snapshot, and what stands behind it: the thread as it is.
    Newest,
    /// The newest snapshot that holds no record from here on, and what stands behind it: the thread as it was.
    Before(Position),
    /// All records that are kept, with the snapshot that stands for those that were pruned.
    Whole,
}

/// A thread as it was stored.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The fold of all records before `entries`; none if they begin at the first one.
    pub snapshot: Option<Snapshot>,
    /// Its size in bytes.
    pub snapshot_bytes: u64,
    /// The records behind it, up to the end of the log.
    pub entries: Vec<Entry>,
    /// Their size in bytes.
    pub record_bytes: u64,
}

/// A whole thread to be put into a store: a copy, or one that was exported.
#[derive(Debug)]
pub struct Restore {
    /// Its name.
    pub thread: ThreadName,
    /// What stands for the records before the first one, if they were pruned.
    pub base: Option<Box<Snapshot>>,
    /// The records, without a gap; the first one stands at the position of `base`, or at 0.
    pub entries: Vec<Entry>,
    /// What the index of threads should say.
    pub status: ThreadStatus,
    /// What the index of open questions should say, each question once.
    pub questions: Vec<OpenQuestion>,
    /// What the index of alarms should say, each once.
    pub alarms: Vec<Alarm>,
}

/// A question that is open, as the index of open questions knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// The question.
    pub id: QuestionId,
    /// When it should be answered.
    pub deadline: Option<Timestamp>,
}

impl OpenQuestion {
    /// An open question. A deadline at the end of time is none.
    pub fn new(id: QuestionId, deadline: Option<Timestamp>) -> Self {
        Self { id, deadline: deadline.filter(|deadline| *deadline != NEVER) }
    }
}

impl From<&Question> for OpenQuestion {
    fn from(question: &Question) -> Self {
        Self::new(question.id, question.deadline)
    }
}

/// A line of the index of open questions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboxRow {
    /// The thread that asks.
    pub thread: ThreadName,
    /// What it asks.
    pub question: OpenQuestion,
}

impl InboxRow {
    /// A line for a store of one's own.
    pub fn new(thread: ThreadName, question: OpenQuestion) -> Self {
        Self { thread, question }
    }
}

/// When something has to happen to a thread without a caller: a reminder, a deadline, a time that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Alarm {
    /// When.
    pub at: Timestamp,
    /// The question that it is about, or what else waits.
    pub id: QuestionId,
}

impl Alarm {
    /// When somebody has to look at an open question next, if ever.
    pub(crate) fn of(question: &Question) -> Option<Self> {
        let at = question.rings_at().filter(|at| *at != NEVER)?;
        Some(Self { at, id: question.id })
    }
}

/// What the index of open questions says of these: those to people.
pub(crate) fn open_to_people(open: &[Arc<Question>]) -> Vec<OpenQuestion> {
    open.iter().filter(|question| !question.is_outside()).map(|question| OpenQuestion::from(&**question)).collect()
}

/// What the index of alarms says of these.
pub(crate) fn alarms_of(open: &[Arc<Question>]) -> Vec<Alarm> {
    open.iter().filter_map(|question| Alarm::of(question)).collect()
}

/// A line of the index of alarms, whose order is that of the index: by time, then by id, then by thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AlarmRow {
    /// When, and what about.
    pub alarm: Alarm,
    /// The thread.
    pub thread: ThreadName,
}

impl AlarmRow {
    /// A line for a store of one's own.
    pub fn new(thread: ThreadName, alarm: Alarm) -> Self {
        Self { alarm, thread }
    }
}

/// What to forget of a thread.
#[derive(Debug)]
pub struct Prune {
    /// The thread.
    pub thread: ThreadName,
    /// The first record to keep. Those before it are removed, and the snapshots before it.
    pub before: Position,
    /// What stands for the records that are removed; not needed if a snapshot is stored at just that position.
    pub base: Option<Box<Snapshot>>,
    /// Where the log ends, as far as the caller knows.
    pub expected: Position,
}

/// What a prune removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Records that are gone.
    pub records: u64,
    /// Snapshots that are gone.
    pub snapshots: u64,
}

/// What a thread is doing, as its log tells. `Running` also stands for a thread whose process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThreadStatus {
    /// A run is going on, or its process died.
    Running,
    /// Nothing is left to do.
    Done,
    /// It waits for a person.
    Waiting,
    /// It waits for a signal or for a time, and for no person.
    Outside,
    /// It can go on, and nobody does: what it waited for has come, or its runner was shut down. A supervisor goes on with it.
    Ready,
    /// It was stopped and can be resumed.
    Suspended,
    /// The last run failed; the thread can be resumed.
    Failed,
}

impl ThreadStatus {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Running, Self::Done, Self::Waiting, Self::Outside, Self::Ready, Self::Suspended, Self::Failed];
}

/// A line of the index of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The thread.
    pub name: ThreadName,
    /// What it is doing.
    pub status: ThreadStatus,
    /// Since when: the beginning of the run for a thread that runs, its last record for one at rest.
    pub since: Timestamp,
    /// How many records were written in its life, those that were pruned included.
    pub records: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
}

impl ThreadInfo {
    /// A line for a store of one's own.
    pub fn new(name: ThreadName, status: ThreadStatus, since: Timestamp, records: u64, updated_at: Timestamp) -> Self {
        Self { name, status, since, records, updated_at }
    }
}
