//! The mirror's events: each is reported once, and the report keeps the newest and the gravest.

use crate::mirror::report::{EventKind, MirrorEvent};
use std::collections::VecDeque;

/// Events that a report keeps.
const KEPT_MAX: usize = 1000;

/// What happened.
#[derive(Debug, Default)]
pub(super) struct Events {
    kept: VecDeque<MirrorEvent>,
    left_out: u64,
    untold: Vec<MirrorEvent>,
    has_losses: bool,
}

impl Events {
    /// Adds an event. If there are too many, drops the oldest that is not a loss; drops a loss only for another one.
    pub(super) fn tell(&mut self, event: MirrorEvent) {
        self.has_losses |= is_loss(event.kind);
        self.tell_wanted(event);
    }

    /// As `tell`, for an event that the user asked for: it is not a loss.
    pub(super) fn tell_wanted(&mut self, event: MirrorEvent) {
        self.untold.push(event.clone());
        if self.kept.len() >= KEPT_MAX {
            self.left_out = self.left_out.saturating_add(1);
            let light = self.kept.iter().position(|kept| !is_loss(kept.kind));
            match light {
                Some(at) => self.kept.remove(at),
                None if is_loss(event.kind) => self.kept.pop_front(),
                None => return,
            };
        }
        self.kept.push_back(event);
    }

    /// The events since the last call.
    pub(super) fn news(&mut self) -> Vec<MirrorEvent> {
        std::mem::take(&mut self.untold)
    }

    pub(super) fn kept(&self) -> Vec<MirrorEvent> {
        self.kept.iter().cloned().collect()
    }

    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) const fn has_losses(&self) -> bool {
        self.has_losses
    }
}

/// Whether somebody should look at it.
const fn is_loss(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Cut | EventKind::Lost | EventKind::DeletedTopic | EventKind::Recreated
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_told_and_losses_are_kept_before_others() {
        let mut events = Events::default();
        events.tell(MirrorEvent::new(EventKind::Lost, "first"));
        for number in 0..2 * KEPT_MAX {
            events.tell(MirrorEvent::new(EventKind::New, number.to_string()));
        }
        assert_eq!(events.news().len(), 1 + 2 * KEPT_MAX);
        assert!(events.news().is_empty());
        events.tell(MirrorEvent::new(EventKind::Cut, "last"));
        assert_eq!(events.news().len(), 1);
        let kept = events.kept();
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(kept[0].message, "first");
        assert_eq!(kept[KEPT_MAX - 1].message, "last");
        assert_eq!(kept[KEPT_MAX - 2].message, (2 * KEPT_MAX - 1).to_string());
        assert_eq!(events.left_out(), (KEPT_MAX + 2) as u64);
        assert!(events.has_losses());
        // All are losses: drops the oldest ones.
        for number in 0..KEPT_MAX {
            events.tell(MirrorEvent::new(EventKind::Lost, number.to_string()));
        }
        events.tell(MirrorEvent::new(EventKind::New, "none"));
        assert_eq!(events.kept()[0].message, "0");
    }
}
