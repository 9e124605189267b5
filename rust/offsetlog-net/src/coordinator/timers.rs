//! When groups have something to do by time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The time of each group that has one, in milliseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(i64, Arc<str>)>,
    by_group: BTreeMap<Arc<str>, i64>,
}

impl Timers {
    /// Sets a group's time, or removes it.
    pub(super) fn set(&mut self, group: &str, due: Option<i64>) {
        let known = self.by_group.get_key_value(group);
        let known = known.map(|(id, due)| (*due, Arc::clone(id)));
        if known.as_ref().map(|(due, _)| *due) == due {
            return;
        }
        let id = match &known {
            Some((_, id)) => Arc::clone(id),
            None => group.into(),
        };
        if let Some(known) = known {
            self.by_time.remove(&known);
        }
        match due {
            Some(due) => {
                self.by_time.insert((due, Arc::clone(&id)));
                self.by_group.insert(id, due);
            }
            None => {
                self.by_group.remove(&id);
            }
        }
    }

    /// The groups whose time has come.
    pub(super) fn due(&self, now: i64) -> Vec<Arc<str>> {
        let due = self.by_time.iter().take_while(|(due, _)| *due <= now);
        due.map(|(_, id)| Arc::clone(id)).collect()
    }

    /// The time that comes first; `None` if no group has one.
    pub(super) fn next(&self) -> Option<i64> {
        self.by_time.first().map(|(due, _)| *due)
    }
}
