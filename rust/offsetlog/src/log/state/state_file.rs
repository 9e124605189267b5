//! The files that a writer leaves about a partition: its state file, and the log dir's list of partitions that are not closed.

use crate::disk::Disk;
use crate::segment::segment_path;
use std::fmt::Write as _;
use std::path::Path;

/// The active segment as it was when the log was closed. A file that somebody has changed since does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct CleanMark {
    pub(in crate::log) active_base: i64,
    pub(in crate::log) size: u64,
    pub(in crate::log) modified_ns: i128,
}

/// The recovery point and log start offset of a partition, as in the checkpoints of a log dir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::log) struct Lines {
    pub(in crate::log) recovery_point: i64,
    pub(in crate::log) log_start: i64,
}

/// The contents of the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub(crate) recovery_point: i64,
    pub(crate) log_start: i64,
    /// In a log dir, the values of the checkpoints until they say the above.
    pub(in crate::log) before: Option<Lines>,
    pub(in crate::log) clean: Option<CleanMark>,
    /// First offset that was not compacted yet. Unused in a log dir, which has a checkpoint for it.
    pub(in crate::log) cleaner: Option<i64>,
    /// The boot id of the machine, while a writer has the log open. It stays if the writer ends without closing the log. Beside `clean`, a
    /// recovery of a closed log has begun.
    pub(in crate::log) boot: Option<u128>,
    /// The log start offset that a truncation makes which runs: one below the start above, or one that begins the log anew. Until that
    /// start is stored too, the log ends below the one above, or has the segments of two logs.
    pub(in crate::log) cutting: Option<i64>,
}

impl State {
    pub(in crate::log) const fn new(recovery_point: i64, log_start: i64) -> Self {
        Self {
            recovery_point,
            log_start,
            before: None,
            clean: None,
            cleaner: None,
            boot: None,
            cutting: None,
        }
    }

    pub(in crate::log) const fn lines(&self) -> Lines {
        Lines {
            recovery_point: self.recovery_point,
            log_start: self.log_start,
        }
    }

    /// Whether the checkpoints have the values of this file, now or before the last update.
    pub(in crate::log) fn notes(&self, is_said: impl Fn(Lines) -> bool) -> bool {
        is_said(self.lines()) || self.before.is_some_and(is_said)
    }

    /// Returns the base offset of the segment that was active when our writer closed the log, if the file is unchanged since.
    pub(crate) fn closed_with(&self, disk: &dyn Disk, directory: &Path) -> Option<i64> {
        let mark = self.clean.filter(|_| !self.is_open())?;
        let stat = disk.stat(&segment_path(directory, mark.active_base, ".log"));
        stat.is_ok_and(|stat| stat.size == mark.size && stat.modified_ns == mark.modified_ns)
            .then_some(mark.active_base)
    }

    /// Whether a writer of ours has the log open, or ended without closing it.
    pub(crate) const fn is_open(&self) -> bool {
        self.boot.is_some()
    }

    /// Whether a writer of ours ended without closing the log, and may have lost what was not flushed.
    pub(in crate::log) const fn is_crashed(&self) -> bool {
        self.boot.is_some() && self.clean.is_none()
    }

    pub(in crate::log) fn text(&self) -> String {
        let mut text = format!(
            "version: 0\nrecovery_point: {}\nlog_start_offset: {}\n",
            self.recovery_point, self.log_start
        );
        // Writing to a String cannot fail.
        if let Some(before) = &self.before {
            let _ = writeln!(
                text,
                "before: {} {}",
                before.recovery_point, before.log_start
            );
        }
        if let Some(mark) = &self.clean {
            let _ = writeln!(
                text,
                "clean: {} {} {}",
                mark.active_base, mark.size, mark.modified_ns
            );
        }
        if let Some(offset) = self.cleaner {
            let _ = writeln!(text, "cleaner_offset: {offset}");
        }
        if let Some(boot) = self.boot {
            let _ = writeln!(text, "boot: {boot:032x}");
        }
        if let Some(offset) = self.cutting {
            let _ = writeln!(text, "cutting: {offset}");
        }
        text
    }

    pub(in crate::log) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next()? != "version: 0" {
            return None;
        }
        let offset = |line: &str, name: &str| -> Option<i64> {
            let value = line.strip_prefix(name)?.strip_prefix(": ")?;
            value.parse().ok().filter(|&offset: &i64| offset >= 0)
        };
        let recovery_point = offset(lines.next()?, "recovery_point")?;
        let log_start = offset(lines.next()?, "log_start_offset")?;
        let (mut before, mut clean, mut cleaner) = (None, None, None);
        let (mut boot, mut cutting) = (None, None);
        for line in lines {
            if let Some(fields) = line.strip_prefix("before: ") {
                let (recovery_point, log_start) = fields.split_once(' ')?;
                before = Some(Lines {
                    recovery_point: recovery_point.parse().ok()?,
                    log_start: log_start.parse().ok()?,
                });
            } else if let Some(fields) = line.strip_prefix("clean: ") {
                let mut fields = fields.split(' ');
                clean = Some(CleanMark {
                    active_base: fields.next()?.parse().ok()?,
                    size: fields.next()?.parse().ok()?,
                    modified_ns: fields.next()?.parse().ok()?,
                });
            } else if line.starts_with("cleaner_offset") {
                cleaner = Some(offset(line, "cleaner_offset")?);
            } else if line.starts_with("cutting") {
                cutting = Some(offset(line, "cutting")?);
            } else {
                let id = line.strip_prefix("boot: ")?;
                boot = Some(u128::from_str_radix(id, 16).ok()?);
            }
        }
        Some(Self {
            recovery_point,
            log_start,
            before,
            clean,
            cleaner,
            boot,
            cutting,
        })
    }
}

/// The contents of the list of partitions that are not closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unclean {
    pub(crate) broker_epoch: i64,
    pub(crate) partitions: Vec<String>,
}

impl Unclean {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.broker_epoch);
        for partition in &self.partitions {
            text.push_str(partition);
            text.push('\n');
        }
        text
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let broker_epoch = lines.next().and_then(|line| line.parse().ok());
        Self {
            broker_epoch: broker_epoch.unwrap_or(-1),
            partitions: lines.map(str::to_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_reads_back() {
        let plain = State::new(7, 3);
        assert_eq!(State::parse(plain.text().as_bytes()), Some(plain));
        let clean = State {
            before: Some(Lines {
                recovery_point: 4,
                log_start: 0,
            }),
            clean: Some(CleanMark {
                active_base: 5,
                size: 12,
                modified_ns: 1_700_000_000_123_456_789,
            }),
            cleaner: Some(6),
            ..plain
        };
        assert_eq!(State::parse(clean.text().as_bytes()), Some(clean));
        for bad in [
            "",
            "version: 1\n",
            "version: 0\nrecovery_point: -1\nlog_start_offset: 0\n",
            "version: 0\nrecovery_point: 1\n",
        ] {
            assert_eq!(State::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn list_of_unclean_partitions_reads_back() {
        let unclean = Unclean {
            broker_epoch: 9,
            partitions: vec!["a-0".to_owned(), "b-12".to_owned()],
        };
        assert_eq!(Unclean::parse(unclean.text().as_bytes()), unclean);
    }
}
