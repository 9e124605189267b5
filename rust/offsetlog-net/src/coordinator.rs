//! The group coordinator: who is in a consumer group, what each member reads, and what the group has committed.

pub mod committed_offsets;
