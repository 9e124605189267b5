//! Offset and time indexes, as Kafka's tool prints and checks them against the segment.

use super::java;
use super::kafka_batch;
use super::kafka_run::{Ended, Run, base_offset, cannot_read, exception, sibling};
use super::log_file::{LogFile, whole, whole_limit};
use offsetlog::Limits;
use offsetlog::format::index_entry::{OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES};
use std::cmp::Ordering;
use std::path::Path;

const CORRUPT_INDEX: &str = "org.apache.kafka.storage.internals.log.CorruptIndexException";

/// An index as Kafka maps it: whole entries only, not checked.
struct Index {
    base: i64,
    bytes: Vec<u8>,
}

impl Index {
    fn read(path: &Path, shown: &str, base: i64) -> Result<Self, Ended> {
        let bytes = whole(path, whole_limit()).map_err(|error| cannot_read(shown, &error))?;
        Ok(Self { base, bytes })
    }

    /// Entries of an offset index: offset and position.
    fn offsets(&self) -> impl DoubleEndedIterator<Item = (i64, i32)> + ExactSizeIterator {
        let (entries, _) = self.bytes.as_chunks::<OFFSET_INDEX_ENTRY_BYTES>();
        entries.iter().map(|entry| {
            let (relative, position) = halves(*entry);
            (self.base.wrapping_add(relative.into()), position)
        })
    }

    /// Entries of a time index: timestamp and offset.
    fn times(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> + ExactSizeIterator {
        let (entries, _) = self.bytes.as_chunks::<TIME_INDEX_ENTRY_BYTES>();
        entries.iter().map(|entry| {
            let timestamp = entry.first_chunk().copied().unwrap_or_default();
            let relative = entry.last_chunk().copied().unwrap_or_default();
            let relative = i32::from_be_bytes(relative);
            (
                i64::from_be_bytes(timestamp),
                self.base.wrapping_add(relative.into()),
            )
        })
    }

    /// Where reading for an offset begins. The search is Kafka's, which takes the zeros behind the entries of an unfinished index for
    /// entries and so may end anywhere.
    fn position_of(&self, offset: i64) -> i32 {
        const WARM_ENTRIES: usize = 8192 / OFFSET_INDEX_ENTRY_BYTES;
        let (entries, _) = self.bytes.as_chunks::<OFFSET_INDEX_ENTRY_BYTES>();
        let entry = |slot: usize| {
            let (relative, position) = halves(entries.get(slot).copied().unwrap_or_default());
            (self.base.wrapping_add(relative.into()), position)
        };
        let Some(last) = entries.len().checked_sub(1) else {
            return 0;
        };
        let first_warm = last.saturating_sub(WARM_ENTRIES);
        let (mut low, mut high) = if entry(first_warm).0 < offset {
            (first_warm, last)
        } else if entry(0).0 > offset {
            return 0;
        } else {
            (0, first_warm)
        };
        while low < high {
            let middle = (low + high).div_ceil(2);
            match entry(middle).0.cmp(&offset) {
                Ordering::Greater => high = middle - 1,
                Ordering::Less => low = middle,
                Ordering::Equal => return entry(middle).1,
            }
        }
        entry(low).1
    }
}

fn halves(entry: [u8; OFFSET_INDEX_ENTRY_BYTES]) -> (i32, i32) {
    let high = entry.first_chunk().copied().unwrap_or_default();
    let low = entry.last_chunk().copied().unwrap_or_default();
    (i32::from_be_bytes(high), i32::from_be_bytes(low))
}

/// The segment beside an index, by its absolute path.
struct Segment {
    log: LogFile,
    file: String,
}

impl Segment {
    fn beside(file: &str) -> Result<Self, Ended> {
        let path = sibling(file, ".log");
        let file = path.to_string_lossy().into_owned();
        let log = LogFile::open(&path).map_err(|error| cannot_read(&file, &error))?;
        Ok(Self { log, file })
    }

    /// Where reading from a position may begin; `FileRecords.slice` refuses what is not in the file.
    fn slice(&self, position: i32) -> Result<u64, Ended> {
        let refused = |text: String| Err(exception("java.lang.IllegalArgumentException", &text));
        let whole = format!(
            "FileRecords(size={}, file={}, start=0, end=2147483647)",
            self.log.size, self.file
        );
        match u64::try_from(position) {
            Err(_) => refused(format!("Invalid position: {position} in read from {whole}")),
            Ok(position) if position > self.log.size => refused(format!(
                "Slice from position {position} exceeds end position of {whole}"
            )),
            Ok(position) => Ok(position),
        }
    }
}

pub(super) fn offsets(run: &mut Run<'_, '_>, file: &str) -> Result<(), Ended> {
    let base = base_offset(file)?;
    let mut segment = Segment::beside(file)?;
    let index = Index::read(Path::new(file), file, base)?;
    let entries = index.offsets();
    let Some((last, _)) = index.offsets().next_back() else {
        return run.line(&format!("{file} is empty."));
    };
    if run.args.index_sanity_check {
        let path = java::absolute(file);
        if last < base {
            return Err(exception(
                CORRUPT_INDEX,
                &format!(
                    "Corrupt index found, index file {path} has non-zero size but the last offset is {last} which is less than the base offset {base}"
                ),
            ));
        }
        check_size(&index, OFFSET_INDEX_ENTRY_BYTES, "Index file", &path)?;
        return run.line(&format!("{file} passed sanity check."));
    }
    let window = run.args.max_message_size;
    for (slot, (offset, position)) in entries.enumerate() {
        if offset == base && slot > 0 {
            break;
        }
        let start = segment.slice(position)?;
        let end = segment
            .log
            .size
            .min(start + u64::try_from(window).unwrap_or(0));
        let Some(batch) = kafka_batch::next(&mut segment.log, start, end, &segment.file)? else {
            return Err(exception("java.util.NoSuchElementException", ""));
        };
        let found = kafka_batch::last_offset(&mut segment.log, &batch, start, &segment.file)?;
        if found != offset {
            let pairs = run.mismatches.of(&java::absolute(file));
            match pairs.iter_mut().find(|(indexed, _)| *indexed == offset) {
                Some(pair) => pair.1 = found,
                None => pairs.push((offset, found)),
            }
            pairs.sort_unstable_by(|one, other| other.cmp(one));
        }
        if !run.args.verify_index_only {
            run.line(&format!("offset: {offset} position: {position}"))?;
        }
    }
    Ok(())
}

fn check_size(index: &Index, entry: usize, what: &str, path: &str) -> Result<(), Ended> {
    if index.bytes.len().is_multiple_of(entry) {
        return Ok(());
    }
    Err(exception(
        CORRUPT_INDEX,
        &format!(
            "{what} {path} is corrupt, found {} bytes which is neither positive nor a multiple of {entry}",
            index.bytes.len()
        ),
    ))
}

pub(super) fn times(run: &mut Run<'_, '_>, file: &str) -> Result<(), Ended> {
    let base = base_offset(file)?;
    let mut segment = Segment::beside(file)?;
    let offsets = sibling(file, ".index");
    // Kafka creates an empty index if there is none; nothing is created here.
    let offsets = if offsets.exists() {
        Index::read(&offsets, &offsets.to_string_lossy(), base)?
    } else {
        Index {
            base,
            bytes: Vec::new(),
        }
    };
    let index = Index::read(Path::new(file), file, base)?;
    let path = java::absolute(file);
    if run.args.index_sanity_check {
        return sane_times(run, &index, file, &path);
    }
    let batches = all_batches(&mut segment)?;
    let mut previous = -1;
    for (slot, (timestamp, offset)) in index.times().enumerate() {
        if offset == base && slot > 0 {
            break;
        }
        let start = segment.slice(offsets.position_of(offset))?;
        let found = find(&mut segment, batches.as_deref(), start, offset)?;
        match found {
            Some((position, last)) if last == offset => {
                let greatest = greatest_timestamp(run, &mut segment, position)?;
                if greatest != timestamp {
                    run.wrong_times.of(&path).push((timestamp, greatest));
                }
                if previous >= timestamp {
                    run.disordered_times.of(&path).push((timestamp, previous));
                }
            }
            other => {
                let last = other.map_or(-1, |(_, last)| last);
                run.not_found.of(&path).push((offset, last));
            }
        }
        if !run.args.verify_index_only {
            run.line(&format!("timestamp: {timestamp} offset: {offset}"))?;
        }
        previous = timestamp;
    }
    Ok(())
}

fn sane_times(run: &mut Run<'_, '_>, index: &Index, file: &str, path: &str) -> Result<(), Ended> {
    let lead = format!(
        "Corrupt time index found, time index file ({path}) has non-zero size but the last"
    );
    let (first, last) = (index.times().next(), index.times().next_back());
    if let (Some((first, _)), Some((timestamp, offset))) = (first, last) {
        if timestamp < first {
            return Err(exception(
                CORRUPT_INDEX,
                &format!(
                    "{lead} timestamp is {timestamp} which is less than the first timestamp {first}"
                ),
            ));
        }
        if offset < index.base {
            return Err(exception(
                CORRUPT_INDEX,
                &format!(
                    "{lead} offset is {offset} which is less than the first offset {}",
                    index.base
                ),
            ));
        }
    }
    check_size(index, TIME_INDEX_ENTRY_BYTES, "Time index file", path)?;
    run.line(&format!("{file} passed sanity check."))
}

/// Positions and last offsets of all batches, in order of position.
type Found = Vec<(u64, i64)>;

/// All batches of a segment, or the exception that a walk through it ends with.
fn all_batches(segment: &mut Segment) -> Result<Option<Found>, Ended> {
    match walk(segment, 0) {
        Ok(found) => Ok(Some(found)),
        Err(Ended::Exception(_)) => Ok(None),
        Err(output) => Err(output),
    }
}

fn walk(segment: &mut Segment, mut position: u64) -> Result<Found, Ended> {
    let mut found = Vec::new();
    let end = segment.log.size;
    while let Some(batch) = kafka_batch::next(&mut segment.log, position, end, &segment.file)? {
        let last = kafka_batch::last_offset(&mut segment.log, &batch, position, &segment.file)?;
        found.push((position, last));
        position += batch.size() as u64;
    }
    Ok(found)
}

/// The first batch from a position on whose last offset is not below `offset`. Kafka reads the segment to its end for each entry.
fn find(
    segment: &mut Segment,
    batches: Option<&[(u64, i64)]>,
    start: u64,
    offset: i64,
) -> Result<Option<(u64, i64)>, Ended> {
    let first = |batches: &[(u64, i64)]| batches.iter().find(|(_, last)| *last >= offset).copied();
    if let Some(batches) = batches
        && let Ok(at) = batches.binary_search_by_key(&start, |(position, _)| *position)
    {
        return Ok(first(batches.get(at..).unwrap_or(&[])));
    }
    walk(segment, start).map(|batches| first(&batches))
}

fn greatest_timestamp(
    run: &mut Run<'_, '_>,
    segment: &mut Segment,
    position: u64,
) -> Result<i64, Ended> {
    let end = segment.log.size;
    let Some(batch) = kafka_batch::next(&mut segment.log, position, end, &segment.file)? else {
        return Ok(-1);
    };
    let bytes = segment.log.bytes(position, batch.size());
    let bytes = batch.readable(bytes.map_err(|error| cannot_read(&segment.file, &error))?);
    let limit = Limits::default().max_decompressed_bytes;
    let mut records = run
        .decoder
        .records(&bytes, limit)
        .map_err(|error| kafka_batch::invalid(&error))?;
    let mut greatest = -1;
    while let Some(record) = records
        .next_record()
        .map_err(|error| kafka_batch::invalid(&error))?
    {
        greatest = greatest.max(record.timestamp);
    }
    Ok(greatest)
}
