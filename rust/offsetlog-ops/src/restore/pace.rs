//! How long reading will take at least, by a sample of what is read: a dying disk tells it now, and not after an hour.

use super::{PartitionState, PartitionToRestore, RestorePlan};
use offsetlog::disk::Access;
use std::io;
use std::time::{Duration, Instant};

/// Logs that are sampled, the largest ones.
const SAMPLED_LOGS: usize = 4;
/// Of each, at most: more than disks read ahead.
const SAMPLE_BYTES: usize = 8 << 20;
/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// A slow disk is known after this.
const PATIENCE: Duration = Duration::from_millis(500);

impl RestorePlan {
    /// Seconds that reading takes at least, rounded up: by the speed of up to four samples of 8 MiB, from the middle of the largest logs that
    /// are read. `None` for less than a second, and where the samples cannot be read. Writing and reading back come on top; what the system
    /// has in memory comes faster than its disk. Takes half a second at most, or one read of 1 MiB if that takes longer.
    #[must_use]
    pub fn reading_seconds_min(&self) -> Option<u64> {
        let is_planned = |each: &&PartitionToRestore| matches!(each.state, PartitionState::Planned);
        let mut logs: Vec<&PartitionToRestore> =
            self.partitions.iter().filter(is_planned).collect();
        logs.sort_by_key(|each| std::cmp::Reverse(each.bytes));
        let mut buffer = vec![0; CHUNK_BYTES];
        let started = Instant::now();
        let mut all = Sample::default();
        for each in logs.into_iter().take(SAMPLED_LOGS) {
            if started.elapsed() >= PATIENCE {
                break;
            }
            // Whether it can be read is for the work to find; how long a read took that failed says nothing of the others.
            let sample = self.sample(each, &mut buffer, started);
            let sample = sample.unwrap_or_default();
            all.bytes += sample.bytes;
            all.taken += sample.taken;
            each.close_files();
        }
        if all.bytes == 0 {
            return None;
        }
        let bytes = u128::from(self.bytes());
        let nanos = all.taken.as_nanos().saturating_mul(bytes) / u128::from(all.bytes);
        let seconds = nanos.div_ceil(1_000_000_000);
        // Rounded up it is one even for a moment.
        let seconds = u64::try_from(seconds).ok()?;
        (nanos >= 1_000_000_000).then_some(seconds)
    }

    /// Reads the middle of a log's largest segment.
    fn sample(
        &self,
        each: &PartitionToRestore,
        buffer: &mut [u8],
        started: Instant,
    ) -> io::Result<Sample> {
        let mut sample = Sample::default();
        let segments = each.log.as_ref().and_then(|log| log.segments().ok());
        let largest = segments.into_iter().flatten();
        let Some(largest) = largest.max_by_key(|segment| segment.size_bytes) else {
            return Ok(sample);
        };
        let file = self.options.disk.open(&largest.path, Access::Read)?;
        let wanted = largest.size_bytes.min(SAMPLE_BYTES as u64);
        let mut position = (largest.size_bytes - wanted) / 2;
        let end = position + wanted;
        let begun = Instant::now();
        while position < end && started.elapsed() < PATIENCE {
            let chunk = usize::try_from(end - position).unwrap_or(usize::MAX);
            let chunk = chunk.min(buffer.len());
            let chunk = buffer.get_mut(..chunk).unwrap_or_default();
            let count = file.read_at(chunk, position)? as u64;
            if count == 0 {
                break;
            }
            sample.bytes += count;
            position += count;
        }
        sample.taken = begun.elapsed();
        Ok(sample)
    }
}

/// What was read in which time.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    bytes: u64,
    taken: Duration,
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
