//! The line of the state file that says that a writer is cutting the log, for readers in other processes.

use super::{PartitionState, State, read_state};
use crate::error::Result;

impl PartitionState {
    /// Takes away the note of a writer that was killed while it cut the log, before a recovery that may take long: readers would wait for what
    /// does not happen. Where there is no room, it stays until the first change.
    pub(in crate::log) fn forget_cut(&mut self) -> Result<()> {
        let Some(found) = self.found.filter(|state| state.cutting.is_some()) else {
            return Ok(());
        };
        let state = State {
            cutting: None,
            ..found
        };
        match self.write(&self.state_path(), state.text().as_bytes()) {
            Err(error) if error.is_out_of_room() => return Ok(()),
            written => written?,
        }
        self.found = Some(state);
        Ok(())
    }

    /// Whether the state file has such a line, or cannot be read.
    pub(in crate::log) fn may_have_cut_note(&self) -> bool {
        let state = read_state(self.disk(), &self.state_path(), &mut Vec::new());
        state.map_or(true, |state| {
            state.is_some_and(|state| state.cutting.is_some())
        })
    }
}
