//! When a schedule is due: a cron pattern in a time zone.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use crate::clock::Timestamp;

/// What becomes of times at which a schedule was due and nothing ran: the process was down, or the run before was not over yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One run for all of them, as that of the last one.
    #[default]
    One,
    /// One run for each, the oldest first, one after the other; of the last 1,000 at most.
    All,
}

/// The times of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    cron: Cron,
    zone: Tz,
}

impl Calendar {
    /// Says what is wrong with the pattern or with the zone.
    pub(crate) fn new(pattern: &str, zone: &str) -> Result<Self, String> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(pattern).map_err(|error| {
            format!("has the pattern \"{pattern}\", which makes no sense: {error}; write \"minute hour day month weekday\", as in \"0 7 * * *\"")
        })?;
        let zone = zone.parse().map_err(|_| {
            format!(
                "has the time zone \"{zone}\", which is not known; name one of the IANA database, as \"Europe/Vienna\" or \"UTC\""
            )
        })?;
        Ok(Self { cron, zone })
    }

    /// The first time after that one; none if there is none any more.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = DateTime::<Utc>::from_timestamp_millis(i64::try_from(after.0).ok()?)?.with_timezone(&self.zone);
        let next = self.cron.find_next_occurrence(&after, false).ok()?;
        u64::try_from(next.timestamp_millis()).ok().map(Timestamp)
    }

    /// The times after one, up to another one: the last `most` of them, and how many came before these.
    pub(crate) fn between(&self, after: Timestamp, until: Timestamp, most: usize) -> (Vec<Timestamp>, u64) {
        let (mut times, mut before, mut last) = (std::collections::VecDeque::new(), 0, after);
        while let Some(next) = self.next(last).filter(|next| *next <= until) {
            times.push_back(next);
            last = next;
            if times.len() > most {
                times.pop_front();
                before += 1;
            }
        }
        (times.into(), before)
    }
}

/// A time in words that sort as the times do: for names of threads.
pub(crate) fn in_words(time: Timestamp) -> String {
    let time = i64::try_from(time.0).ok().and_then(DateTime::<Utc>::from_timestamp_millis).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(u64::try_from(DateTime::parse_from_rfc3339(text).expect("a time").timestamp_millis()).expect("after 1970"))
    }

    fn times(pattern: &str, zone: &str, after: &str, until: &str) -> Vec<String> {
        let calendar = Calendar::new(pattern, zone).expect("a calendar");
        calendar.between(at(after), at(until), 1_000).0.into_iter().map(in_words).collect()
    }

    #[test]
    fn each_day_has_its_time_once_also_when_the_clocks_change() {
        // In Vienna 2026 the night of March 29 has no half past two, and that of October 25 has two.
        let spring = times("30 2 * * *", "Europe/Vienna", "2026-03-27T12:00:00Z", "2026-03-31T12:00:00Z");
        assert_eq!(spring, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]);
        let autumn = times("30 2 * * *", "Europe/Vienna", "2026-10-23T12:00:00Z", "2026-10-27T12:00:00Z");
        assert_eq!(autumn, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"]);
        let seven = times("0 7 * * *", "Europe/Vienna", "2026-03-28T00:00:00Z", "2026-03-30T00:00:00Z");
        assert_eq!(seven, ["2026-03-28T06:00:00Z", "2026-03-29T05:00:00Z"]);
    }

    #[test]
    fn the_last_of_many_times_are_given_and_the_others_counted() {
        let calendar = Calendar::new("* * * * *", "UTC").expect("a calendar");
        let (last, before) = calendar.between(at("2026-01-01T00:00:00Z"), at("2026-01-01T10:00:00Z"), 3);
        assert_eq!((last.len(), before), (3, 597));
        assert_eq!(in_words(last[2]), "2026-01-01T10:00:00Z");
    }

    #[test]
    fn a_pattern_or_a_zone_that_makes_no_sense_is_told_with_what_to_do() {
        assert!(Calendar::new("every day", "UTC").expect_err("no pattern").contains("minute hour day"));
        assert!(Calendar::new("0 7 * * *", "Vienna").expect_err("no zone").contains("Europe/Vienna"));
        assert!(Calendar::new("0 0 30 2 *", "UTC").expect("a day that never comes").next(Timestamp(0)).is_none());
    }
}
