//! The batches that stand beside a log, in files that were set aside and in other replicas, and which of them may come back.

use super::replicas::{Around, Candidate, Replicas};
use super::scan_file;
use super::sink::Sink;
use offsetlog::{Error, Log, OpenOptions, Result, Scan, SetAsideFile};
use std::path::{Path, PathBuf};

/// Batches of one file, or of another replica, that came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBack {
    /// The file; of a replica, its directory.
    pub path: PathBuf,
    /// Number of batches.
    pub batches: u64,
    /// Number of records in them, without control records.
    pub records: u64,
    /// First offset.
    pub first_offset: i64,
    /// Last offset.
    pub last_offset: i64,
}

/// Batches of one file, or of another replica, that were left there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The file; of a replica, its directory.
    pub path: PathBuf,
    /// Number of batches; 0 for bytes that cannot be read.
    pub batches: u64,
    /// First offset.
    pub first_offset: i64,
    /// Last offset; `None` if nobody knows.
    pub last_offset: Option<i64>,
    /// Why.
    pub reason: String,
}

/// A batch in a file that was set aside, or in a replica.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) epoch: i32,
    pub(super) crc: u32,
    /// Which file.
    file: usize,
    /// Which batch of the file.
    number: u64,
}

impl Entry {
    /// The batches that a scan finds, in its order.
    pub(super) fn of_scan(scan: &mut Scan) -> Result<Vec<Self>> {
        let mut entries = Vec::new();
        let mut number = 0;
        while let Some(mut batch) = scan.next_batch()? {
            let header = *batch.header();
            let first = match header.base_offset {
                Some(first) => Some(first),
                None => batch.next_record()?.map(|record| record.offset),
            };
            if let Some(first) = first {
                entries.push(Self {
                    first,
                    last: header.last_offset,
                    epoch: header.leader_epoch,
                    crc: header.crc,
                    file: 0,
                    number,
                });
            }
            number += 1;
        }
        Ok(entries)
    }

    /// Whether both are the same batch: the checksum covers all but the offset and the leader epoch.
    pub(super) fn is_same(self, other: Self) -> bool {
        (self.first, self.last, self.crc) == (other.first, other.last, other.crc)
    }

    /// Whether they have an offset in common.
    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

struct File {
    path: PathBuf,
    bytes: u64,
    /// Whether only those who ask for truncated records get it.
    is_truncated: bool,
    /// Where these are batches of another replica: it, the offsets of the hole, and why they may not come back.
    replica: Option<(Log, (i64, i64), Option<&'static str>)>,
    /// Reads on from batch `next`.
    scan: Option<Scan>,
    next: u64,
}

impl File {
    /// A scan of its batches from the first on.
    fn scan(&self, options: &OpenOptions) -> Result<Scan> {
        match &self.replica {
            Some((log, hole, _)) => super::replicas::scan(log, *hole),
            None => scan_file(&self.path, options),
        }
    }
}

/// The batches of all files that were set aside, and of replicas where the log has a hole, by offset.
pub(super) struct SetAsideBatches {
    files: Vec<File>,
    entries: Vec<Entry>,
    /// Entries before it are dealt with.
    at: usize,
    last_taken: Option<Entry>,
    offsets_taken: u64,
    options: OpenOptions,
    include_truncated: bool,
    taken_back: Vec<TakenBack>,
    left_out: Vec<LeftOut>,
}

const TRUNCATED: &str =
    "the log was truncated, or its segment compacted, before them; --include-truncated takes them";
const COVERED: &str = "the log has these offsets, or had them and removed them";
const OLDER: &str =
    "they are of a leader epoch that does not fit between those of the log around them";

impl SetAsideBatches {
    /// Reads what stands beside the log.
    pub(super) fn list(log: &Log, options: &OpenOptions, include_truncated: bool) -> Result<Self> {
        let mut all = Self {
            files: Vec::new(),
            entries: Vec::new(),
            at: 0,
            last_taken: None,
            offsets_taken: 0,
            options: options.clone(),
            include_truncated,
            taken_back: Vec::new(),
            left_out: Vec::new(),
        };
        let segments = log.segments()?;
        let live_bases: Vec<i64> = segments.iter().map(|segment| segment.base_offset).collect();
        for file in log.set_aside_files()? {
            let segment = segments
                .iter()
                .find(|each| each.base_offset == file.base_offset);
            let is_truncated = match file.cut_at {
                // The log has lost bytes before the cut since.
                Some(position) => segment.is_some_and(|segment| segment.size_bytes < position),
                // Retention and compaction leave such files too; what they remove is gone for good.
                None if live_bases
                    .last()
                    .is_some_and(|&last| file.base_offset <= last) =>
                {
                    continue;
                }
                None => true,
            };
            all.read(&file, is_truncated)?;
        }
        all.entries
            .sort_by_key(|entry| (entry.first, -i64::from(entry.epoch), entry.file));
        Ok(all)
    }

    fn read(&mut self, file: &SetAsideFile, is_truncated: bool) -> Result<()> {
        let number = self.files.len();
        let mut scan = scan_file(&file.path, &self.options)?;
        let found = Entry::of_scan(&mut scan)?.into_iter();
        self.entries.extend(found.map(|entry| Entry {
            file: number,
            ..entry
        }));
        for hole in scan.report().holes() {
            self.left_out.push(LeftOut {
                path: file.path.clone(),
                batches: 0,
                first_offset: hole.start,
                last_offset: hole.stop.map(|stop| stop - 1),
                reason: hole.reason,
            });
        }
        self.files.push(File {
            path: file.path.clone(),
            bytes: file.bytes,
            is_truncated,
            replica: None,
            scan: None,
            next: 0,
        });
        Ok(())
    }

    /// Adds the batches that other replicas have in a hole of the log, between these two batches of it.
    pub(super) fn add_replicas(
        &mut self,
        replicas: &Replicas<'_>,
        hole: (i64, i64),
        around: Around,
    ) -> Result<()> {
        for file in &mut self.files {
            if file.replica.is_some() {
                // An earlier hole's: it is dealt with.
                file.scan = None;
            }
        }
        for candidate in replicas.candidates(hole, around)? {
            let number = self.files.len();
            let Candidate {
                log,
                entries,
                differs,
                unreadable,
            } = candidate;
            let path = log.path().to_path_buf();
            let entries = entries.into_iter();
            self.entries.extend(entries.map(|entry| Entry {
                file: number,
                ..entry
            }));
            self.left_out
                .extend(unreadable.into_iter().map(|hole| LeftOut {
                    path: path.clone(),
                    batches: 0,
                    first_offset: hole.start,
                    last_offset: hole.stop.map(|stop| stop - 1),
                    reason: hole.reason,
                }));
            self.files.push(File {
                path,
                bytes: 0,
                is_truncated: false,
                replica: Some((log, hole, differs)),
                scan: None,
                next: 0,
            });
        }
        if let Some(rest) = self.entries.get_mut(self.at..) {
            rest.sort_by_key(|entry| (entry.first, -i64::from(entry.epoch), entry.file));
        }
        Ok(())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Offsets that came back so far.
    pub(super) const fn offsets_taken(&self) -> u64 {
        self.offsets_taken
    }

    /// First offset of the next batch that lies whole between `start` and `stop` and fits there. Those before it are left out.
    /// `epochs` are the leader epochs of the log before and after.
    pub(super) fn next_in(&mut self, start: i64, stop: i64, epochs: (i32, i32)) -> Option<i64> {
        loop {
            let entry = *self.entries.get(self.at)?;
            if entry.first >= stop {
                return None;
            }
            let taken = self.last_taken.filter(|taken| entry.first <= taken.last);
            let is_truncated = self.is_truncated(entry) && !self.include_truncated;
            let newest = self.last_taken.map_or(i32::MIN, |taken| taken.epoch);
            let is_versioned = entry.epoch >= 0;
            if let Some(why) = self.differs(entry) {
                self.leave(entry, why);
            } else if let Some(taken) = taken {
                // Two recoveries may have cut the same bytes.
                if !taken.is_same(entry) {
                    let other = self.files.get(taken.file).map(|file| file.path.display());
                    let reason = other.map_or_else(String::new, |other| {
                        format!("they overlap batches that were taken from {other}")
                    });
                    self.leave(entry, &reason);
                }
            } else if entry.first < start || entry.last >= stop {
                self.leave(entry, COVERED);
            } else if is_truncated {
                self.leave(entry, TRUNCATED);
            } else if is_versioned && !(epochs.0.max(newest)..=epochs.1).contains(&entry.epoch) {
                self.leave(entry, OLDER);
            } else {
                return Some(entry.first);
            }
            self.at += 1;
        }
    }

    fn is_truncated(&self, entry: Entry) -> bool {
        self.files
            .get(entry.file)
            .is_some_and(|file| file.is_truncated)
    }

    /// Why a replica's batch may not come back.
    fn differs(&self, entry: Entry) -> Option<&'static str> {
        self.files.get(entry.file)?.replica.as_ref()?.2
    }

    /// Adds the batch that [`next_in`](Self::next_in) found. Returns its size in bytes.
    pub(super) fn add_next(&mut self, sink: &mut Sink) -> Result<u64> {
        let Some(&entry) = self.entries.get(self.at) else {
            return Ok(0);
        };
        self.at += 1;
        let Some(file) = self.files.get_mut(entry.file) else {
            return Ok(0);
        };
        if file.scan.is_none() {
            file.scan = Some(file.scan(&self.options)?);
        }
        let Some(scan) = &mut file.scan else {
            return Ok(0);
        };
        loop {
            let number = file.next;
            let Some(mut batch) = scan.next_batch()? else {
                return Err(changed(&file.path));
            };
            file.next += 1;
            if number < entry.number {
                continue;
            }
            let header = *batch.header();
            if (header.last_offset, header.crc) != (entry.last, entry.crc) {
                return Err(changed(&file.path));
            }
            let records = sink.add(&mut batch)?;
            let path = file.path.clone();
            self.note(entry, path, records);
            return Ok(header.size_bytes as u64);
        }
    }

    fn note(&mut self, entry: Entry, path: PathBuf, records: u64) {
        self.last_taken = Some(entry);
        self.offsets_taken += u64::try_from(entry.last - entry.first + 1).unwrap_or(0);
        match self.taken_back.last_mut().filter(|last| last.path == path) {
            Some(last) => {
                last.batches += 1;
                last.records += records;
                last.last_offset = entry.last;
            }
            None => self.taken_back.push(TakenBack {
                path,
                batches: 1,
                records,
                first_offset: entry.first,
                last_offset: entry.last,
            }),
        }
    }

    fn leave(&mut self, entry: Entry, reason: &str) {
        let Some(file) = self.files.get(entry.file) else {
            return;
        };
        let same = self
            .left_out
            .iter_mut()
            .rev()
            .find(|last| last.path == file.path && last.reason == reason && last.batches > 0);
        match same {
            Some(last) => {
                last.batches += 1;
                last.last_offset = last.last_offset.max(Some(entry.last));
            }
            None => self.left_out.push(LeftOut {
                path: file.path.clone(),
                batches: 1,
                first_offset: entry.first,
                last_offset: Some(entry.last),
                reason: reason.to_owned(),
            }),
        }
    }

    /// What came back, and what did not: nothing that was looked at is left unsaid.
    pub(super) fn report(&mut self) -> (Vec<TakenBack>, Vec<LeftOut>) {
        while let Some(&entry) = self.entries.get(self.at) {
            self.leave(entry, COVERED);
            self.at += 1;
        }
        (
            std::mem::take(&mut self.taken_back),
            std::mem::take(&mut self.left_out),
        )
    }
}

fn changed(path: &Path) -> Error {
    Error::log_dir(path, "another file found than a moment ago; call again")
}
