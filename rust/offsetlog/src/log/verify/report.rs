//! The report of a verification, and the table of what Kafka and `recover` do with each kind of damage.

use crate::error::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal: a running or killed broker leaves this, or Kafka accepts it.
    Note,
    /// Something is missing or incomplete that can be rebuilt or truncated without loss.
    Warning,
    /// Bytes contradict themselves or each other.
    Error,
}

impl Severity {
    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that is wrong or unusual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// Its kind: the name of the error that a reader gets, or a name used only here.
    pub kind: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Position in the file.
    pub position: Option<u64>,
    /// The offset, if it is known.
    pub offset: Option<i64>,
    /// What is wrong.
    pub reason: String,
    /// The value that was found, if there is one.
    pub found: Option<String>,
    /// The value that was expected.
    pub expected: Option<String>,
    /// What Kafka does about it at a start after a clean shutdown.
    pub clean: &'static str,
    /// What Kafka does about it at a start after a crash.
    pub unclean: &'static str,
    /// What [`recover`](crate::recover) does about it.
    pub recover: &'static str,
}

/// Number of findings that are kept. Further findings are only counted.
const FINDINGS_MAX: usize = 10_000;

/// The result of a verification, which changes, locks and creates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DamageReport {
    /// The findings in the order in which they were found, at most 10,000.
    pub findings: Vec<Finding>,
    /// Number of findings of each severity: notes, warnings, errors.
    pub counts: [u64; 3],
    /// Partitions checked.
    pub partitions: u64,
    /// Segments read.
    pub segments: u64,
    /// Complete batches read.
    pub batches: u64,
    /// Records decoded.
    pub records: u64,
    /// Bytes of `.log` files read.
    pub bytes: u64,
}

impl DamageReport {
    /// Whether there are warnings or errors.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        let [_, warnings, errors] = self.counts;
        warnings + errors > 0
    }

    /// Adds the result of another partition.
    pub(super) fn take(&mut self, other: Self) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum += more;
        }
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
        self.partitions += other.partitions;
        self.segments += other.segments;
        self.batches += other.batches;
        self.records += other.records;
        self.bytes += other.bytes;
    }

    /// Drops warnings and errors that an earlier check of the same partition did not find: they were changes in progress.
    pub(super) fn keep_common(&mut self, earlier: &Self) {
        let known = |finding: &Finding| {
            let same = |other: &Finding| {
                (finding.kind, &finding.path, finding.position)
                    == (other.kind, &other.path, other.position)
            };
            finding.severity == Severity::Note || earlier.findings.iter().any(same)
        };
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.findings)
            .into_iter()
            .partition(known);
        self.findings = kept;
        for finding in gone {
            if let Some(count) = self.counts.get_mut(finding.severity as usize) {
                *count -= 1;
            }
        }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        if let Some(count) = self.counts.get_mut(finding.severity as usize) {
            *count += 1;
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// What happens with one kind of damage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effect {
    pub(super) clean: &'static str,
    pub(super) unclean: &'static str,
    pub(super) recover: &'static str,
}

const ACCEPTED: &str = "accepted";
const LEFT: &str = "left as it is";
const AGAIN: &str = "made again from the batches";
const ABORTS: &str = "loading the log fails";
const CUTS: &str = "the log is cut here; what is cut is kept in offsetlog-cut";

impl Effect {
    pub(super) const NOTHING: Self = Self::of(ACCEPTED, ACCEPTED, LEFT);
    pub(super) const BATCH: Self = Self::of(
        "not noticed until it is read, which then fails",
        "the log is cut here, later segments are renamed .deleted",
        CUTS,
    );
    pub(super) const TORN: Self = Self::of(
        "kept; what is appended behind it can never be read",
        "cut off",
        "cut off; what is cut is kept in offsetlog-cut",
    );
    pub(super) const ZEROS: Self = Self::of(ABORTS, "cut off", "cut off");
    pub(super) const ORDER: Self = Self::of(
        "accepted: readers see offsets twice or going back",
        "accepted, or the segment is emptied",
        CUTS,
    );
    pub(super) const RECORDS: Self = Self::of(
        "accepted; consumers fail on the batch",
        "accepted; consumers fail on the batch",
        LEFT,
    );
    pub(super) const MARKER: Self = Self::of("accepted", ABORTS, LEFT);
    pub(super) const MAGIC: Self = Self::of(
        "not noticed; consumers fail on the batch",
        "not noticed where the rest is whole, else the log is cut here",
        CUTS,
    );
    pub(super) const WIDE: Self = Self::of(ACCEPTED, "the segment is split in two", LEFT);
    pub(super) const TOO_LARGE: Self = Self::of(ABORTS, ABORTS, "refused");
    pub(super) const INDEX: Self = Self::of("believed: look-ups go astray", AGAIN, AGAIN);
    pub(super) const ZERO_INDEX: Self = Self::of(
        "believed: look-ups scan the segment from its start",
        AGAIN,
        AGAIN,
    );
    pub(super) const THIN_INDEX: Self = Self::of(
        "believed: look-ups scan from the entry before",
        AGAIN,
        "left as it is: what it says is true",
    );
    pub(super) const SHORT_TIMES: Self = Self::of(
        "believed: the segment counts as older than it is, and retention by time may delete it early",
        AGAIN,
        AGAIN,
    );
    pub(super) const UNREADABLE: Self = Self::of(
        "the log dir goes offline when it is met",
        "the log dir goes offline when it is met",
        "refused",
    );
    pub(super) const OWN_LIMIT: Self = Self::of(
        "unknown: it was not checked, as only offsetlog has this limit",
        "unknown: it was not checked, as only offsetlog has this limit",
        "refused until the limit is raised",
    );
    pub(super) const NOT_A_FILE: Self = Self::of(ABORTS, ABORTS, "refused, or left as it is");
    pub(super) const TAIL: Self = Self::of("ignored", AGAIN, AGAIN);
    pub(super) const NO_INDEX: Self = Self::of("the segment is recovered", AGAIN, AGAIN);
    pub(super) const ABORTED: Self =
        Self::of("the segment is recovered, or loading fails", AGAIN, AGAIN);
    pub(super) const SNAPSHOT: Self = Self::of(
        "deleted; producers come from an older one or from the batches",
        "deleted; producers come from an older one or from the batches",
        AGAIN,
    );
    pub(super) const EPOCHS: Self = Self::of(ABORTS, ABORTS, AGAIN);
    pub(super) const NO_EPOCHS: Self = Self::of(
        "followers and consumers cannot ask for the end of an epoch",
        AGAIN,
        AGAIN,
    );
    pub(super) const METADATA: Self = Self::of(ABORTS, ABORTS, LEFT);
    pub(super) const SETTINGS: Self = Self::of(
        ACCEPTED,
        ACCEPTED,
        "refused until it is mended or removed; without it the settings are the defaults",
    );
    pub(super) const NAME: Self = Self::of(ABORTS, ABORTS, "refused");
    pub(super) const FOLDER: Self = Self::of(
        "the broker does not start",
        "the broker does not start",
        LEFT,
    );
    pub(super) const IDENTITY: Self = Self::of(
        "the broker does not start",
        "the broker does not start",
        LEFT,
    );
    pub(super) const CHECKPOINT: Self = Self::of(
        "counts as empty",
        "counts as empty: logs are read from their first segment",
        LEFT,
    );
    pub(super) const START: Self = Self::of(
        "all segments are renamed .deleted",
        "all segments are renamed .deleted",
        "all segments are cut; what is cut is kept in offsetlog-cut",
    );
    pub(super) const DOOMED: Self = Self::of("deleted", "deleted", "removed");
    pub(super) const SWAP: Self = Self::of(
        "put in the place of what it was made from, or deleted",
        "put in the place of what it was made from, or deleted",
        "put in its place or removed",
    );

    const fn of(clean: &'static str, unclean: &'static str, recover: &'static str) -> Self {
        Self {
            clean,
            unclean,
            recover,
        }
    }

    pub(super) fn finding(
        self,
        severity: Severity,
        kind: &'static str,
        path: &Path,
        reason: impl Into<String>,
    ) -> Finding {
        Finding {
            severity,
            kind,
            path: path.to_path_buf(),
            position: None,
            offset: None,
            reason: reason.into(),
            found: None,
            expected: None,
            clean: self.clean,
            unclean: self.unclean,
            recover: self.recover,
        }
    }

    /// The finding for a file that cannot be read. A broker fails on it too, unless the cause is a limit that only offsetlog
    /// has.
    pub(super) fn unread(path: &Path, error: &Error) -> Finding {
        let is_limit = matches!(
            error.kind(),
            ErrorKind::Limit { .. } | ErrorKind::Unreadable { .. }
        );
        let effect = if is_limit {
            Self::OWN_LIMIT
        } else {
            Self::UNREADABLE
        };
        effect.error(path, error)
    }

    pub(super) fn error(self, path: &Path, error: &Error) -> Finding {
        let mut finding = self.finding(Severity::Error, error.kind().code(), path, error.words());
        finding.position = error.position();
        finding.offset = error.offset();
        finding.found = error.found();
        finding.expected = error.expected();
        finding
    }
}
