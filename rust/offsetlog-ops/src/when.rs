//! Points in time as a user writes and reads them: milliseconds since 1970 or RFC 3339.

use std::fmt;

const DAY_SECONDS: i64 = 86_400;

/// Milliseconds since 1970-01-01T00:00:00Z, Kafka's unit; read from an integer or from RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When(pub i64);

impl std::str::FromStr for When {
    type Err = String;

    /// Reads `1700000000000`, `2023-11-14T22:13:20Z`, `2023-11-14T22:13:20.5+02:00` or `2023-11-14` (midnight UTC).
    ///
    /// A part of a millisecond is rounded up: times are lower bounds, and nothing below the bound may match.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(milliseconds) = text.parse() {
            return Ok(Self(milliseconds));
        }
        Fields::parse(text)
            .and_then(Fields::milliseconds)
            .map(Self)
            .ok_or_else(|| {
                "neither milliseconds since 1970 (1700000000000) nor RFC 3339 (2023-11-14T22:13:20Z)"
                    .to_owned()
            })
    }
}

/// The parts of an RFC 3339 date-time.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
    milliseconds: i64,
    zone_seconds: i64,
}

impl Fields {
    fn parse(text: &str) -> Option<Self> {
        let (date, time) = match text.find(['T', 't', ' ']) {
            Some(at) => (text.get(..at)?, text.get(at + 1..)?),
            None => (text, "00:00:00Z"),
        };
        let mut parts = date.split('-');
        let (year, month, day) = (
            digits(parts.next()?, 4)?,
            digits(parts.next()?, 2)?,
            digits(parts.next()?, 2)?,
        );
        if parts.next().is_some() {
            return None;
        }
        let (clock, zone_seconds) = split_zone(time)?;
        let (clock, fraction) = match clock.split_once('.') {
            Some((clock, fraction)) => (clock, Some(fraction)),
            None => (clock, None),
        };
        let mut parts = clock.split(':');
        let (hour, minute, second) = (
            digits(parts.next()?, 2)?,
            digits(parts.next()?, 2)?,
            digits(parts.next()?, 2)?,
        );
        let clock_ok = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
        let date_ok = (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month);
        (clock_ok && date_ok).then_some(())?;
        Some(Self {
            year,
            month,
            day,
            second_of_day: hour * 3600 + minute * 60 + second,
            milliseconds: fraction.map_or(Some(0), milliseconds_of)?,
            zone_seconds,
        })
    }

    fn milliseconds(self) -> Option<i64> {
        let seconds = days_before(self.year, self.month, self.day) * DAY_SECONDS
            + self.second_of_day
            - self.zone_seconds;
        seconds.checked_mul(1000)?.checked_add(self.milliseconds)
    }
}

/// Exactly `count` decimal digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Takes `Z` or `+hh:mm` off the end; its seconds are positive east of Greenwich.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (clock, zone) = (time.get(..at)?, time.get(at..)?);
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(())?;
    let seconds = hours * 3600 + minutes * 60;
    Some((
        clock,
        if zone.starts_with('-') {
            -seconds
        } else {
            seconds
        },
    ))
}

/// Milliseconds of the digits behind the point, rounded up.
fn milliseconds_of(fraction: &str) -> Option<i64> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let more = fraction.bytes().skip(3).any(|byte| byte != b'0');
    Some(whole + i64::from(more))
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last one and month lengths follow one line, (153 m + 2) / 5.
const fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month_from_march + 2) / 5 + day - 1 - 719_468
}

/// The date of a day counted from 1970-01-01; the inverse of [`days_before`].
const fn date_of(days: i64) -> (i64, i64, i64) {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_IN_400_YEARS);
    let day_of_era = days.rem_euclid(DAYS_IN_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// RFC 3339 in UTC with milliseconds; the bare number where the year has no four digits.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1000);
        let (year, month, day) = date_of(seconds.div_euclid(DAY_SECONDS));
        if !(0..=9999).contains(&year) {
            return write!(f, "{}", self.0);
        }
        let clock = seconds.rem_euclid(DAY_SECONDS);
        let text = format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            clock / 3600,
            clock / 60 % 60,
            clock % 60,
            self.0.rem_euclid(1000),
        );
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: i64) {
        assert_eq!(text.parse::<When>().unwrap(), When(expected), "{text}");
    }

    #[test]
    fn both_ways_of_writing_a_time_are_read() {
        check("0", 0);
        check("-5", -5);
        check("1700000000000", 1_700_000_000_000);
        check("2023-11-14T22:13:20Z", 1_700_000_000_000);
        check("2023-11-14t22:13:20z", 1_700_000_000_000);
        check("2023-11-15 00:13:20.250+02:00", 1_700_000_000_250);
        check("2023-11-14T16:43:20-05:30", 1_700_000_000_000);
        check("2023-11-14", 1_699_920_000_000);
        check("1969-12-31T23:59:59.999Z", -1);
        check("2016-12-31T23:59:60Z", 1_483_228_800_000);
        check("2000-02-29T00:00:00Z", 951_782_400_000);
        check("0000-03-01T00:00:00Z", -62_162_035_200_000);
    }

    #[test]
    fn a_part_of_a_millisecond_is_rounded_up() {
        check("1970-01-01T00:00:00.0000001Z", 1);
        check("1970-01-01T00:00:00.9990Z", 999);
        check("1970-01-01T00:00:00.9991Z", 1000);
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "now",
            "2023-11-14T22:13:20",
            "2023-13-01",
            "2023-02-29",
            "2023-11-14T24:00:00Z",
            "2023-11-14T22:13Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20+0200",
            "23-11-14",
            "2023-11-14-01",
            "9223372036854775808",
            "2023-11-14T22:13:20é",
        ] {
            assert!(text.parse::<When>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(
            When(1_700_086_402_259).to_string(),
            "2023-11-15T22:13:22.259Z"
        );
        assert_eq!(When(-1).to_string(), "1969-12-31T23:59:59.999Z");
        assert_eq!(When(i64::MAX).to_string(), i64::MAX.to_string());
        assert_eq!(When(i64::MIN).to_string(), i64::MIN.to_string());
    }

    /// Every day of 1600 to 2400 and the days around both ends of what is written as a date.
    #[test]
    fn writing_and_reading_a_day_are_inverse() {
        for days in (-135_140..157_055).chain([-719_528, -719_527, 2_932_895, 2_932_896]) {
            let when = When(days * DAY_SECONDS * 1000);
            assert_eq!(when.to_string().parse::<When>().unwrap(), when);
        }
    }
}
