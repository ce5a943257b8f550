//! When calls of a resource are let through: a circuit breaker, as data and decisions.

use std::collections::VecDeque;
use std::time::Duration;

use super::pace::Pace;
use crate::clock::Timestamp;

/// How many calls the window remembers at most.
const CALLS_MAX: usize = 1_000;

/// Keeps tasks away from a resource that fails: when in a window of time too many calls have failed, none is let through for a while (it is *open*); then a few are, one
/// after the other (*half open*), and if they work all are again (it is *closed*).
///
/// They do not come back all at once. When it has opened, or a call was told to come back later (Retry-After), calls begin one after the other, about as fast as they
/// had worked in the window and at most a second apart; each that works makes the gap a little shorter. When one is told so again, the gap becomes twice as long.
///
/// ```
/// use ferrata::Breaker;
/// use std::time::Duration;
///
/// let breaker = Breaker::new().window(Duration::from_secs(60)).calls_min(10).failure_rate(0.5).open_for(Duration::from_secs(30)).probes(2);
/// assert!(breaker.check().is_ok());
/// assert!(Breaker::new().failure_rate(1.5).check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Breaker {
    window: Duration,
    calls_min: usize,
    failure_rate: f64,
    open_for: Duration,
    probes: u32,
}

impl Default for Breaker {
    fn default() -> Self {
        let (window, open_for) = (Duration::from_secs(60), Duration::from_secs(30));
        Self { window, calls_min: 10, failure_rate: 0.5, open_for, probes: 1 }
    }
}

impl Breaker {
    /// A window of 60 s, at least 10 calls in it, half of which have failed; then 30 s without a call, and one probe.
    pub fn new() -> Self {
        Self::default()
    }

    /// How far back calls count.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How many calls have to be in the window before their rate of failures says anything; from 1 to 1,000.
    pub fn calls_min(mut self, calls: usize) -> Self {
        self.calls_min = calls;
        self
    }

    /// The part of the calls in the window that have to fail, above 0 and up to 1.
    pub fn failure_rate(mut self, rate: f64) -> Self {
        self.failure_rate = rate;
        self
    }

    /// How long no call is let through, when it has opened.
    pub fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    /// How many calls have to work, one after the other, before all are let through again; at least 1.
    pub fn probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// What is wrong with it, if anything is.
    ///
    /// # Errors
    ///
    /// A rate that is none, a window or a pause of no time or of more than 366 days, no calls or no probes.
    pub fn check(&self) -> Result<(), String> {
        if !(self.failure_rate > 0.0 && self.failure_rate <= 1.0) {
            return Err(format!("its failure rate is {}; it has to be above 0 and at most 1", self.failure_rate));
        }
        if self.calls_min == 0 || self.calls_min > CALLS_MAX {
            return Err(format!("it counts from {} calls on; from 1 to {CALLS_MAX} make sense", self.calls_min));
        }
        if self.probes == 0 {
            return Err("it has no probes, so it would never let a call through again".to_owned());
        }
        let times = [("window", self.window), ("pause", self.open_for)];
        match times.into_iter().find(|(_, time)| time.is_zero() || *time > super::TIME_MAX) {
            Some((what, time)) => Err(format!("its {what} is {time:?}; it has to be more than nothing and at most 366 days")),
            None => Ok(()),
        }
    }
}

/// What a resource lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// All calls.
    Closed,
    /// None before that time.
    Open { until: Timestamp },
    /// One call at a time, to see whether it works again.
    HalfOpen { worked: u32, under_way: bool },
}

/// How a call ended, as far as the resource is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Worked,
    Failed,
    /// It was cut off, or never made.
    Unknown,
}

/// A breaker at work.
#[derive(Debug)]
pub(crate) struct BreakerState {
    breaker: Breaker,
    calls: VecDeque<(Timestamp, bool)>,
    phase: Phase,
    pace: Pace,
}

impl BreakerState {
    pub(crate) fn new(breaker: Breaker) -> Self {
        Self { breaker, calls: VecDeque::new(), phase: Phase::Closed, pace: Pace::default() }
    }

    /// Goes on where an earlier process was.
    pub(crate) fn goes_on(&mut self, mut phase: Phase, gap: Duration, now: Timestamp) {
        if let Phase::Open { until } = &mut phase {
            *until = self.at_most(*until, now);
        }
        (self.phase, self.pace) = (phase, Pace::kept(gap));
    }

    /// A clock that was set back makes nobody wait longer than is said.
    fn at_most(&self, until: Timestamp, now: Timestamp) -> Timestamp {
        until.min(now.plus(self.breaker.open_for))
    }

    /// The time between the beginnings of two calls.
    pub(crate) fn gap(&self) -> Duration {
        self.pace.gap()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether a call may be made now; if not, when to ask again (`None`: when a call that is under way has ended).
    pub(crate) fn admit(&mut self, now: Timestamp) -> Result<(), Option<Timestamp>> {
        if let Phase::Open { until } = self.phase {
            let until = self.at_most(until, now);
            self.phase = if now < until { Phase::Open { until } } else { Phase::HalfOpen { worked: 0, under_way: false } };
        }
        match self.phase {
            Phase::Open { until } => Err(Some(until)),
            Phase::HalfOpen { under_way: true, .. } => Err(None),
            Phase::HalfOpen { .. } | Phase::Closed => Ok(()),
        }
    }

    /// A call that was let through begins. Gives its number; it has to be reported when it has ended.
    pub(crate) fn begins(&mut self) -> u64 {
        if let Phase::HalfOpen { under_way, .. } = &mut self.phase {
            *under_way = true;
        }
        self.pace.begins()
    }

    /// A call was told to come back after a pause.
    pub(crate) fn refused(&mut self, number: u64, pause: Duration, now: Timestamp) {
        self.pace.refused(self.so_far(pause, now), pause, number);
    }

    /// How far apart calls have worked in the window, the pause included.
    fn so_far(&self, pause: Duration, now: Timestamp) -> Duration {
        let worked = self.calls.iter().filter(|(_, failed)| !failed).count();
        let began = self.calls.front().map_or(now, |(at, _)| *at);
        let time = Duration::from_millis(now.ms_since(began)) + pause;
        u32::try_from(worked).ok().and_then(|worked| time.checked_div(worked)).unwrap_or(Duration::MAX)
    }

    pub(crate) fn ended(&mut self, number: u64, call: Call, now: Timestamp) {
        if call == Call::Worked {
            self.pace.worked(number);
        }
        match (&mut self.phase, call) {
            (Phase::HalfOpen { under_way, .. }, Call::Unknown) => *under_way = false,
            (Phase::HalfOpen { .. }, Call::Failed) => self.trip(now),
            (Phase::HalfOpen { worked, under_way }, Call::Worked) => {
                (*worked, *under_way) = (*worked + 1, false);
                if *worked >= self.breaker.probes {
                    self.phase = Phase::Closed;
                    self.calls.clear();
                }
            }
            // Calls that began before it opened say nothing new.
            (Phase::Open { .. }, _) | (_, Call::Unknown) => {}
            (Phase::Closed, call) => self.count(call == Call::Failed, now),
        }
    }

    fn count(&mut self, failed: bool, now: Timestamp) {
        self.calls.push_back((now, failed));
        let window = u64::try_from(self.breaker.window.as_millis()).unwrap_or(u64::MAX);
        while self.calls.len() > CALLS_MAX || self.calls.front().is_some_and(|(at, _)| now.ms_since(*at) > window) {
            self.calls.pop_front();
        }
        let failures = self.calls.iter().filter(|(_, failed)| *failed).count();
        let rate = failures as f64 / self.calls.len() as f64;
        if failed && self.calls.len() >= self.breaker.calls_min && rate >= self.breaker.failure_rate {
            self.trip(now);
        }
    }

    fn trip(&mut self, now: Timestamp) {
        self.pace.slow(self.so_far(self.breaker.open_for, now));
        self.phase = Phase::Open { until: now.plus(self.breaker.open_for) };
        self.calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000;

    fn breaker() -> BreakerState {
        let breaker = Breaker::new().window(Duration::from_secs(10)).calls_min(4).open_for(Duration::from_secs(5)).probes(2);
        BreakerState::new(breaker)
    }

    fn begin(state: &mut BreakerState, at: Timestamp) -> Result<u64, Option<Timestamp>> {
        state.admit(at).map(|()| state.begins())
    }

    fn call(state: &mut BreakerState, at: u64, call: Call) {
        let number = begin(state, Timestamp(at)).unwrap_or_else(|wait| panic!("at {at}: {wait:?}"));
        state.ended(number, call, Timestamp(at));
    }

    fn open() -> BreakerState {
        let mut state = breaker();
        (0..4).for_each(|at| call(&mut state, at, Call::Failed));
        state
    }

    #[test]
    fn it_opens_when_half_of_enough_calls_in_the_window_have_failed() {
        let mut state = breaker();
        for at in 0..3 {
            call(&mut state, at, Call::Failed);
        }
        assert_eq!(state.phase(), Phase::Closed, "three calls say nothing");
        call(&mut state, 3, Call::Worked);
        assert_eq!(state.phase(), Phase::Closed, "a call that works opens nothing");
        call(&mut state, 4, Call::Failed);
        assert_eq!(state.phase(), Phase::Open { until: Timestamp(4 + 5 * SECOND) });
        assert_eq!(state.admit(Timestamp(5)), Err(Some(Timestamp(4 + 5 * SECOND))));

        // What is older than the window does not count.
        let mut state = breaker();
        for at in [0, SECOND, 2 * SECOND, 13 * SECOND, 14 * SECOND] {
            call(&mut state, at, Call::Failed);
        }
        assert_eq!(state.phase(), Phase::Closed);
    }

    #[test]
    fn it_closes_again_behind_probes_that_work_one_after_the_other() {
        let mut state = open();
        let at = Timestamp(3 + 5 * SECOND);
        let first = begin(&mut state, at).expect("the first probe");
        assert_eq!(state.admit(at), Err(None), "and only one at a time");
        state.ended(first, Call::Worked, at);
        call(&mut state, at.0, Call::Worked);
        assert_eq!(state.phase(), Phase::Closed);

        let mut state = open();
        call(&mut state, at.0, Call::Failed);
        assert_eq!(state.phase(), Phase::Open { until: Timestamp(at.0 + 5 * SECOND) });
        // A probe that was cut off makes room for another one.
        let again = Timestamp(at.0 + 5 * SECOND);
        call(&mut state, again.0, Call::Unknown);
        assert_eq!(state.admit(again), Ok(()));
    }

    #[test]
    fn calls_that_end_late_say_nothing_new() {
        let mut state = open();
        let until = state.phase();
        state.ended(1, Call::Failed, Timestamp(4 * SECOND));
        state.ended(2, Call::Worked, Timestamp(4 * SECOND));
        assert_eq!(state.phase(), until);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_wait_longer() {
        let mut state = breaker();
        (100_000..100_004).for_each(|at| call(&mut state, at, Call::Failed));
        assert_eq!(state.admit(Timestamp(20)), Err(Some(Timestamp(20 + 5 * SECOND))));
        assert_eq!(state.admit(Timestamp(20 + 5 * SECOND)), Ok(()));
    }

    #[test]
    fn calls_come_back_about_as_fast_as_they_had_worked() {
        let mut state = breaker();
        assert_eq!(state.gap(), Duration::ZERO);
        (0..5).for_each(|_| call(&mut state, 100, Call::Worked));
        let refused = begin(&mut state, Timestamp(100)).expect("it is closed");
        state.refused(refused, Duration::from_secs(1), Timestamp(100));
        state.ended(refused, Call::Failed, Timestamp(100));
        assert_eq!((state.phase(), state.gap()), (Phase::Closed, Duration::from_millis(200)), "five in a second");
        // Nothing has worked in this one.
        assert_eq!(open().gap(), Duration::from_secs(1));
    }

    #[test]
    fn thresholds_that_make_no_sense_are_told() {
        let wrong = [
            Breaker::new().failure_rate(0.0),
            Breaker::new().failure_rate(f64::NAN),
            Breaker::new().failure_rate(1.1),
            Breaker::new().calls_min(0),
            Breaker::new().calls_min(1_001),
            Breaker::new().probes(0),
            Breaker::new().window(Duration::ZERO),
            Breaker::new().open_for(Duration::MAX),
        ];
        assert!(wrong.iter().all(|breaker| breaker.check().is_err()));
    }
}
