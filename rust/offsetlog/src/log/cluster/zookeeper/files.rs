//! ZooKeeper's files, read through a window that is as large as their largest piece.

use super::nodes::Nodes;
use crate::codec::Decompressor;
use crate::disk::{Access, DiskFile, IoCall, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LimitName;
use crate::log::OpenOptions;
use crate::memory;
use offsetlog_format::zookeeper::{
    LogPiece, Packing, SnapshotPiece, SnapshotReader, Transaction, read_log_header, read_log_piece,
};
use offsetlog_format::{Codec, Fault, FormatError, Part};
use std::path::Path;
use std::sync::Arc;

/// What is read at once.
const STEP: usize = 1 << 20;

/// Bytes of a file from a position on. Of a compressed one there is all.
struct Window<'o> {
    path: &'o Path,
    options: &'o OpenOptions,
    file: Option<Arc<dyn DiskFile>>,
    /// Bytes, of which those before `at` were used.
    bytes: Vec<u8>,
    at: usize,
    /// Position in the file of the first of `bytes`.
    position: u64,
    size: u64,
}

impl<'o> Window<'o> {
    fn open(path: &'o Path, packing: Packing, options: &'o OpenOptions) -> Result<Self> {
        let disk = options.disk.as_ref();
        let mut window = Self {
            path,
            options,
            file: None,
            bytes: Vec::new(),
            at: 0,
            position: 0,
            size: 0,
        };
        let codec = match packing {
            Packing::None => {
                let file = disk.open(path, Access::Read);
                let file = file.map_err(|error| Error::io(IoCall::Open, path, error))?;
                let stat = file
                    .stat()
                    .map_err(|error| Error::io(IoCall::Read, path, error))?;
                (window.size, window.file) = (stat.size, Some(file));
                return Ok(window);
            }
            Packing::Gzip => Codec::Gzip,
            Packing::Snappy => Codec::Snappy,
        };
        let limit = options.limits.max_decompressed_bytes;
        let packed =
            read_whole(disk, path, limit).map_err(|error| Error::state_file(path, error))?;
        let mut decompressor = Decompressor::new();
        let bytes = decompressor.decompress(codec, 2, &packed, limit);
        let bytes = bytes.map_err(|error| error.at_path(path))?;
        window.bytes = memory::copy(bytes)?;
        window.size = window.bytes.len() as u64;
        Ok(window)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    fn position(&self) -> u64 {
        self.position + self.at as u64
    }

    fn is_last(&self) -> bool {
        self.position + self.bytes.len() as u64 >= self.size
    }

    fn most(&self) -> usize {
        usize::try_from(self.options.limits.max_state_file_bytes).unwrap_or(usize::MAX)
    }

    /// Reads more of the file: drops the bytes that were used, and doubles the rest.
    fn more(&mut self) -> Result<()> {
        if let Some(interrupt) = &self.options.interrupt
            && interrupt()
        {
            return Err(Error::new(ErrorKind::Interrupted));
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        self.bytes.drain(..self.at);
        self.position += self.at as u64;
        self.at = 0;
        let held = self.bytes.len();
        if held > self.most() {
            return Err(self.placed(Error::new(ErrorKind::Limit {
                name: LimitName::MaxStateFileBytes,
                limit: self.options.limits.max_state_file_bytes,
                seen: held as u64,
            })));
        }
        let left = self.size.saturating_sub(self.position + held as u64);
        let count = left.min(held.max(STEP) as u64) as usize;
        memory::reserve(&mut self.bytes, count)?;
        self.bytes.resize(held + count, 0);
        let place = self.bytes.get_mut(held..).unwrap_or_default();
        let read = file.read_at(place, self.position + held as u64);
        let read = read.map_err(|error| Error::io(IoCall::Read, self.path, error))?;
        self.bytes.truncate(held + read);
        if read < count {
            // Somebody cut it meanwhile.
            self.size = self.position + self.bytes.len() as u64;
        }
        Ok(())
    }

    /// Whether an error says that more is needed, and there is more.
    fn goes_on(&self, error: &FormatError) -> bool {
        matches!(error.fault, Fault::Truncated { .. }) && !self.is_last()
    }

    fn placed(&self, error: Error) -> Error {
        error.at_path(self.path).at_position(self.position())
    }

    fn fault(&self, error: FormatError) -> Error {
        self.placed(Error::new(error))
    }
}

/// What Kafka has in a snapshot.
pub(super) fn read_snapshot(
    path: &Path,
    packing: Packing,
    zxid: i64,
    keeps_all: bool,
    options: &OpenOptions,
) -> Result<Nodes> {
    let mut window = Window::open(path, packing, options)?;
    let mut reader = SnapshotReader::default();
    let mut nodes = Nodes::at(zxid, keeps_all);
    loop {
        let (piece, used) = match reader.next(window.rest(), window.is_last()) {
            Err(error) if window.goes_on(&error) => {
                window.more()?;
                continue;
            }
            read => read.map_err(|error| window.fault(error))?,
        };
        match piece {
            SnapshotPiece::Node(node) => nodes.add(&node),
            SnapshotPiece::Other => {}
            SnapshotPiece::End => return Ok(nodes),
        }
        window.at += used;
    }
}

/// Hands over the transactions of a log, whose numbers ascend. Returns a warning if the last one is not whole.
pub(super) fn each_change(
    path: &Path,
    options: &OpenOptions,
    mut take: impl FnMut(&Transaction<'_>) -> Result<()>,
) -> Result<Option<String>> {
    let mut window = Window::open(path, Packing::None, options)?;
    window.more()?;
    if window.size == 0 {
        // Made, and nothing written yet.
        return Ok(None);
    }
    let header = read_log_header(window.rest()).map_err(|error| window.fault(error))?;
    window.at += header;
    let mut last = None;
    loop {
        let (piece, used) = match read_log_piece(window.rest(), window.is_last(), window.most()) {
            Err(error) if window.goes_on(&error) => {
                window.more()?;
                continue;
            }
            read => read.map_err(|error| window.fault(error))?,
        };
        match piece {
            LogPiece::Transaction(transaction) => {
                if last >= Some(transaction.zxid) {
                    let rule = Fault::Rule("the numbers of transactions do not ascend");
                    return Err(window.fault(FormatError::new(Part::ZooKeeperLog, 0, rule)));
                }
                last = Some(transaction.zxid);
                take(&transaction).map_err(|error| window.placed(error))?;
            }
            LogPiece::End { torn } => {
                let part = window.rest().get(..torn).unwrap_or(window.rest());
                let told = part.iter().any(|byte| *byte != 0).then(|| {
                    format!(
                        "{}: at position {} a transaction was not written whole, or is damaged: what it changed is missing",
                        path.display(),
                        window.position()
                    )
                });
                window.at += torn.min(window.rest().len());
                return only_zeros(window).map(|()| told);
            }
        }
        window.at += used;
    }
}

/// Refuses anything but zeros, which ZooKeeper preallocates, after the end of a log: other bytes would be lost silently.
fn only_zeros(mut window: Window<'_>) -> Result<()> {
    loop {
        if let Some(at) = window.rest().iter().position(|&byte| byte != 0) {
            window.at += at;
            let rule = Fault::Rule("more follows where the transactions end");
            return Err(window.fault(FormatError::new(Part::ZooKeeperLog, 0, rule)));
        }
        if window.is_last() {
            return Ok(());
        }
        window.at = window.bytes.len();
        window.more()?;
    }
}
