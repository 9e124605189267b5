//! What the tests share: a partition on a disk in memory, a clock that stands still, batches made by hand.

use flate2::{Compression, write::GzEncoder};
use offsetlog::disk::{Access, Disk};
use offsetlog::{
    AppendInfo, AppendOptions, AppendOrigin, BatchBuilder, Error, Isolation, Log, LogConfig,
    LogWriter, MarkerOptions, OpenOptions, Producer, RecoverOptions, RecoveryReport, ScanOptions,
    WriteOptions, recover,
};
use offsetlog_faults::batch::{Batch, Row, crc32c, encode, walk};
use offsetlog_faults::fault::FaultDisk;
use offsetlog_faults::run::{PARTITION, options};
use offsetlog_faults::sim::{Names, SimDisk, World};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Where every clock stands at first.
pub(crate) const NOW: i64 = 1_700_000_100_000;
pub(crate) const HOUR: i64 = 3_600_000;

/// A disk with one partition, which a test opens, spoils and opens again.
pub(crate) struct Place {
    pub(crate) disk: SimDisk,
    clock: Arc<AtomicI64>,
}

impl Place {
    /// A disk without the partition.
    pub(crate) fn new() -> Self {
        Self::of(World::new(Names::Strict, &["/sim", "/sim/logs"]))
    }

    pub(crate) fn of(world: World) -> Self {
        Self {
            disk: SimDisk::new(world),
            clock: Arc::new(AtomicI64::new(NOW)),
        }
    }

    /// A disk with the same content, as the next process finds it; the clock shows the same time.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::of(self.disk.world());
        copy.set_clock(self.clock.load(Ordering::SeqCst));
        copy
    }

    pub(crate) fn options(&self) -> OpenOptions {
        options(Arc::new(self.disk.clone()), &self.clock)
    }

    pub(crate) fn set_clock(&self, now: i64) {
        self.clock.store(now, Ordering::SeqCst);
    }

    /// Opens for appending with these settings. Index files are small: an active segment's are as long as they may become.
    pub(crate) fn open(&self, settings: &[(&str, &str)]) -> LogWriter {
        self.open_with(settings, WriteOptions::default())
    }

    pub(crate) fn open_with(&self, settings: &[(&str, &str)], write: WriteOptions) -> LogWriter {
        let write = WriteOptions {
            config: Some(config(settings)),
            ..write
        };
        LogWriter::open(PARTITION, &self.options(), &write).unwrap()
    }

    /// The options of [`options`](Self::options) with a disk in front of this one, on which calls fail.
    pub(crate) fn faulty(&self, disk: &FaultDisk) -> OpenOptions {
        OpenOptions {
            disk: Arc::new(disk.clone()),
            ..self.options()
        }
    }

    /// Opens for appending over a disk on which calls fail.
    pub(crate) fn open_over(&self, disk: &FaultDisk, settings: &[(&str, &str)]) -> LogWriter {
        let write = WriteOptions {
            config: Some(config(settings)),
            ..WriteOptions::default()
        };
        LogWriter::open(PARTITION, &self.faulty(disk), &write).unwrap()
    }

    /// Opens for appending with the settings that are stored.
    pub(crate) fn again(&self) -> LogWriter {
        self.try_again(WriteOptions::default()).unwrap()
    }

    pub(crate) fn try_again(&self, write: WriteOptions) -> Result<LogWriter, Error> {
        LogWriter::open(PARTITION, &self.options(), &write)
    }

    /// Opens as after a kill, whatever the marks say.
    pub(crate) fn recovered(&self) -> LogWriter {
        self.try_again(unclean(0)).unwrap()
    }

    pub(crate) fn reader(&self) -> Log {
        Log::open(PARTITION, &self.options()).unwrap()
    }

    /// Names in the partition directory and their bytes.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.disk.look(|world| {
            let files = world.files().filter_map(|(path, bytes)| {
                let name = path.strip_prefix(PARTITION).ok()?;
                Some((name.to_str()?.to_owned(), bytes.to_vec()))
            });
            files.collect()
        })
    }

    /// The same without the lock file and what is noted beside the data, which say when and by whom the log was opened.
    pub(crate) fn data_files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files();
        files.retain(|name, _| !name.starts_with(".offsetlog"));
        files
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let found = self.files().remove(name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.files().contains_key(name)
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let file = self.disk.open(&path(name), Access::Replace).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    /// Changes the bytes of a file.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.bytes(name);
        change(&mut bytes);
        self.put(name, &bytes);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.disk.unlink(&path(name)).unwrap();
    }

    /// The batches of a segment, read without the engine.
    pub(crate) fn batches(&self, base: i64) -> Vec<Batch> {
        let bytes = self.bytes(&log_file(base));
        let (batches, end) = walk(&bytes);
        assert!(
            bytes[end..].iter().all(|&byte| byte == 0),
            "more than batches"
        );
        batches
    }

    /// Offset and position of each entry of a segment's offset index, up to the zeros behind them.
    pub(crate) fn offset_entries(&self, base: i64) -> Vec<(i64, i32)> {
        let bytes = self.bytes(&file(base, ".index"));
        let entries = bytes.chunks_exact(8).map(|entry| {
            let offset = i32::from_be_bytes(entry[..4].try_into().unwrap());
            let position = i32::from_be_bytes(entry[4..].try_into().unwrap());
            (base + i64::from(offset), position)
        });
        entries.take_while(|entry| entry.1 > 0).collect()
    }

    /// Timestamp and offset of each entry of a segment's time index, up to the zeros behind them.
    pub(crate) fn time_entries(&self, base: i64) -> Vec<(i64, i64)> {
        let bytes = self.bytes(&file(base, ".timeindex"));
        let entries = bytes.chunks_exact(12).map(|entry| {
            let timestamp = i64::from_be_bytes(entry[..8].try_into().unwrap());
            let offset = i32::from_be_bytes(entry[8..].try_into().unwrap());
            (timestamp, base + i64::from(offset))
        });
        entries.take_while(|entry| entry.0 > 0).collect()
    }

    /// The leader epochs' file.
    pub(crate) fn epochs(&self) -> String {
        String::from_utf8(self.bytes("leader-epoch-checkpoint")).unwrap()
    }
}

pub(crate) fn config(settings: &[(&str, &str)]) -> LogConfig {
    let small = [("segment.index.bytes", "1000")];
    let pairs = small.iter().chain(settings).copied();
    LogConfig::parse(pairs.collect::<BTreeMap<_, _>>()).unwrap()
}

/// Recovers from there on.
pub(crate) fn unclean(recovery_point: i64) -> WriteOptions {
    WriteOptions {
        clean: Some(false),
        recovery_point: Some(recovery_point),
        ..WriteOptions::default()
    }
}

/// Believes that the last writer's end was clean.
pub(crate) fn clean() -> WriteOptions {
    WriteOptions {
        clean: Some(true),
        ..WriteOptions::default()
    }
}

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(PARTITION).join(name)
}

pub(crate) fn file(base: i64, suffix: &str) -> String {
    format!("{base:020}{suffix}")
}

pub(crate) fn log_file(base: i64) -> String {
    file(base, ".log")
}

/// Rows of the encoder: the key `k` and these values.
pub(crate) fn rows(values: &[&str]) -> Vec<Row> {
    let row = |value: &&str| (Some(b"k".to_vec()), Some(value.as_bytes().to_vec()));
    values.iter().map(row).collect()
}

/// The batch that must stand in a file, in epoch 0 and with the clock's first time.
pub(crate) fn stored(base: i64, values: &[&str]) -> Vec<u8> {
    encode(base, 0, NOW, &rows(values)).bytes.to_vec()
}

/// A batch as a producer or a leader sends it.
#[derive(Clone)]
pub(crate) struct Sent(pub(crate) Vec<u8>);

/// A batch of records with the key `k`, at offset 0 and in epoch 0.
pub(crate) fn sent(values: &[&str]) -> Sent {
    Sent(stored(0, values))
}

impl Sent {
    /// Overwrites a field; the checksum is made right.
    pub(crate) fn with<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        self.0[at..at + N].copy_from_slice(&field);
        let crc = crc32c(&self.0[21..]);
        self.0[17..21].copy_from_slice(&crc.to_be_bytes());
        self
    }

    pub(crate) fn base(self, offset: i64) -> Self {
        self.with(0, offset.to_be_bytes())
    }

    pub(crate) fn epoch(self, epoch: i32) -> Self {
        self.with(12, epoch.to_be_bytes())
    }

    pub(crate) fn attributes(self, attributes: u16) -> Self {
        self.with(21, attributes.to_be_bytes())
    }

    pub(crate) fn last_delta(self, delta: i32) -> Self {
        self.with(23, delta.to_be_bytes())
    }

    /// The header's first and greatest timestamps.
    pub(crate) fn times(self, base: i64, greatest: i64) -> Self {
        self.with(27, base.to_be_bytes())
            .with(35, greatest.to_be_bytes())
    }

    pub(crate) fn producer(self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.with(43, id.to_be_bytes())
            .with(51, epoch.to_be_bytes())
            .with(53, sequence.to_be_bytes())
    }

    pub(crate) fn count(self, count: i32) -> Self {
        self.with(57, count.to_be_bytes())
    }

    /// The records compressed with gzip.
    pub(crate) fn gzip(self) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.0[61..]).unwrap();
        let payload = encoder.finish().unwrap();
        self.payload(&payload).attributes(1)
    }

    /// Other bytes behind the header.
    pub(crate) fn payload(mut self, payload: &[u8]) -> Self {
        self.0.truncate(61);
        self.0.extend_from_slice(payload);
        let length = (self.0.len() - 12) as i32;
        self.with(8, length.to_be_bytes())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A batch of one record that is exactly so many bytes long.
pub(crate) fn sized(bytes: usize) -> Sent {
    let empty = sent(&[""]).len();
    for count in bytes.saturating_sub(empty + 8)..=bytes - empty {
        let batch = sent(&[&"v".repeat(count)]);
        if batch.len() == bytes {
            return batch;
        }
    }
    panic!("no batch of one record has {bytes} bytes");
}

pub(crate) fn builder(producer: Producer, values: &[&str]) -> BatchBuilder {
    let mut batch = BatchBuilder::new(offsetlog::format::Codec::None, producer);
    for value in values {
        batch
            .push(NOW, Some(b"k"), Some(value.as_bytes()), &[])
            .unwrap();
    }
    batch
}

/// Appends records with the key `k` at the clock's first time.
pub(crate) fn append(log: &LogWriter, values: &[&str]) -> AppendInfo {
    try_append(log, values).unwrap()
}

pub(crate) fn try_append(log: &LogWriter, values: &[&str]) -> Result<AppendInfo, Error> {
    let mut batch = builder(Producer::default(), values);
    log.append(&mut batch, &AppendOptions::default())
}

/// Appends in an epoch of the leader.
pub(crate) fn append_in(log: &LogWriter, leader_epoch: i32, values: &[&str]) -> AppendInfo {
    let options = AppendOptions {
        leader_epoch: Some(leader_epoch),
        flush: false,
    };
    let mut batch = builder(Producer::default(), values);
    log.append(&mut batch, &options).unwrap()
}

/// Appends one record with a key and a time.
pub(crate) fn append_at(
    log: &LogWriter,
    timestamp: i64,
    key: &str,
    value: Option<&str>,
) -> AppendInfo {
    let mut batch = BatchBuilder::default();
    batch
        .push(
            timestamp,
            Some(key.as_bytes()),
            value.map(str::as_bytes),
            &[],
        )
        .unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap()
}

/// Appends one batch of a producer: id, epoch, base sequence, and whether it is transactional.
pub(crate) fn produce(
    log: &LogWriter,
    (producer_id, producer_epoch, base_sequence): (i64, i16, i32),
    is_transactional: bool,
    values: &[&str],
) -> Result<AppendInfo, Error> {
    let producer = Producer {
        producer_id,
        producer_epoch,
        base_sequence,
        is_transactional,
    };
    log.append(&mut builder(producer, values), &AppendOptions::default())
}

pub(crate) fn lead(log: &LogWriter, batch: &Sent) -> Result<AppendInfo, Error> {
    log.append_batches(&batch.0, AppendOrigin::Client, &AppendOptions::default())
}

pub(crate) fn coordinate(log: &LogWriter, batch: &Sent) -> Result<AppendInfo, Error> {
    log.append_batches(
        &batch.0,
        AppendOrigin::Coordinator,
        &AppendOptions::default(),
    )
}

pub(crate) fn follow(
    log: &LogWriter,
    bytes: &[u8],
    leader_epoch: i32,
) -> Result<AppendInfo, Error> {
    log.append_as_follower(bytes, leader_epoch, false)
}

/// Ends a producer's transaction.
pub(crate) fn end(
    log: &LogWriter,
    producer_id: i64,
    producer_epoch: i16,
    commit: bool,
) -> Result<AppendInfo, Error> {
    log.append_marker(
        &marker(producer_id, producer_epoch, commit),
        &AppendOptions::default(),
    )
}

pub(crate) const fn marker(producer_id: i64, producer_epoch: i16, commit: bool) -> MarkerOptions {
    MarkerOptions {
        producer_id,
        producer_epoch,
        commit,
        coordinator_epoch: 0,
        timestamp: None,
        transaction_version: 0,
    }
}

/// Offset and value of every record that a scan of the whole log gives.
pub(crate) fn records(log: &Log) -> Vec<(i64, String)> {
    scanned(log, &ScanOptions::default()).unwrap()
}

/// The same of what is committed.
pub(crate) fn committed(log: &Log) -> Vec<(i64, String)> {
    let options = ScanOptions {
        isolation: Isolation::ReadCommitted,
        ..ScanOptions::default()
    };
    scanned(log, &options).unwrap()
}

pub(crate) fn scanned(log: &Log, options: &ScanOptions) -> Result<Vec<(i64, String)>, Error> {
    let mut scan = log.scan(options)?;
    let mut found = Vec::new();
    while let Some(mut batch) = scan.next_batch()? {
        while let Some(record) = batch.next_record()? {
            let value = record.value.map(|value| String::from_utf8_lossy(value));
            found.push((record.offset, value.unwrap_or_default().into_owned()));
        }
    }
    Ok(found)
}

pub(crate) fn offsets(log: &Log) -> Vec<i64> {
    records(log).into_iter().map(|(offset, _)| offset).collect()
}

pub(crate) fn values(log: &Log) -> Vec<String> {
    records(log).into_iter().map(|(_, value)| value).collect()
}

/// Base offsets of the segments.
pub(crate) fn bases(log: &Log) -> Vec<i64> {
    let segments = log.segments().unwrap();
    segments.iter().map(|segment| segment.base_offset).collect()
}

/// Log start, log end and last stable offset.
pub(crate) fn bounds(log: &Log) -> (i64, i64, i64) {
    (
        log.log_start_offset().unwrap(),
        log.log_end_offset().unwrap(),
        log.last_stable_offset().unwrap(),
    )
}

/// The values `v0`, `v1`, … with their offsets from `start` to below `end`, as [`records`] gives them.
pub(crate) fn numbered(start: i64, end: i64) -> Vec<(i64, String)> {
    (start..end).map(|n| (n, format!("v{n}"))).collect()
}

/// Appends batches of two records `v0`, `v1`, …; a new segment before each batch named.
pub(crate) fn fill(log: &LogWriter, batches: i64, rolls: &[i64]) {
    for number in 0..batches {
        if rolls.contains(&number) {
            log.roll().unwrap();
        }
        let base = log.log_end_offset().unwrap();
        append(log, &[&format!("v{base}"), &format!("v{}", base + 1)]);
    }
}

/// Twelve records in segments from 0, 4 and 8, cleanly closed.
pub(crate) fn closed() -> Place {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    fill(&log, 6, &[2, 4]);
    log.close().unwrap();
    place
}

pub(crate) fn recovered(place: &Place, dry_run: bool) -> RecoveryReport {
    let options = RecoverOptions {
        dry_run,
        ..RecoverOptions::default()
    };
    recover(PARTITION, &place.options(), &options).unwrap()
}

/// The bytes of all `.log` files.
pub(crate) fn logs(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut files = place.data_files();
    files.retain(|name, _| name.ends_with(".log"));
    files
}

/// The bytes that were cut and kept, in order.
pub(crate) fn kept(place: &Place, report: &RecoveryReport) -> Vec<u8> {
    let paths = report.kept().map(|path| {
        path.strip_prefix(PARTITION)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    });
    paths.flat_map(|name| place.bytes(&name)).collect()
}
