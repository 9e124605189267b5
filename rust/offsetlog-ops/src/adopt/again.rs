//! The second decision about a directory, under the locks, and what is done then.
//!
//! It looks at what may have changed, and at no more, for it is made for each of many directories: the names in the log dirs, those of the
//! same partition among them, and the directory itself. The log dirs are those of the first decision, and so are their `meta.properties` and
//! the cluster's metadata.

use super::{AdoptOptions, AdoptedPartition, Plan, find, plan_one};
use crate::places::Places;
use offsetlog::format::name::DirectoryName;
use offsetlog::{Error, OpenOptions, Result};

impl Plan {
    /// Whether nothing has changed since that plan. Does not compare the log start offset, which is found differently under the lock.
    fn is_same(&self, other: &Self) -> bool {
        self.segments == other.segments
            && self.adoption.topic == other.adoption.topic
            && self.adoption.topic_id == other.adoption.topic_id
            && self.adoption.in_the_way == other.adoption.in_the_way
    }

    /// The same plan, by what is there now.
    fn again(&self, places: &mut Places, how: &AdoptOptions, open: &OpenOptions) -> Result<Self> {
        let path = &self.adoption.directory;
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        let own = DirectoryName::parse(&own).map_or("", |own| own.topic);
        // The name of a directory that is set aside may be cut short.
        let is_of_it = |name: &DirectoryName<'_>| {
            name.partition == self.adoption.partition
                && (name.topic == self.adoption.topic || name.topic == own)
        };
        places.look_again(is_of_it, open)?;
        let (place, found) = find(places, path)?;
        plan_one(places, place, found, how, open)
    }

    /// Decides again, and takes the directory in.
    pub(super) fn carry_out(
        self,
        places: &mut Places,
        how: &AdoptOptions,
        open: &OpenOptions,
    ) -> Result<AdoptedPartition> {
        if !self.adopted.is_changed {
            return Ok(self.adopted);
        }
        let done = self.adoption.run(open, || {
            if self.again(places, how, open)?.is_same(&self) {
                return Ok(());
            }
            let reason = "somebody changed it, or what is around it, meanwhile; call again";
            Err(Error::log_dir(&self.adoption.directory, reason))
        })?;
        let set_aside = done.set_aside.into_iter();
        Ok(AdoptedPartition {
            set_aside: set_aside
                .map(|(before, since)| (before, Some(since)))
                .collect(),
            log_start_offset: done.log_start_offset,
            log_end_offset: done.log_end_offset,
            ..self.adopted
        })
    }
}
