//! How often a node is tried, and how long to wait in between.

use std::time::Duration;

use crate::error::Class;

/// Classes of failures, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Classes(u8);

impl Classes {
    const fn of(classes: &[Class]) -> Self {
        let (mut set, mut next) = (0, 0);
        while next < classes.len() {
            set |= 1 << classes[next] as u8;
            next += 1;
        }
        Self(set)
    }

    const fn contains(self, class: Class) -> bool {
        self.0 & (1 << class as u8) != 0
    }
}

/// How often a node is tried, and how long to wait in between.
///
/// The n-th delay is `first_delay` times 2^(n-1), at most `delay_max`, spread by up to a half with jitter so that many workers
/// do not come back in step. A delay that the other side asked for (Retry-After) is kept if it is longer, with up to a tenth
/// more for the same reason, up to `delay_max`.
///
/// Attempts are counted in the log: a restart in between goes on counting. Once a task has failed for good, resuming the thread
/// gives it all its attempts again. Effects have a say too: one that may have been performed is never tried again, whatever the policy. What has been tried again
/// in a graph inside is not tried again by the node that called it: attempts never multiply across layers.
///
/// ```
/// use ferrata::{Class, Retry};
/// use std::time::Duration;
///
/// let retry = Retry::transient(3).first_delay(Duration::from_millis(100));
/// assert_eq!(retry.next_delay(1, Class::Transient, None, 0.0), Some(Duration::from_millis(100)));
/// assert_eq!(retry.next_delay(2, Class::Transient, None, 0.0), Some(Duration::from_millis(200)));
/// assert_eq!(retry.next_delay(3, Class::Transient, None, 0.0), None); // three attempts were made
/// assert_eq!(retry.next_delay(1, Class::Deterministic, None, 0.0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    attempts_max: u32,
    classes: Classes,
    first_delay: Duration,
    delay_max: Duration,
}

impl Retry {
    /// One attempt only.
    pub const NEVER: Self = Self {
        attempts_max: 1,
        classes: Classes(0),
        first_delay: Duration::from_millis(200),
        delay_max: Duration::from_secs(60),
    };

    /// At most `attempts_max` attempts, after failures that are transient.
    pub const fn transient(attempts_max: u32) -> Self {
        Self::classes(attempts_max, &[Class::Transient])
    }

    /// At most `attempts_max` attempts, after failures that are transient or unclassified.
    pub const fn any(attempts_max: u32) -> Self {
        Self::classes(attempts_max, &[Class::Transient, Class::Unclassified])
    }

    /// For results that break a rule: at once, and so many times in all.
    pub(crate) const fn violations(rounds: u32) -> Self {
        let retry = Self::classes(rounds, &[Class::Violation]);
        Self { first_delay: Duration::ZERO, delay_max: Duration::ZERO, ..retry }
    }

    /// At most `attempts_max` attempts, after failures of these classes; never after a terminal one.
    pub const fn classes(attempts_max: u32, classes: &[Class]) -> Self {
        Self { attempts_max, classes: Classes::of(classes), ..Self::NEVER }
    }

    /// The first delay; 200 ms if not set.
    #[must_use]
    pub const fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    /// The longest delay; 60 s if not set.
    #[must_use]
    pub const fn delay_max(mut self, delay: Duration) -> Self {
        self.delay_max = delay;
        self
    }

    /// How often a node is tried in all.
    pub const fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    pub(super) fn longest_delay(&self) -> Duration {
        self.first_delay.max(self.delay_max)
    }

    /// No delay is longer.
    pub(super) fn delay_longest(&self) -> Duration {
        self.delay_max
    }

    /// Whether it is for failures of that class.
    pub(crate) fn is_for(&self, class: Class) -> bool {
        self.classes.contains(class)
    }

    /// The wait before the next attempt after `attempts` of them failed, or `None` if there is none. `jitter` lies between 0 and 1.
    pub fn next_delay(&self, attempts: u32, class: Class, asked: Option<Duration>, jitter: f64) -> Option<Duration> {
        let again = class != Class::Terminal && self.classes.contains(class);
        if !again || attempts >= self.attempts_max {
            return None;
        }
        let doubled = self.first_delay.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1)));
        let spread = doubled.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0);
        let asked =
            asked.unwrap_or_default().min(self.delay_max).min(super::TIME_MAX).mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 10.0);
        Some(spread.max(asked).min(self.delay_max))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::NEVER
    }
}
