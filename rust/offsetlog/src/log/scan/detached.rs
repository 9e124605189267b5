//! A batch of a scan that another thread decodes: everything that its scan knows of it, without the scan's buffers.

use super::{BadBatch, Batch, CorruptionPolicy};
use crate::batch_decoder::BatchDecoder;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::log::filter::{Filter, Selection, Verdict};
use crate::records::Records;
use offsetlog_format::{BatchHeader, RecordView};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A batch that a scan returned, for a thread that decodes a copy of its bytes. Records are chosen, and damage is reported, as by the
/// scan; a limit on the number of records is not applied.
#[derive(Debug)]
pub struct DetachedBatch {
    header: BatchHeader,
    /// The lowest offset that a record can have.
    minimum: i64,
    log: Log,
    path: Arc<PathBuf>,
    position: u64,
    selection: Selection,
    filter: Arc<Filter>,
    bad: CorruptionPolicy,
}

impl Batch<'_> {
    /// Detaches the batch from its scan. The caller copies its [`bytes`](Self::bytes). `before` is the batch of the scan that was
    /// detached last: batches of one segment share their path.
    #[must_use]
    pub fn detach(&self, before: Option<&DetachedBatch>) -> DetachedBatch {
        let path = before
            .map(|before| &before.path)
            .filter(|path| path.as_path() == self.path())
            .map_or_else(|| Arc::new(self.path().to_path_buf()), Arc::clone);
        DetachedBatch {
            header: self.header,
            minimum: self.walk.batch_minimum(),
            log: self.log.clone(),
            path,
            position: self.position(),
            selection: self.selection,
            filter: Arc::clone(self.filter),
            bad: self.bad.clone(),
        }
    }
}

impl DetachedBatch {
    /// The header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The log that the batch is from.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Path of the segment's `.log` file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Decodes `bytes`, a copy of the batch, and gives each wanted record to `take`, in the order of offsets. A batch that cannot be read
    /// to its end is reported as the scan's options say; the records before that are taken.
    ///
    /// # Errors
    /// Corruption, where the scan raises it; those of `take`.
    pub fn decode(
        &self,
        bytes: &[u8],
        decoder: &mut BatchDecoder,
        take: impl FnMut(&RecordView<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut next = self.header.base_offset.unwrap_or(i64::MIN);
        let done = self.decode_to(bytes, decoder, take, &mut next);
        done.or_else(|error| {
            let bad = BadBatch {
                log: &self.log,
                path: &self.path,
                position: self.position,
                header: &self.header,
                next,
                selection: self.selection,
            };
            if self.bad.pass(&bad, &error) {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    /// `next` becomes the offset after the last decoded record, also if the next one cannot be read.
    fn decode_to(
        &self,
        bytes: &[u8],
        decoder: &mut BatchDecoder,
        mut take: impl FnMut(&RecordView<'_>) -> Result<()>,
        next: &mut i64,
    ) -> Result<()> {
        let limits = &self.log.options().limits;
        let limit = limits.max_decompressed_bytes;
        let at = |error: Error| self.place(error);
        let decompressor = decoder.decompressor();
        let records = Records::open(&self.header, bytes, decompressor, limit).map_err(at)?;
        let mut records = records.not_below(self.minimum);
        while let Some(record) = records
            .next_record()
            .map_err(|error| at(Error::new(ErrorKind::from(error))))?
        {
            *next = record.offset.saturating_add(1);
            match self.selection.verdict(&self.filter, &record) {
                Verdict::Take => {
                    limits.check_headers(&record).map_err(at)?;
                    take(&record)?;
                }
                Verdict::Leave => {}
                Verdict::Stop => break,
            }
        }
        Ok(())
    }

    #[cold]
    fn place(&self, error: Error) -> Error {
        let offset = self.header.base_offset.unwrap_or(self.header.last_offset);
        error
            .at_path(self.path.as_path())
            .at_position(self.position)
            .at_offset(offset)
    }
}
