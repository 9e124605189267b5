//! Where a copy that diverged from its leader is cut.
//!
//! Source: Kafka's `AbstractFetcherThread.getOffsetTruncationState` (KIP-101, KIP-279).

/// Where to cut, and whether the leader must be asked again afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Truncation {
    /// The new log end offset.
    pub(crate) offset: i64,
    /// Whether leader and copy agree below it.
    pub(crate) is_done: bool,
}

/// Decides by the leader's answer: its greatest epoch at or below the one asked for, and where that ends. `own_end` is the copy's log end
/// offset, and `own` its own greatest epoch at or below the leader's, with its end; `None` if it has none.
pub(crate) fn truncation(
    (leader_epoch, leader_end): (i32, i64),
    own: Option<(i32, i64)>,
    own_end: i64,
) -> Truncation {
    match own {
        // The leader does not know whether the copy's epoch is its own: first to where that one ends, then it is asked again.
        Some((epoch, end)) if epoch != leader_epoch => Truncation {
            offset: end.min(own_end),
            is_done: false,
        },
        Some((_, end)) => Truncation {
            offset: leader_end.min(end).min(own_end),
            is_done: true,
        },
        None => Truncation {
            offset: leader_end.min(own_end),
            is_done: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(offset: i64, is_done: bool) -> Truncation {
        Truncation { offset, is_done }
    }

    #[test]
    fn cuts_where_kafka_cuts() {
        // The same epoch on both sides: the shorter end.
        assert_eq!(truncation((3, 50), Some((3, 70)), 80), cut(50, true));
        assert_eq!(truncation((3, 90), Some((3, 70)), 80), cut(70, true));
        // An epoch of the leader that the copy never had: asked again (KIP-279).
        assert_eq!(truncation((3, 50), Some((2, 40)), 80), cut(40, false));
        assert_eq!(truncation((3, 50), Some((2, 90)), 80), cut(80, false));
        // A copy without epochs.
        assert_eq!(truncation((3, 50), None, 80), cut(50, true));
        assert_eq!(truncation((3, 90), None, 80), cut(80, true));
    }
}
