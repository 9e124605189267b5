//! What all groups share: settings, requests that wait, committed offsets, random ids.

use super::committed_offsets::{CommittedOffsets, GroupMetadata};
use super::error::Code;
use super::ticket::Tickets;
use super::{Context, CoordinatorOptions};
use offsetlog::disk::random;

/// Longest part of a client's id that becomes part of a member's.
const CLIENT_ID_BYTES: usize = 255;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: CoordinatorOptions,
    pub(super) tickets: Tickets,
    pub(super) offsets: CommittedOffsets,
    pub(super) member_bytes: u64,
    random: fastrand::Rng,
    /// Ids that a real broker gave, for the next members.
    #[cfg(test)]
    pub(super) ids: std::collections::VecDeque<String>,
}

impl Shared {
    pub(super) fn new(options: CoordinatorOptions, offsets: CommittedOffsets) -> Self {
        let random = options.seed.map_or_else(random, fastrand::Rng::with_seed);
        Self {
            options,
            tickets: Tickets::default(),
            offsets,
            member_bytes: 0,
            random,
            #[cfg(test)]
            ids: std::collections::VecDeque::new(),
        }
    }

    /// Whether members may have this many bytes more.
    pub(super) const fn has_room(&self, bytes: u64) -> bool {
        self.member_bytes.saturating_add(bytes) <= self.options.max_member_bytes
    }

    /// A new member's id: the instance's or the client's, and a random UUID of version 4.
    pub(super) fn member_id(&mut self, context: &Context<'_>, instance: Option<&str>) -> String {
        #[cfg(test)]
        if let Some(id) = self.ids.pop_front() {
            return id;
        }
        let name = instance.unwrap_or(context.client_id);
        let mut end = name.len().min(CLIENT_ID_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let name = name.get(..end).unwrap_or_default();
        let bits = self.random.u128(..);
        let bits = bits & !(0xf000 << 64) & !(0xc000 << 48) | (0x4000 << 64) | (0x8000 << 48);
        let hex = format!("{bits:032x}");
        let part = |from, to| hex.get(from..to).unwrap_or_default();
        format!(
            "{name}-{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        )
    }

    /// Stores a group's members where there is a log.
    pub(super) fn store_group(&mut self, group: &str, metadata: GroupMetadata) -> Result<(), Code> {
        if !self.offsets.has_log() {
            return Ok(());
        }
        self.offsets
            .store_group(group, metadata)
            .map_err(|error| Code::of_append(&error))
    }
}
