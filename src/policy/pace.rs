//! How fast calls come back to a resource that was asked for too much, as data and decisions.

use std::time::Duration;

/// A guess is no longer than this: a service that was down for minutes is not slow for that.
const GUESS_MAX: Duration = Duration::from_secs(1);
/// Less than this between two calls is no pace.
const GAP_MIN: Duration = Duration::from_millis(1);
/// What a call that works leaves of the gap while nobody knows whether it is right.
const EASE: f64 = 0.95;
/// The same once it was too short. Trying whether more is allowed costs a refusal each time, and services count them.
const EASE_GENTLY: f64 = 0.995;

/// The time between the beginnings of two calls.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    gap: Duration,
    /// How many calls have begun.
    begun: u64,
    /// How many had when it was made longer last. They say nothing of it.
    slowed: u64,
    /// Whether a call has worked since.
    worked: bool,
    was_too_short: bool,
}

impl Pace {
    /// The pace of an earlier process.
    pub(crate) fn kept(gap: Duration) -> Self {
        Self { gap, ..Self::default() }
    }

    /// A call begins. Gives its number, from 1.
    pub(crate) fn begins(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    pub(crate) fn gap(&self) -> Duration {
        self.gap
    }

    /// Calls come back after a pause, `guess` apart if nothing better is known.
    pub(crate) fn slow(&mut self, guess: Duration) {
        if self.gap.is_zero() {
            (self.gap, self.slowed, self.worked) = (guess.min(GUESS_MAX), self.begun, false);
        }
    }

    /// A call was told to come back after a pause. Twice the gap, if it had worked that fast before; a service that is down is not slow.
    pub(crate) fn refused(&mut self, guess: Duration, pause: Duration, call: u64) {
        if self.gap.is_zero() {
            self.slow(guess);
        } else if call > self.slowed && self.worked {
            self.gap = self.gap.max((self.gap * 2).min(pause.max(GUESS_MAX)));
            (self.slowed, self.worked, self.was_too_short) = (self.begun, false, true);
        }
    }

    pub(crate) fn worked(&mut self, call: u64) {
        if self.gap.is_zero() || call <= self.slowed {
            return;
        }
        self.worked = true;
        self.gap = self.gap.mul_f64(if self.was_too_short { EASE_GENTLY } else { EASE });
        if self.gap < GAP_MIN {
            *self = Self { begun: self.begun, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MS_200: Duration = Duration::from_millis(200);

    #[test]
    fn calls_that_were_refused_together_count_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.gap(), Duration::ZERO);
        let calls: Vec<u64> = (0..15).map(|_| pace.begins()).collect();
        calls.iter().for_each(|call| pace.refused(MS_200, SECOND, *call));
        assert_eq!(pace.gap(), MS_200);
        // Calls that were under way say nothing of it, whatever comes of them.
        pace.worked(calls[3]);
        pace.refused(MS_200, SECOND, calls[4]);
        assert_eq!(pace.gap(), MS_200);
    }

    #[test]
    fn it_is_half_as_fast_when_it_was_too_fast_and_not_when_the_service_is_down() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            let call = pace.begins();
            pace.refused(MS_200, SECOND, call);
        }
        assert_eq!(pace.gap(), MS_200, "nothing has worked meanwhile");
        let mut again = |pause| {
            let call = pace.begins();
            pace.worked(call);
            let (shorter, call) = (pace.gap(), pace.begins());
            pace.refused(MS_200, pause, call);
            (shorter, pace.gap())
        };
        let (shorter, longer) = again(SECOND);
        assert!(shorter < MS_200 && longer == shorter * 2);
        // Never slower than the pause that was asked for.
        let (_, longest) = (0..40).map(|_| again(3 * SECOND)).last().expect("it was asked");
        assert_eq!(longest, 3 * SECOND);
    }

    #[test]
    fn calls_that_work_make_it_faster_until_it_is_forgotten() {
        let mut pace = Pace::default();
        pace.slow(60 * SECOND);
        assert_eq!(pace.gap(), SECOND, "a guess is not worth more");
        let (mut took, mut calls) = (Duration::ZERO, 0);
        while !pace.gap().is_zero() {
            took += pace.gap();
            calls = pace.begins();
            pace.worked(calls);
        }
        assert!(took < 21 * SECOND && calls < 150, "{calls} calls in {took:?}");
    }
}
