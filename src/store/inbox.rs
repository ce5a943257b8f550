//! Which open questions are asked for.

use super::kinds::NEVER;
use crate::clock::Timestamp;
use crate::id::{QuestionId, ThreadName};
use crate::store::InboxRow;

/// How many questions a page has if nobody says otherwise.
const LIMIT: usize = 100;

/// Which open questions to list: all of them, in pages of 100, if nothing else is said.
///
/// They come by deadline, those without one last, then by thread and by id. A page goes on behind the last line of the one before it: a question that stays
/// open is seen once, whatever is asked and answered meanwhile.
///
/// A store finds a page without looking at the questions before it. Those whose thread's name does not begin as asked are passed over one by one.
///
/// ```
/// use ferrata::clock::Timestamp;
/// use ferrata::store::{InboxQuery, MemoryStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let overdue = InboxQuery::new().prefix("order-").due_before(Timestamp(1_000)).limit(20);
/// assert!(MemoryStore::new().questions(&overdue).await?.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct InboxQuery {
    prefix: String,
    before: Option<Timestamp>,
    after: Option<(Timestamp, ThreadName, QuestionId)>,
    limit: usize,
}

impl Default for InboxQuery {
    fn default() -> Self {
        Self { prefix: String::new(), before: None, after: None, limit: LIMIT }
    }
}

impl InboxQuery {
    /// All open questions, by deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only questions of threads whose names begin like this.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Only questions with a deadline before this time.
    pub fn due_before(mut self, time: Timestamp) -> Self {
        self.before = Some(time);
        self
    }

    /// Goes on behind this line, the last one of the page before.
    pub fn after(mut self, last: &InboxRow) -> Self {
        self.after = Some((deadline(last), last.thread.clone(), last.question.id));
        self
    }

    /// At most so many; 100 if not set.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// How the names of threads begin; empty for all.
    pub fn name_prefix(&self) -> &str {
        &self.prefix
    }

    /// The time that deadlines are before, if only such are asked for.
    pub fn latest(&self) -> Option<Timestamp> {
        self.before
    }

    /// Deadline, thread and id of the line to go on behind; the deadline is the end of time if there is none.
    pub fn place(&self) -> Option<(Timestamp, &ThreadName, QuestionId)> {
        self.after.as_ref().map(|(deadline, thread, id)| (*deadline, thread, *id))
    }

    /// How many lines at most.
    pub fn most(&self) -> usize {
        self.limit
    }

    /// Whether a line belongs on this page or a later one.
    pub fn selects(&self, row: &InboxRow) -> bool {
        row.thread.as_str().starts_with(&self.prefix)
            && self.before.is_none_or(|time| deadline(row) < time)
            && self.place().is_none_or(|place| self::place(row) > place)
    }

    /// Sorts what was found, and cuts it to a page: for a store that has no order of its own.
    pub fn page(&self, mut found: Vec<InboxRow>) -> Vec<InboxRow> {
        found.retain(|row| self.selects(row));
        found.sort_by(|a, b| place(a).cmp(&place(b)));
        found.truncate(self.limit);
        found
    }
}

fn deadline(row: &InboxRow) -> Timestamp {
    row.question.deadline.unwrap_or(NEVER)
}

fn place(row: &InboxRow) -> (Timestamp, &ThreadName, QuestionId) {
    (deadline(row), &row.thread, row.question.id)
}
