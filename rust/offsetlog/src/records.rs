//! Iterates the records of one batch of any magic, and decompresses the batch first if needed.

use crate::codec::Decompressor;
use crate::error::{Error, Result};
use offsetlog_format::legacy::{self, MessageSet};
use offsetlog_format::v2::RecordsV2;
use offsetlog_format::{BatchHeader, BatchView, Codec, FormatError, RecordView};

/// The records of a batch. They borrow the batch's bytes or, if the batch was compressed, the decompressor's buffer.
#[derive(Debug, Clone)]
pub(crate) enum Records<'a> {
    /// Magic 2.
    V2(RecordsV2<'a>),
    /// One message of magic 0 or 1.
    Single(Option<RecordView<'a>>),
    /// A compressed set of magic 0 or 1.
    Set(MessageSet<'a>),
}

impl<'a> Records<'a> {
    /// Opens the batch with `header` and complete `bytes`. A compressed batch is decompressed into the decompressor's buffer.
    #[inline]
    pub(crate) fn open(
        header: &BatchHeader,
        bytes: &'a [u8],
        decompressor: &'a mut Decompressor,
        limit: u64,
    ) -> Result<Self> {
        let view = BatchView::parse(bytes)?;
        let codec = header.codec()?;
        if header.magic == 2 {
            let payload = match codec {
                // With a record count of 0 the payload is not read. Kafka does not touch it either.
                _ if header.record_count == 0 => &[],
                Codec::None => view.payload(),
                codec => decompressor.decompress(codec, 2, view.payload(), limit)?,
            };
            return Ok(Self::V2(RecordsV2::new(header, payload)?));
        }
        if codec == Codec::None {
            return Ok(Self::Single(Some(legacy::single_record(&view)?)));
        }
        let Some(value) = legacy::Message::parse(&view)?.value else {
            return Err(Error::new(FormatError::new(
                offsetlog_format::Part::MessageSet,
                0,
                offsetlog_format::Fault::Rule("the compressed set has a null value"),
            )));
        };
        let set = decompressor.decompress(codec, header.magic, value, limit)?;
        Ok(Self::Set(MessageSet::new(header, set)?))
    }

    /// The same records after a batch whose last offset is `minimum - 1`. Only the inner messages of a compressed set of magic
    /// 0 or 1 show whether it reaches below `minimum`, so the set checks them.
    pub(crate) fn not_below(self, minimum: i64) -> Self {
        match self {
            Self::Set(set) => Self::Set(set.not_below(minimum)),
            records => records,
        }
    }

    /// Returns the next record, in offset order.
    #[inline]
    pub(crate) fn next_record(&mut self) -> Result<Option<RecordView<'a>>, FormatError> {
        match self {
            Self::V2(records) => records.next_record(),
            Self::Single(record) => Ok(record.take()),
            Self::Set(set) => set.next_record(),
        }
    }

    /// Gives each remaining record to `take`. Faster than a loop over [`next_record`](Self::next_record), which reads and writes the decoder
    /// for each record.
    #[inline]
    pub(crate) fn for_each(
        mut self,
        mut take: impl FnMut(&RecordView<'a>),
    ) -> Result<(), FormatError> {
        loop {
            if let Self::V2(records) = &mut self {
                // A local one stays in registers.
                let mut plain = records.clone();
                while let Some(record) = plain.next_plain() {
                    take(&record);
                }
                *records = plain;
            }
            match self.next_record()? {
                Some(record) => take(&record),
                None => return Ok(()),
            }
        }
    }

    /// Returns the next record for which `is_wanted` holds, and decodes all before it.
    #[inline]
    pub(crate) fn find(
        &mut self,
        is_wanted: impl Fn(&RecordView<'a>) -> bool,
    ) -> Result<Option<RecordView<'a>>, FormatError> {
        // Without an error type between, a record that is passed stays in registers.
        if let Self::V2(records) = self {
            while let Some(record) = records.next_plain() {
                if is_wanted(&record) {
                    return Ok(Some(record));
                }
            }
        }
        while let Some(record) = self.next_record()? {
            if is_wanted(&record) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Offset of the first record; `None` if there is none or it cannot be decoded.
    pub(crate) fn first_offset(mut self) -> Option<i64> {
        self.next_record()
            .ok()
            .flatten()
            .map(|record| record.offset)
    }
}
