//! When people are reminded of questions that say nothing of it themselves.

use std::time::Duration;

/// When somebody is reminded of a question, and when the thread is suspended for want of an answer. Holds for questions to people that say neither themselves, while a
/// [supervisor](crate::Runner::supervise) looks after the store. It is recorded with the question when it is asked, so that a restart or another program changes
/// nothing of it.
///
/// ```
/// use ferrata::QuestionTerms;
/// use std::time::Duration;
///
/// let hours = |hours: u64| Duration::from_secs(hours * 3_600);
/// // What holds if nothing is said: a reminder after 6 hours, and after 24 the thread is suspended.
/// assert_eq!(QuestionTerms::default(), QuestionTerms::none().remind_after(hours(6)).suspend_after(hours(24)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct QuestionTerms {
    reminders: Vec<Duration>,
    suspend_after: Option<Duration>,
}

impl Default for QuestionTerms {
    fn default() -> Self {
        Self::none().remind_after(Duration::from_secs(6 * 3_600)).suspend_after(Duration::from_secs(24 * 3_600))
    }
}

impl QuestionTerms {
    /// Somebody is told once that a question was asked, and it stays open for ever.
    pub fn none() -> Self {
        Self { reminders: Vec::new(), suspend_after: None }
    }

    /// How long after asking somebody is reminded; can be said several times.
    pub fn remind_after(mut self, time: Duration) -> Self {
        self.reminders.push(time);
        self.reminders.sort_unstable();
        self
    }

    /// How long after asking the question is closed and the thread suspended, as [`OnExpiry::Suspend`](crate::OnExpiry::Suspend) says.
    pub fn suspend_after(mut self, time: Duration) -> Self {
        self.suspend_after = Some(time);
        self
    }

    /// Reminders and deadline, in milliseconds after asking.
    pub(crate) fn in_ms(&self) -> (Vec<u64>, Option<u64>) {
        let ms = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        (self.reminders.iter().map(ms).collect(), self.suspend_after.as_ref().map(ms))
    }
}
