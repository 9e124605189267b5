//! Appends batches: first the checks, then the writes, then the state in memory. This order decides what a failure leaves.
//!
//! Source: Kafka's `UnifiedLog.append`; FORMAT.md «Record batch, magic 2». Kafka assigns leader epochs and rolls before its
//! last check; here every check comes before both.

use super::PartitionWriter;
use super::validate::{self, AppendContext, Checksums, Incoming, refused};
use crate::append_info::AppendInfo;
use crate::batch_builder::BatchBuilder;
use crate::error::{Error, ErrorKind, Result};
use crate::log::producers::{
    Batch, Checked, Marker, MarkerOptions, Origin, PRODUCER_EXPIRATION_MS, encode_marker,
    parse_marker,
};
use crate::segment::indexing::Indexed;
use offsetlog_format::{BatchHeader, Codec, EpochEntry};

/// Who sends batches to a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppendOrigin {
    /// A producer.
    #[default]
    Client,
    /// A group or transaction coordinator. May send control batches and any base offset; sequences are not checked.
    Coordinator,
}

/// Options of an append.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppendOptions {
    /// The leader epoch; `None`: the newest of the log, or 0.
    pub leader_epoch: Option<i32>,
    /// Whether to sync before the append returns.
    pub flush: bool,
}

/// Batches that passed validation and have their offsets.
struct Storing<'a> {
    parts: &'a [&'a [u8]],
    /// Header of each batch and its position in the parts, counted from their first byte.
    batches: &'a [(usize, BatchHeader)],
    markers: &'a [Option<Marker>],
    origin: Origin,
    transaction_version: i16,
    max_timestamp: i64,
    append_time: i64,
    now: i64,
}

impl PartitionWriter {
    /// Appends what a client or coordinator sends to the leader: one batch, or messages of magic 0 and 1.
    pub(crate) fn append_as_leader(
        &mut self,
        data: &[u8],
        origin: AppendOrigin,
        leader_epoch: i32,
        transaction_version: i16,
    ) -> Result<AppendInfo> {
        self.check_usable()?;
        let origin = match origin {
            AppendOrigin::Client => Origin::Client,
            AppendOrigin::Coordinator => Origin::Coordinator,
        };
        let incoming = validate::inspect(
            data,
            origin,
            Checksums::Verify,
            leader_epoch,
            &self.config.effective,
        )
        .map_err(Error::of_append)?;
        if incoming.batches.is_empty() {
            return Ok(nothing(&incoming));
        }
        check_epoch(leader_epoch)?;
        let now = self.now();
        let mut buffers = std::mem::take(&mut self.codec_buffers);
        let stored = validate::validate(
            &incoming,
            origin,
            &self.append_context(now, leader_epoch),
            &mut buffers,
        );
        self.codec_buffers = buffers;
        let stored = stored.map_err(Error::of_append)?;
        let header = *stored.header();
        let marker = marker_of(&incoming, &header).map_err(Error::of_append)?;
        let mut info = self.store(&Storing {
            parts: &stored.parts(),
            batches: &[(0, header)],
            markers: &[marker],
            origin,
            transaction_version,
            max_timestamp: header.max_timestamp,
            append_time: self.append_time(now),
            now,
        })?;
        info.left_out_bytes = incoming.left_out_bytes;
        Ok(info)
    }

    /// Appends what a leader stored; keeps its offsets and epochs.
    pub(crate) fn append_as_follower(
        &mut self,
        data: &[u8],
        leader_epoch: i32,
        checksums: Checksums,
    ) -> Result<AppendInfo> {
        self.check_usable()?;
        let incoming = validate::inspect(
            data,
            Origin::Replication,
            checksums,
            leader_epoch,
            &self.config.effective,
        )
        .map_err(Error::of_append)?;
        let Some((_, first)) = incoming.batches.first() else {
            return Ok(nothing(&incoming));
        };
        self.check_replica(Some(first.base_offset.unwrap_or(first.last_offset)))?;
        let mut markers = Vec::with_capacity(incoming.batches.len());
        for (at, header) in &incoming.batches {
            if header.magic == 2 {
                check_epoch(header.leader_epoch)?;
            }
            let bytes = incoming.bytes.get(*at..).unwrap_or(&[]);
            markers.push(parse_marker(bytes, header).map_err(Error::of_append)?);
        }
        let mut info = self.store(&Storing {
            parts: &[incoming.bytes],
            batches: &incoming.batches,
            markers: &markers,
            origin: Origin::Replication,
            transaction_version: -1,
            max_timestamp: incoming.max_timestamp,
            append_time: -1,
            now: self.now(),
        })?;
        info.left_out_bytes = incoming.left_out_bytes;
        Ok(info)
    }

    /// Checks what a leader refuses before it encodes records: their least and greatest timestamp, and the number of the first
    /// record without a key.
    pub(crate) fn check_records(
        &self,
        (minimum, maximum): (i64, i64),
        first_null_key: Option<i64>,
        leader_epoch: i32,
        now: i64,
    ) -> Result<()> {
        self.check_usable()?;
        check_epoch(leader_epoch)?;
        validate::check_times(minimum, maximum, &self.append_context(now, leader_epoch))?;
        match first_null_key.filter(|_| self.config.effective.is_compacted()) {
            Some(slot) => Err(validate::null_key(slot)),
            None => Ok(()),
        }
    }

    /// Appends the records of `batch` as one batch of the leader. Empties the builder unless the append fails.
    pub(crate) fn append_built(
        &mut self,
        batch: &mut BatchBuilder,
        leader_epoch: i32,
    ) -> Result<AppendInfo> {
        let now = self.now();
        self.check_records(
            batch.timestamps(),
            batch.first_null_key(),
            leader_epoch,
            now,
        )?;
        if batch.is_empty() {
            return Err(refused("the batch holds no record"));
        }
        if batch.producer_id() >= 0 && batch.base_sequence() < 0 {
            return Err(refused(format!(
                "base sequence {} found for producer id {}, 0 or more expected",
                batch.base_sequence(),
                batch.producer_id()
            )));
        }
        let append_time = self.append_time(now);
        let base_offset = self.log_end();
        self.store_built(
            batch,
            base_offset,
            leader_epoch,
            append_time,
            Origin::Client,
            now,
        )
    }

    /// Appends the records of `batch` as one that a leader stored at `base_offset`. Empties the builder unless the append
    /// fails.
    pub(crate) fn append_built_at(
        &mut self,
        batch: &mut BatchBuilder,
        base_offset: i64,
        leader_epoch: i32,
    ) -> Result<AppendInfo> {
        check_epoch(leader_epoch)?;
        self.check_replica(Some(base_offset))?;
        let now = self.now();
        self.store_built(
            batch,
            base_offset,
            leader_epoch,
            -1,
            Origin::Replication,
            now,
        )
    }

    /// Fails if a follower's batch begins below the log end offset.
    pub(crate) fn check_replica(&self, first_offset: Option<i64>) -> Result<()> {
        self.check_usable()?;
        match first_offset.filter(|&first| first < self.log_end()) {
            Some(found) => Err(Error::new(ErrorKind::UnexpectedAppendOffset {
                found,
                log_end_offset: self.log_end(),
            })),
            None => Ok(()),
        }
    }

    fn store_built(
        &mut self,
        batch: &mut BatchBuilder,
        base_offset: i64,
        leader_epoch: i32,
        append_time: i64,
        origin: Origin,
        now: i64,
    ) -> Result<AppendInfo> {
        let codec = self.config.effective.codec_for(batch.codec());
        let limits = &self.directory.limits;
        limits.allow_headers(batch.most_headers())?;
        limits.allow_unpacked(codec, batch.payload_bytes())?;
        let compressor = self
            .codec_buffers
            .compressor
            .get_or_insert_with(crate::codec::Compressor::new);
        if codec != Codec::None {
            compressor.set_level(codec, self.config.effective.compression_level(codec))?;
        }
        let (bytes, header) = batch.finish(
            base_offset,
            leader_epoch,
            (append_time >= 0).then_some(append_time),
            codec,
            compressor,
        )?;
        if header.size_bytes as i64 > i64::from(self.config.effective.max_message_bytes()) {
            return Err(Error::new(ErrorKind::RecordTooLarge {
                size: header.size_bytes as u64,
                maximum: i64::from(self.config.effective.max_message_bytes()),
            }));
        }
        let stored = self.store(&Storing {
            parts: &[bytes],
            batches: &[(0, header)],
            markers: &[None],
            origin,
            transaction_version: if origin == Origin::Client { 0 } else { -1 },
            max_timestamp: header.max_timestamp,
            append_time,
            now,
        });
        // Records that are in the log must not be there for a second try, also if what follows the append failed.
        if stored.as_ref().map_or_else(Error::is_appended, |_| true) {
            batch.clear();
        }
        stored
    }

    /// Appends the control batch that ends a producer's transaction.
    pub(crate) fn append_marker(
        &mut self,
        marker: &MarkerOptions,
        leader_epoch: i32,
    ) -> Result<AppendInfo> {
        let timestamp = marker.timestamp.unwrap_or_else(|| self.now());
        let bytes = encode_marker(marker, timestamp, leader_epoch)?;
        self.append_as_leader(
            &bytes,
            AppendOrigin::Coordinator,
            leader_epoch,
            marker.transaction_version,
        )
    }

    fn append_context(&self, now: i64, leader_epoch: i32) -> AppendContext<'_> {
        AppendContext {
            config: &self.config.effective,
            now,
            leader_epoch,
            log_end_offset: self.log_end(),
            limits: self.directory.limits,
        }
    }

    fn append_time(&self, now: i64) -> i64 {
        match self.config.effective.message_timestamp_type() {
            offsetlog_format::TimestampType::LogAppend => now,
            _ => -1,
        }
    }

    /// Checks the batches against the log's state, writes them, and then changes the state in memory.
    fn store(&mut self, storing: &Storing<'_>) -> Result<AppendInfo> {
        let (Some((_, first)), Some((_, last))) = (storing.batches.first(), storing.batches.last())
        else {
            return Err(refused("the append holds no batch"));
        };
        self.check_width(storing, last)?;
        for (_, header) in storing.batches {
            self.directory.limits.allow_batch(header.size_bytes)?;
        }
        let now = storing.now;
        self.expire_producers(now);
        let changes = if storing
            .batches
            .iter()
            .any(|(_, header)| header.producer_id >= 0)
        {
            match self.check_producers(storing)? {
                Checked::Duplicate {
                    first_offset,
                    last_offset,
                    timestamp,
                } => {
                    return Ok(AppendInfo {
                        base_offset: first_offset,
                        last_offset,
                        max_timestamp: storing.max_timestamp,
                        log_append_time: timestamp,
                        duplicate: true,
                        left_out_bytes: 0,
                    });
                }
                Checked::Update(changes) => Some(changes),
            }
        } else {
            None
        };
        let one;
        let many: Vec<Indexed>;
        let indexed: &[Indexed] = match storing.batches {
            [batch] => {
                one = [indexed_of(batch)];
                &one
            }
            batches => {
                many = batches.iter().map(indexed_of).collect();
                &many
            }
        };
        self.mark_unclean()?;
        // Read before the roll, whose sync raises it in the background: `flush.messages` counts from here.
        let recovery_point = self.ends.recovery_point();
        self.roll_if_due(first, last.last_offset, storing.max_timestamp, indexed, now)?;
        let epochs = self.assign_epochs(storing.batches)?;
        let undo = self.segments.active.state();
        let written = self.segments.active.append(storing.parts, indexed);
        let applied = written.and_then(|()| {
            let Some(changes) = changes else {
                return Ok(None);
            };
            // The map of producers changes only after the last call that can fail.
            let aborted = self.producers.states.aborted_by(&changes);
            self.segments.active.append_aborted(&aborted)?;
            Ok(Some(changes))
        });
        match applied {
            Ok(changes) => {
                if let Some(changes) = changes {
                    self.producers.states.apply(&changes);
                }
            }
            Err(error) => {
                let undone = self
                    .segments
                    .active
                    .undo(undo)
                    .and_then(|()| self.restore_epochs(epochs));
                if let Err(undone) = undone {
                    self.poison(&undone);
                }
                return Err(error);
            }
        }
        let log_end = last.last_offset.saturating_add(1);
        self.segments.data_end = log_end;
        self.producers.states.set_end_offset(log_end);
        self.publish(log_end);
        let info = AppendInfo {
            base_offset: match storing.origin {
                Origin::Replication => first.base_offset.unwrap_or(-1),
                _ => first.base_offset.unwrap_or(0),
            },
            last_offset: last.last_offset,
            max_timestamp: storing.max_timestamp,
            log_append_time: storing.append_time,
            ..AppendInfo::NOTHING
        };
        self.note_gap().map_err(|error| error.after_append(info))?;
        self.end_append(now, recovery_point);
        Ok(info)
    }

    /// Refuses an append that is larger than a segment, or whose end does not fit 64 bits.
    fn check_width(&self, storing: &Storing<'_>, last: &BatchHeader) -> Result<()> {
        if last.last_offset == i64::MAX {
            // The log end offset would be one higher.
            return Err(Error::new(ErrorKind::AppendTooWide {
                base_offset: self.segments.active.base_offset,
                last_offset: last.last_offset,
            }));
        }
        let bytes: usize = storing.parts.iter().map(|part| part.len()).sum();
        let segment_bytes = self.config.effective.segment_bytes();
        if bytes as i64 > i64::from(segment_bytes) {
            return Err(Error::new(ErrorKind::RecordBatchTooLarge {
                size: bytes as u64,
                maximum: i64::from(segment_bytes),
            }));
        }
        Ok(())
    }

    fn check_producers(&self, storing: &Storing<'_>) -> Result<Checked> {
        let batches: Vec<Batch> = storing
            .batches
            .iter()
            .zip(storing.markers)
            .filter_map(|((_, header), marker)| Batch::new(header, *marker))
            .collect();
        self.producers
            .states
            .check(&batches, storing.origin, storing.transaction_version)
    }

    /// Assigns the epochs of new batches and makes them durable before the batches are written. Returns the previous epochs if
    /// anything changed.
    fn assign_epochs(
        &mut self,
        batches: &[(usize, BatchHeader)],
    ) -> Result<Option<offsetlog_format::LeaderEpochs>> {
        // The common case: all batches have the latest epoch.
        let latest = self.epochs.latest();
        let known = batches.iter().all(|(_, header)| {
            header.magic == 2
                && latest.is_some_and(|latest| {
                    latest.epoch == header.leader_epoch
                        && header
                            .base_offset
                            .is_some_and(|base| latest.start_offset <= base)
                })
        });
        if known {
            return Ok(None);
        }
        let before = self.epochs.clone();
        let mut changed = false;
        for (_, header) in batches {
            if header.magic == 2 {
                changed |= self.epochs.assign(EpochEntry {
                    epoch: header.leader_epoch,
                    start_offset: header.base_offset.unwrap_or(header.last_offset),
                });
            } else if !self.epochs.entries().is_empty() {
                self.epochs = offsetlog_format::LeaderEpochs::default();
                changed = true;
            }
        }
        if !changed {
            return Ok(None);
        }
        if let Err(error) = self.write_epochs() {
            self.epochs = before;
            return Err(error);
        }
        Ok(Some(before))
    }

    fn restore_epochs(&mut self, before: Option<offsetlog_format::LeaderEpochs>) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let after = std::mem::replace(&mut self.epochs, before);
        match self.write_epochs() {
            // If the file cannot be written, it keeps the new epochs, and so does the memory: an epoch that begins at the log
            // end offset does no harm.
            Err(error) if !error.is_failed_sync() => {
                self.epochs = after;
                Ok(())
            }
            done => done,
        }
    }

    pub(super) fn expire_producers(&mut self, now: i64) {
        const CHECK_INTERVAL_MS: i64 = 600_000;
        let due = now.saturating_sub(self.producers.last_expiry) / CHECK_INTERVAL_MS;
        if due > 0 {
            // A broker checks at fixed intervals since the log was opened.
            self.producers.last_expiry += due * CHECK_INTERVAL_MS;
            self.producers
                .states
                .remove_expired(now, PRODUCER_EXPIRATION_MS);
        }
    }
}

fn indexed_of((at, header): &(usize, BatchHeader)) -> Indexed {
    Indexed {
        last_offset: header.last_offset,
        max_timestamp: header.max_timestamp,
        position: *at as u64,
        size_bytes: header.size_bytes as u64,
    }
}

fn nothing(incoming: &Incoming<'_>) -> AppendInfo {
    AppendInfo {
        max_timestamp: incoming.max_timestamp,
        left_out_bytes: incoming.left_out_bytes,
        ..AppendInfo::NOTHING
    }
}

pub(super) fn check_epoch(leader_epoch: i32) -> Result<()> {
    if leader_epoch < 0 {
        return Err(Error::argument(
            "leader_epoch",
            format!("{leader_epoch} found, 0 or more expected"),
        ));
    }
    Ok(())
}

/// Returns the marker if a leader appends a control batch.
fn marker_of(incoming: &Incoming<'_>, stored: &BatchHeader) -> Result<Option<Marker>> {
    let Some((_, header)) = incoming.batches.first() else {
        return Ok(None);
    };
    if !stored.attributes.is_control() {
        return Ok(None);
    }
    let marker = parse_marker(incoming.bytes, header)?;
    // Under `LogAppendTime` a record has the time of the append.
    Ok(marker.map(|marker| Marker {
        timestamp: if stored.attributes.is_log_append_time() {
            stored.max_timestamp
        } else {
            marker.timestamp
        },
        ..marker
    }))
}
