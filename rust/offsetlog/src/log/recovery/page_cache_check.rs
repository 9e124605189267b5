//! Compares the page cache with the disk for a log that was not closed, and rewrites files that differ.
//!
//! After a failed fsync the kernel marks the pages as clean. They are read from the cache until it drops them, and a later fsync
//! succeeds. A reopened log would then promise bytes that are not on the disk. So bytes that no successful sync is known to cover are
//! also read with `O_DIRECT`. If the disk lacks some of them, the whole file is rewritten. Cutting it there would lose acknowledged
//! records if this process were killed in between.

use super::loader::Loading;
use super::scan_segment;
use crate::disk::{Access, DiskFile, IoCall, UNCACHED_ALIGNMENT, temporary};
use crate::error::{Error, Result};
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::segment_path;
use crate::segment::walk::SCAN_BYTES;
use std::io;
use std::path::Path;

/// Bytes compared at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Makes the disk hold what the cache shows, for all segments that may not be durable.
pub(in crate::log) fn settle(loading: &mut Loading<'_>, bases: &[i64]) -> Result<()> {
    let durable = loading.terms.start.durable;
    // Begins one segment early: the segment that ends at `durable` may have been rolled after that. Its log was synced, its indexes were
    // not.
    let first = bases
        .partition_point(|&base| base < durable)
        .saturating_sub(1);
    for &base in bases.get(first..).unwrap_or(&[]) {
        loading.check()?;
        let from = position_of(loading, base, durable);
        settle_file(loading, base, ".log", from)?;
        // An index that passes the checks is kept, and is trusted once the log is closed.
        for suffix in [".index", ".timeindex", ".txnindex"] {
            settle_file(loading, base, suffix, 0)?;
        }
    }
    Ok(())
}

fn settle_file(loading: &mut Loading<'_>, base: i64, suffix: &str, from: u64) -> Result<()> {
    let path = segment_path(&loading.directory.path, base, suffix);
    let disk = loading.directory.disk.as_ref();
    let file = match disk.open(&path, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|error| Error::io(IoCall::Open, &path, error))?,
    };
    // Reports a writeback error that no process has seen yet.
    file.sync_data()
        .map_err(|error| Error::io(IoCall::Sync, &path, error))?;
    let uncached = disk
        .open_uncached(&path)
        .map_err(|error| Error::io(IoCall::Open, &path, error))?;
    let Some(uncached) = uncached else {
        return Ok(());
    };
    if let Some(position) = first_difference(&path, &*file, &*uncached, from)? {
        loading.before_change()?;
        write_anew(loading, &path, &*file)?;
        let reason = format!(
            "from position {position} on the disk differed from the page cache, as after a failed sync: rewritten from the cache"
        );
        loading.report.rebuilt.push((path, reason));
    }
    Ok(())
}

/// Returns the position where the durable part of a segment ends; 0 if it is unknown.
fn position_of(loading: &Loading<'_>, base: i64, durable: i64) -> u64 {
    if durable <= base {
        return 0;
    }
    let Ok(segment) = scan_segment::open(loading.directory, base, None) else {
        return 0;
    };
    let size = segment.stat.size;
    let trace = &mut Trace::default();
    match find::find(
        &segment,
        durable,
        ReadAhead::Bytes(SCAN_BYTES),
        Vec::new(),
        trace,
    ) {
        Ok((walk, Found::Batch(_))) => walk.batch_position(),
        Ok((_, Found::End(None))) => size,
        _ => 0,
    }
}

/// Returns the position of the first chunk in which the two differ.
fn first_difference(
    path: &Path,
    cached: &dyn DiskFile,
    uncached: &dyn DiskFile,
    from: u64,
) -> Result<Option<u64>> {
    let failed = |error| Error::io(IoCall::Read, path, error);
    // Most files are short: one byte more than the size is enough to see the end of the file.
    let size = cached.stat().map_err(failed)?.size;
    let chunk = usize::try_from(size + 1).map_or(CHUNK_BYTES, |bytes| {
        bytes.next_multiple_of(UNCACHED_ALIGNMENT).min(CHUNK_BYTES)
    });
    let mut shown = vec![0; chunk];
    let mut held = vec![0; chunk + UNCACHED_ALIGNMENT];
    let skipped = held.as_ptr().align_offset(UNCACHED_ALIGNMENT);
    let Some(held) = held
        .get_mut(skipped..)
        .and_then(|held| held.get_mut(..chunk))
    else {
        return Ok(None);
    };
    let mut position = from - from % UNCACHED_ALIGNMENT as u64;
    loop {
        let wanted = cached.read_at(&mut shown, position).map_err(failed)?;
        let found = uncached.read_at(held, position).map_err(failed)?;
        if shown.get(..wanted) != held.get(..found) {
            return Ok(Some(position));
        }
        if wanted < chunk {
            return Ok(None);
        }
        position += wanted as u64;
    }
}

/// Copies the file as the cache shows it, syncs the copy and renames it over the file.
fn write_anew(loading: &Loading<'_>, path: &Path, cached: &dyn DiskFile) -> Result<()> {
    let disk = loading.directory.disk.as_ref();
    let failed = |error| Error::io(IoCall::Write, path, error);
    let temporary = temporary(path);
    let copy = disk.open(&temporary, Access::Replace).map_err(failed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut position = 0;
    loop {
        let count = cached.read_at(&mut chunk, position).map_err(failed)?;
        let Some(bytes) = chunk.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        copy.write_at(bytes, position).map_err(failed)?;
        position += count as u64;
    }
    copy.sync_all()
        .and_then(|()| disk.rename(&temporary, path))
        .and_then(|()| disk.sync_directory(&loading.directory.path))
        .map_err(failed)
}
