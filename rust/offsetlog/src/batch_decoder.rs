//! Decodes the records of a single batch outside a log, for tools that inspect files which a log would not open.

use crate::codec::Decompressor;
use crate::error::{Error, Result};
use crate::records::Records;
use offsetlog_format::{BatchView, RecordView};

/// Decodes batches of any magic and codec. Its buffer is kept from batch to batch.
///
/// ```
/// use offsetlog::BatchDecoder;
///
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/kafka-4.3.0/clean/log-dir-1/g-codec-lz4-0");
/// let segment = std::fs::read(format!("{folder}/00000000000000000000.log"))?;
/// let mut decoder = BatchDecoder::default();
/// let mut records = decoder.records(&segment, 1 << 20)?;
/// assert_eq!(records.next_record()?.map(|record| record.offset), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchDecoder {
    decompressor: Decompressor,
}

impl Default for BatchDecoder {
    fn default() -> Self {
        Self {
            decompressor: Decompressor::new(),
        }
    }
}

impl BatchDecoder {
    pub(crate) const fn decompressor(&mut self) -> &mut Decompressor {
        &mut self.decompressor
    }

    /// The records of the whole batch at the front of `batch`, decompressed to at most `limit` bytes. The checksum is not looked at.
    ///
    /// # Errors
    /// What is wrong with header, compression or the count of records.
    pub fn records<'a>(&'a mut self, batch: &'a [u8], limit: u64) -> Result<BatchRecords<'a>> {
        let header = BatchView::parse(batch)?.header;
        Records::open(&header, batch, &mut self.decompressor, limit).map(BatchRecords)
    }
}

/// The records of one batch, in its order.
#[derive(Debug, Clone)]
pub struct BatchRecords<'a>(Records<'a>);

impl<'a> BatchRecords<'a> {
    /// The next record, control records included; `None` behind the last one.
    ///
    /// # Errors
    /// What is wrong with the record.
    pub fn next_record(&mut self) -> Result<Option<RecordView<'a>>> {
        self.0.next_record().map_err(Error::new)
    }

    /// The message of magic 0 or 1 in a compressed set that [`next_record`](Self::next_record) gave last, header included.
    #[must_use]
    pub fn inner_message(&self) -> Option<&'a [u8]> {
        match &self.0 {
            Records::Set(set) => set.last_message(),
            _ => None,
        }
    }
}
