//! Times, spans and counts as sentences have them.

use crate::When;

/// A moment, and how far it is from now: `2023-11-14T22:13:20.000Z, 3d4h ago`.
pub(crate) fn moment(timestamp: i64, now: i64) -> String {
    let passed = now.saturating_sub(timestamp);
    let span = span(passed.saturating_abs());
    if passed >= 0 {
        format!("{}, {span} ago", When(timestamp))
    } else {
        format!("{}, {span} in the future", When(timestamp))
    }
}

/// A time span for people, its two largest units, rounded down: `850ms`, `12s`, `3m20s`, `5h12m`, `4d3h`.
#[must_use]
pub fn span(milliseconds: i64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if seconds == 0 {
        format!("{milliseconds}ms")
    } else if minutes == 0 {
        format!("{seconds}s")
    } else if hours == 0 {
        format!("{minutes}m{}s", seconds % 60)
    } else if days == 0 {
        format!("{hours}h{}m", minutes % 60)
    } else {
        format!("{days}d{}h", hours % 24)
    }
}

/// `1 segment`, `3 segments`.
pub(crate) fn segments(count: usize) -> String {
    if count == 1 {
        "1 segment".to_owned()
    } else {
        format!("{count} segments")
    }
}

/// `broker 2` or `brokers 2 and 3`.
pub(crate) fn brokers(ids: &[i32]) -> String {
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    match names.as_slice() {
        [one] => format!("broker {one}"),
        several => format!("brokers {}", several.join(" and ")),
    }
}

/// Why nothing is put into a topic that ZooKeeper's controller deletes as soon as it starts; what to do.
pub(crate) fn about_to_be_deleted(topic: &str) -> String {
    format!(
        "the cluster is about to delete topic {topic:?} (/admin/delete_topics/{topic} in ZooKeeper), with all that is put into it: remove \
         that node (zookeeper-shell.sh localhost:2181 delete /admin/delete_topics/{topic}) while no broker runs; or let the cluster delete \
         the topic and make it anew. Then run this again, with ZooKeeper's data of then"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (milliseconds, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (59_999, "59s"),
            (200_000, "3m20s"),
            (18_779_999, "5h12m"),
            (356_400_000, "4d3h"),
            (i64::MAX, "106751991167d7h"),
        ] {
            assert_eq!(span(milliseconds), expected);
        }
    }

    #[test]
    fn moments_have_a_direction() {
        assert_eq!(moment(0, 1_000), "1970-01-01T00:00:00.000Z, 1s ago");
        assert_eq!(
            moment(1_000, 0),
            "1970-01-01T00:00:01.000Z, 1s in the future"
        );
    }
}
