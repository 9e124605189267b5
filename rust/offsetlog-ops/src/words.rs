//! Times, spans and sizes as sentences have them.

use crate::When;

/// A moment, and how far it is from now: `2023-11-14T22:13:20.000Z, 3 d 4 h ago`.
pub(crate) fn moment(timestamp: i64, now: i64) -> String {
    let passed = now.saturating_sub(timestamp);
    let span = span(passed.saturating_abs());
    if passed >= 0 {
        format!("{}, {span} ago", When(timestamp))
    } else {
        format!("{}, {span} in the future", When(timestamp))
    }
}

/// A span of milliseconds in its two largest units.
pub(crate) fn span(milliseconds: i64) -> String {
    const UNITS: [(i64, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1_000, "s"),
    ];
    let largest = UNITS.iter().position(|(unit, _)| milliseconds >= *unit);
    let Some(largest) = largest else {
        return format!("{milliseconds} ms");
    };
    let mut rest = milliseconds;
    let mut words = Vec::new();
    for (unit, name) in UNITS.iter().skip(largest).take(2) {
        let count = rest / unit;
        rest %= unit;
        if count > 0 {
            words.push(format!("{count} {name}"));
        }
    }
    words.join(" ")
}

/// `1 segment`, `3 segments`.
pub(crate) fn segments(count: usize) -> String {
    if count == 1 {
        "1 segment".to_owned()
    } else {
        format!("{count} segments")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        assert_eq!(span(0), "0 ms");
        assert_eq!(span(999), "999 ms");
        assert_eq!(span(61_500), "1 min 1 s");
        assert_eq!(span(7_200_000), "2 h");
        assert_eq!(span(90_061_000), "1 d 1 h");
        assert_eq!(span(i64::MAX), "106751991167 d 7 h");
    }

    #[test]
    fn moments_have_a_direction() {
        assert_eq!(moment(0, 1_000), "1970-01-01T00:00:00.000Z, 1 s ago");
        assert_eq!(
            moment(1_000, 0),
            "1970-01-01T00:00:01.000Z, 1 s in the future"
        );
    }
}
