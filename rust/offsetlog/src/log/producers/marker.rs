//! Transaction markers: parses and builds the control batches that end transactions.

use super::Marker;
use crate::codec::{Compressor, Decompressor};
use crate::error::Result;
use crate::records::Records;
use offsetlog_format::builder::{BatchFields, NewRecord, write_batch};
use offsetlog_format::{Attributes, BatchHeader, Codec, ControlRecord};

/// More than any control batch holds, compressed or not.
const MARKER_BYTES_MAX: u64 = 1 << 20;

/// How a transaction is ended.
#[derive(Debug, Clone, Copy)]
pub struct MarkerOptions {
    /// The producer.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// Whether the transaction is committed; otherwise it is aborted.
    pub commit: bool,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
    /// Milliseconds since 1970; `None` for now.
    pub timestamp: Option<i64>,
    /// Version of the transaction protocol, 0 to 2.
    pub transaction_version: i16,
}

/// Returns the marker in a producer's control batch; `None` for other batches and for a control batch without records.
pub(in crate::log) fn parse_marker(bytes: &[u8], header: &BatchHeader) -> Result<Option<Marker>> {
    let is_marker = header.attributes.is_control() && header.producer_id >= 0;
    if !is_marker || header.record_count == 0 || header.magic < 2 {
        return Ok(None);
    }
    let limit = (bytes.len() as u64).max(MARKER_BYTES_MAX);
    let mut decompressor = Decompressor::new();
    let whole = bytes.get(..header.size_bytes).unwrap_or(bytes);
    let mut records = Records::open(header, whole, &mut decompressor, limit)?;
    match records.next_record()? {
        Some(record) => Marker::parse(&record).map(Some),
        None => Ok(None),
    }
}

/// Returns the control batch that ends a transaction, as a coordinator sends it.
pub(in crate::log) fn encode_marker(
    marker: &MarkerOptions,
    timestamp: i64,
    leader_epoch: i32,
) -> Result<Vec<u8>> {
    let coordinator_epoch = marker.coordinator_epoch;
    let record = if marker.commit {
        ControlRecord::Commit { coordinator_epoch }
    } else {
        ControlRecord::Abort { coordinator_epoch }
    };
    let key = record.control_type().write_key();
    let value = record.write_value()?;
    let fields = BatchFields {
        leader_epoch,
        attributes: Attributes::new(Codec::None, false)
            .transactional()
            .control(),
        producer_id: marker.producer_id,
        producer_epoch: marker.producer_epoch,
        ..BatchFields::default()
    };
    let records = [NewRecord {
        offset: 0,
        timestamp,
        key: Some(&key),
        value: value.as_deref(),
        headers: &[],
    }];
    let mut bytes = Vec::new();
    write_batch(
        &mut bytes,
        &fields,
        &records,
        &mut Compressor::new(),
        &mut Vec::new(),
    )?;
    Ok(bytes)
}
