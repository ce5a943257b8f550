//! How long a server asks to wait.

use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The wait in the headers: `retry-after-ms`, or `retry-after` as seconds or as a date.
///
/// A date is measured from the answer's own `date`, so that neither our clock nor its distance from the server's matters; without one it
/// says nothing.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(ms / 1_000.0).ok();
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let (until, now) = (seconds_of_date(after)?, seconds_of_date(text(DATE.as_str())?)?);
    Some(Duration::from_secs(until.saturating_sub(now)))
}

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    // Out of these bounds a server's date could overflow ours.
    let day: u64 = words.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let mut part = |below: u64| clock.next().flatten().filter(|part| *part < below);
    // 60 is a leap second.
    let (hours, minutes, seconds) = (part(24)?, part(60)?, part(61)?);
    (words.next() == Some("GMT")).then(|| days(year, month, day) * 86_400 + hours * 3_600 + minutes * 60 + seconds)
}

/// Days since 1970-01-01. Years are taken from March to February, so that the leap day is their last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    // 719_468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month_from_march + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (date, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2028 00:00:00 GMT", 1_835_395_200),
        ] {
            assert_eq!(seconds_of_date(date), Some(seconds), "{date}");
        }
    }

    #[test]
    fn dates_that_are_none_say_nothing() {
        for date in [
            "Thu, 00 Jan 1970 00:00:00 GMT",
            "Thu, 32 Jan 1970 00:00:00 GMT",
            "Thu, 18446744073709551615 Jan 1970 00:00:00 GMT",
            "Thu, 01 Jan 1970 18446744073709551615:00:00 GMT",
            "Thu, 01 Jan 1970 00:00:18446744073709551615 GMT",
            "Thu, 01 Jan 18446744073709551615 00:00:00 GMT",
            "Thu, 01 Jan 1970 00:00:00",
        ] {
            assert_eq!(seconds_of_date(date), None, "{date}");
        }
    }

    #[test]
    fn waits() {
        type Headers = &'static [(&'static str, &'static str)];
        let cases: &[(Headers, Option<u64>)] = &[
            (&[("retry-after", "2")], Some(2_000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "9"), ("retry-after-ms", "150")], Some(150)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(3_000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT"), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-1")], None),
            (&[], None),
        ];
        for (pairs, expected) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in *pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(retry_after(&headers), expected.map(Duration::from_millis), "{pairs:?}");
        }
    }
}
