//! The batches that stand beside a log, in files that were set aside and in other replicas, and which of them may come back.

use super::replicas::{Around, Candidate, Replicas};
use super::scan_file;
use super::sink::Sink;
use super::truncated::truncated_files;
use offsetlog::format::counted;
use offsetlog::{Batch, Error, Hole, Log, OpenOptions, Result, Scan, SetAsideFile};
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
    pub(super) size_bytes: u64,
    /// Whether compaction has removed records of it.
    pub(super) is_sparse: bool,
    /// Which file.
    file: usize,
    /// Which batch of the file.
    number: u64,
}

impl Entry {
    /// The batches of which a scan can read a record, in its order. Its report has what cannot be decoded.
    pub(super) fn of_scan(scan: &mut Scan) -> Result<Vec<Self>> {
        let mut entries = Vec::new();
        let mut number = 0;
        while let Some(mut batch) = scan.next_batch()? {
            let header = *batch.header();
            let first = batch.next_record()?.map(|record| record.offset);
            while batch.next_record()?.is_some() {}
            // Compaction leaves batches without a record.
            let is_read = first.is_some() || !batch.ended_early();
            if let Some(first) = header.base_offset.or(first).filter(|_| is_read) {
                entries.push(Self {
                    first,
                    last: header.last_offset,
                    epoch: header.leader_epoch,
                    crc: header.crc,
                    size_bytes: header.size_bytes as u64,
                    is_sparse: header.is_sparse(),
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

/// Which batches of a replica.
struct InReplica {
    log: Log,
    /// The offsets of the hole.
    hole: (i64, i64),
    /// Why they may not come back.
    differs: Option<String>,
}

struct File {
    path: PathBuf,
    bytes: u64,
    /// Whether only those who ask for truncated records get it.
    is_truncated: bool,
    /// Where these are batches of another replica.
    replica: Option<InReplica>,
    /// Reads on from batch `next`.
    scan: Option<Scan>,
    next: u64,
}

impl File {
    /// A scan of its batches from the first on.
    fn scan(&self, options: &OpenOptions) -> Result<Scan> {
        match &self.replica {
            Some(replica) => super::replicas::scan(&replica.log, replica.hole),
            None => scan_file(&self.path, options),
        }
    }

    /// Reads a batch, which is behind all that were read.
    fn batch(&mut self, entry: Entry, options: &OpenOptions) -> Result<Batch<'_>> {
        if self.scan.is_none() {
            self.scan = Some(self.scan(options)?);
        }
        let Some(scan) = &mut self.scan else {
            return Err(changed(&self.path));
        };
        while self.next < entry.number {
            self.next += 1;
            if scan.next_batch()?.is_none() {
                return Err(changed(&self.path));
            }
        }
        self.next += 1;
        let batch = scan.next_batch()?.filter(|batch| {
            let header = batch.header();
            (header.last_offset, header.crc) == (entry.last, entry.crc)
        });
        batch.ok_or_else(|| changed(&self.path))
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
    /// Offset, exclusive, up to which records come back.
    stop: i64,
    options: OpenOptions,
    include_truncated: bool,
    taken_back: Vec<TakenBack>,
    left_out: Vec<LeftOut>,
    /// What cannot be read of the files that were set aside, by offset, and of which file.
    unreadable: Vec<(usize, Hole)>,
    /// The first and last offsets of what came back, by offset.
    taken: Vec<(i64, i64)>,
    /// Why a replica could not be read, the first time.
    failure: Option<Error>,
}

const TRUNCATED: &str = "the log was truncated before them, or their segment compacted or lost; --include-truncated takes them";
const COVERED: &str = "the log has these offsets, or had them and removed them";
const BEHIND: &str = "they lie behind the end up to which the log is restored";
const OLDER: &str =
    "they are of a leader epoch that does not fit between those of the log around them";

impl SetAsideBatches {
    /// Reads what is stored beside the log.
    pub(super) fn list(log: &Log, options: &OpenOptions, include_truncated: bool) -> Result<Self> {
        let mut all = Self {
            files: Vec::new(),
            entries: Vec::new(),
            at: 0,
            last_taken: None,
            offsets_taken: 0,
            stop: i64::MAX,
            options: options.clone(),
            include_truncated,
            taken_back: Vec::new(),
            left_out: Vec::new(),
            unreadable: Vec::new(),
            taken: Vec::new(),
            failure: None,
        };
        let last = log.segments()?.last().map(|last| last.base_offset);
        let mut files = log.set_aside_files()?;
        // Retention and compaction leave segments that wait for their deletion too; what they remove is gone for good.
        files.retain(|file| {
            file.cut_at.is_some() || last.is_none_or(|last| file.base_offset > last)
        });
        let mut firsts = Vec::new();
        for file in &files {
            firsts.push(all.read(file)?);
        }
        let truncated = truncated_files(log, &files, &firsts)?;
        for ((each, file), was_truncated) in all.files.iter_mut().zip(&files).zip(truncated) {
            each.is_truncated = file.is_truncation || file.cut_at.is_none() || was_truncated;
        }
        all.entries
            .sort_by_key(|entry| (entry.first, -i64::from(entry.epoch), entry.file));
        all.unreadable.sort_by_key(|(_, hole)| hole.start);
        Ok(all)
    }

    /// Returns the first offset of the file that can be read.
    fn read(&mut self, file: &SetAsideFile) -> Result<Option<i64>> {
        let number = self.files.len();
        let mut scan = scan_file(&file.path, &self.options)?;
        let found = Entry::of_scan(&mut scan)?;
        let first = found.first().map(|entry| entry.first);
        self.entries.extend(found.into_iter().map(|entry| Entry {
            file: number,
            ..entry
        }));
        let (holes, count) = (scan.report().holes(), scan.report().hole_count());
        if let Some(more) = count.checked_sub(holes.len() as u64 + 1) {
            let last = holes.last();
            self.left_out.push(LeftOut {
                path: file.path.clone(),
                batches: 0,
                first_offset: last.map_or(file.base_offset, |last| last.stop.unwrap_or(last.start)),
                last_offset: None,
                reason: format!(
                    "{} of it cannot be read either, and is not in the losses",
                    counted(more + 1, "further place")
                ),
            });
        }
        for hole in holes {
            self.left_out.push(LeftOut {
                path: file.path.clone(),
                batches: 0,
                first_offset: hole.start,
                last_offset: hole.stop.map(|stop| stop - 1),
                reason: hole.reason.clone(),
            });
            let path = file.path.clone();
            self.unreadable.push((number, Hole { path, ..hole }));
        }
        self.files.push(File {
            path: file.path.clone(),
            bytes: file.bytes,
            is_truncated: false,
            replica: None,
            scan: None,
            next: 0,
        });
        Ok(first)
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
                failed,
            } = candidate;
            let path = log.path().to_path_buf();
            if let Some(error) = failed {
                self.left_out.push(LeftOut {
                    path: path.clone(),
                    batches: 0,
                    first_offset: hole.0,
                    last_offset: Some(hole.1 - 1),
                    reason: failure(&error),
                });
                self.failure.get_or_insert(error);
            }
            let stop = self.stop;
            let entries = entries.into_iter().filter(|entry| entry.first < stop);
            self.entries.extend(entries.map(|entry| Entry {
                file: number,
                ..entry
            }));
            let unreadable = unreadable.into_iter().filter(|hole| hole.start < stop);
            self.left_out.extend(unreadable.map(|hole| LeftOut {
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
                replica: Some(InReplica {
                    log,
                    hole,
                    differs: differs.map(str::to_owned),
                }),
                scan: None,
                next: 0,
            });
        }
        if let Some(rest) = self.entries.get_mut(self.at..) {
            rest.sort_by_key(|entry| (entry.first, -i64::from(entry.epoch), entry.file));
        }
        Ok(())
    }

    /// Lowers the offset, exclusive, up to which records come back.
    pub(super) fn stop_at(&mut self, stop: i64) {
        self.stop = self.stop.min(stop);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Why a replica could not be read, if one could not.
    pub(super) const fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Offsets that came back so far.
    pub(super) const fn offsets_taken(&self) -> u64 {
        self.offsets_taken
    }

    /// First offset of the next batch that lies whole between `start` and `stop`, fits there, and begins before the cut. Those before it
    /// are left out. `epochs` are the leader epochs of the log before and after.
    pub(super) fn next_in(&mut self, start: i64, stop: i64, epochs: (i32, i32)) -> Option<i64> {
        loop {
            let entry = *self.entries.get(self.at)?;
            if entry.first >= stop.min(self.stop) {
                return None;
            }
            let taken = self.last_taken.filter(|taken| entry.first <= taken.last);
            let is_truncated = self.is_truncated(entry) && !self.include_truncated;
            let newest = self.last_taken.map_or(i32::MIN, |taken| taken.epoch);
            let is_versioned = entry.epoch >= 0;
            if let Some(why) = self.differs(entry) {
                self.leave(entry, &why);
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
    fn differs(&self, entry: Entry) -> Option<String> {
        let replica = self.files.get(entry.file)?.replica.as_ref()?;
        replica.differs.clone()
    }

    /// Adds the batch that [`next_in`](Self::next_in) found. Returns its size in bytes; 0 for one of a replica that fails, of which
    /// nothing more is taken in this hole.
    pub(super) fn add_next(&mut self, sink: &mut Sink) -> Result<u64> {
        let Some(&entry) = self.entries.get(self.at) else {
            return Ok(0);
        };
        let Some(file) = self.files.get_mut(entry.file) else {
            self.at += 1;
            return Ok(0);
        };
        let mut batch = match file.batch(entry, &self.options) {
            Ok(batch) => batch,
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => {
                // Its entry is asked for again, and left.
                let Some(replica) = self.replica_of(entry) else {
                    return Err(error);
                };
                replica.differs = Some(failure(&error));
                self.failure.get_or_insert(error);
                return Ok(0);
            }
        };
        let records = sink.add(&mut batch)?;
        let is_whole = !batch.ended_early();
        self.stop_at(sink.stop().unwrap_or(i64::MAX));
        if entry.first >= self.stop {
            return Ok(0);
        }
        self.at += 1;
        self.note(entry, records, is_whole);
        Ok(entry.size_bytes)
    }

    /// What the new log lacks behind `start`, the end of the live log, and before the last batch that came back, because it cannot be read
    /// where recovery kept it.
    pub(super) fn lost_behind(&self, start: i64) -> Vec<Hole> {
        let mut lost = Vec::new();
        let mut next = start;
        for &(first, last) in &self.taken {
            for (file, hole) in &self.unreadable {
                let was_truncated = self.files.get(*file).is_some_and(|file| file.is_truncated);
                let stop = hole.stop.unwrap_or(first).min(first);
                let start = hole.start.max(next);
                if !was_truncated && start < stop {
                    next = stop;
                    lost.push(Hole {
                        start,
                        stop: Some(stop),
                        ..hole.clone()
                    });
                }
            }
            next = next.max(last.saturating_add(1));
        }
        lost
    }

    fn replica_of(&mut self, entry: Entry) -> Option<&mut InReplica> {
        self.files.get_mut(entry.file)?.replica.as_mut()
    }

    fn note(&mut self, entry: Entry, records: u64, is_whole: bool) {
        let Some(path) = self.files.get(entry.file).map(|file| file.path.clone()) else {
            return;
        };
        self.last_taken = Some(entry);
        let last_offset = entry.last.min(self.stop.saturating_sub(1));
        let offsets = if is_whole {
            u64::try_from(last_offset - entry.first + 1).unwrap_or(0)
        } else {
            records
        };
        self.offsets_taken += offsets;
        let last = entry.first + i64::try_from(offsets).unwrap_or(i64::MAX - entry.first) - 1;
        match self.taken.last_mut() {
            Some(taken) if taken.1 + 1 == entry.first => taken.1 = last,
            _ => self.taken.push((entry.first, last)),
        }
        match self.taken_back.last_mut().filter(|last| last.path == path) {
            Some(last) => {
                last.batches += 1;
                last.records += records;
                last.last_offset = last_offset;
            }
            None => self.taken_back.push(TakenBack {
                path,
                batches: 1,
                records,
                first_offset: entry.first,
                last_offset,
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
            let is_behind = entry.first >= self.stop;
            self.leave(entry, if is_behind { BEHIND } else { COVERED });
            self.at += 1;
        }
        (
            std::mem::take(&mut self.taken_back),
            std::mem::take(&mut self.left_out),
        )
    }
}

fn failure(error: &Error) -> String {
    format!("this replica cannot be read there: {error}")
}

fn changed(path: &Path) -> Error {
    Error::log_dir(path, "another file found than a moment ago; call again")
}
