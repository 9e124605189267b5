//! The works on whole log dirs, and compaction.
//!
//! `open-all LOG_DIR [append]` opens every partition and asks where it ends, on two threads as a broker does, all held at once and in one
//! call; for appending, as many as a log dir holds open at a time, and closing the last of them is not measured. `open-all LOG_DIR bare` is
//! the limit: what lists the directories, and opens, reads and holds the last `.log` of each, by the system's calls alone. `create LOG_DIR SOURCE PARTITIONS` makes a log dir with so many
//! partitions, appends one record to each, and closes it. `compact DIRECTORY` runs one pass of the cleaner over a log; opening and
//! closing are not measured.

use crate::writing::{Sources, log_checksum, remove};
use crate::{Met, Outcome, answer, clocked};
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, Log, LogConfig, LogDir, LogDirOptions, LogWriter,
    NewTopic, OpenOptions, Route, WriteOptions,
};
use offsetlog_benches::FIRST_TIMESTAMP;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Segments of the logs that are compacted.
pub(crate) const SEGMENT_BYTES: &str = "67108864";
/// Of a broker's cleaner.
const MAP_BYTES: usize = 128 << 20;
/// Of a broker's `num.recovery.threads.per.data.dir`, as the peer has it.
const OPENING_THREADS: usize = 2;

/// Runs a round if it is one of these.
pub(crate) fn round(words: &[&str], sources: &mut Sources) -> Outcome<Option<String>> {
    let answer = match words {
        ["open-all", log_dir] => open_all(log_dir)?,
        ["open-all", log_dir, "append"] => open_all_for_append(log_dir)?,
        ["open-all", log_dir, "bare"] => open_all_bare(log_dir)?,
        ["create", log_dir, source, partitions] => {
            create(log_dir, sources.records(source)?, partitions.parse()?)?
        }
        ["compact", directory] => compact(directory)?,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn open_all(path: &str) -> Outcome<String> {
    let mut met = Met::default();
    let mut held: Vec<(Log, i64)> = Vec::new();
    let (cpu, wall) = clocked(|| {
        let log_dir = LogDir::open(&[path], &OpenOptions::default())?;
        let logs = log_dir.logs_with(&log_dir.partitions(), OPENING_THREADS, Log::log_end_offset);
        held = logs.into_iter().collect::<Result<_, _>>()?;
        for (_, end) in &held {
            met.add(*end as u64);
        }
        Ok(())
    })?;
    drop(held);
    Ok(answer(cpu, wall, met))
}

/// The end of the batches that a file's bytes begin with.
fn end_of(mut bytes: &[u8]) -> Option<u64> {
    let mut end = 0;
    while let (Some(base), Some(size)) = (bytes.first_chunk::<8>(), bytes.get(8..12)) {
        let delta = bytes.get(23..27)?;
        end = u64::from_be_bytes(*base) + u64::from(u32::from_be_bytes(delta.try_into().ok()?)) + 1;
        let size = u32::from_be_bytes(size.try_into().ok()?) as usize;
        bytes = bytes.get(12 + size..)?;
    }
    Some(end)
}

fn open_all_bare(path: &str) -> Outcome<String> {
    let open = |name: &Path, buffer: &mut [u8]| -> Outcome<(File, u64)> {
        let mut last = None;
        for entry in std::fs::read_dir(name)? {
            let name = entry?.file_name();
            if name.as_encoded_bytes().ends_with(b".log") {
                last = last.max(Some(name));
            }
        }
        let file = File::open(name.join(last.ok_or("no segment")?))?;
        let size = file.metadata()?.len();
        let read = file.read_at(buffer, 0)?;
        if read as u64 != size {
            return Err("a segment larger than the buffer".into());
        }
        let end = end_of(buffer.get(..read).unwrap_or_default()).ok_or("no batches")?;
        Ok((file, end))
    };
    let mut met = Met::default();
    let mut held = Vec::new();
    let (cpu, wall) = clocked(|| {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                all.push(entry.path());
            }
        }
        let work = |part: &[PathBuf]| -> Outcome<Vec<(File, u64)>> {
            let mut buffer = vec![0; 1 << 16];
            let opened = part.iter().map(|path| open(path, &mut buffer));
            opened.collect()
        };
        let work = &work;
        std::thread::scope(|scope| -> Outcome<()> {
            let parts = all.chunks(all.len().div_ceil(OPENING_THREADS).max(1));
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
            for thread in threads {
                held.extend(thread.join().map_err(|_| "a thread panicked")??);
            }
            Ok(())
        })?;
        for (_, end) in &held {
            met.add(*end);
        }
        Ok(())
    })?;
    drop(held);
    Ok(answer(cpu, wall, met))
}

fn open_all_for_append(path: &str) -> Outcome<String> {
    let mut met = Met::default();
    let mut opened = None;
    let (cpu, wall) = clocked(|| {
        let options = LogDirOptions::default();
        let log_dir = LogDir::open_for_append(&[path], &OpenOptions::default(), &options)?;
        met = ends_of_all(&log_dir.partitions(), |at| {
            log_dir.log(&at.topic, at.partition)?.log_end_offset()
        })?;
        opened = Some(log_dir);
        Ok(())
    })?;
    opened.map_or(Ok(()), |log_dir| log_dir.close())?;
    Ok(answer(cpu, wall, met))
}

/// Asks all of them where they end.
fn ends_of_all<T: Sync>(
    all: &[T],
    end: impl Fn(&T) -> offsetlog::Result<i64> + Sync,
) -> Outcome<Met> {
    let end = &end;
    let ends_of = |part: &[T]| -> offsetlog::Result<Met> {
        let mut met = Met::default();
        for each in part {
            met.add(end(each)? as u64);
        }
        Ok(met)
    };
    std::thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(OPENING_THREADS).max(1));
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(move || ends_of(part)))
            .collect();
        let mut met = Met::default();
        for thread in threads {
            let part = thread.join().map_err(|_| "a thread panicked")??;
            met.count += part.count;
            met.sum = met.sum.wrapping_add(part.sum);
        }
        Ok(met)
    })
}

fn create(path: &str, source: &[(Vec<u8>, Vec<u8>)], partitions: i32) -> Outcome<String> {
    remove(path)?;
    let (cpu, wall) = clocked(|| {
        let options = LogDirOptions::default();
        let log_dir = LogDir::open_for_append(&[path], &OpenOptions::default(), &options)?;
        log_dir.create_topic(&NewTopic {
            name: "many",
            partitions,
            config: LogConfig::default(),
            topic_id: None,
        })?;
        let mut batch = BatchBuilder::default();
        let options = AppendOptions {
            leader_epoch: Some(0),
            ..AppendOptions::default()
        };
        for (partition, (key, value)) in (0..partitions).zip(source.iter().cycle()) {
            let timestamp = FIRST_TIMESTAMP + i64::from(partition);
            batch.push(timestamp, Some(key), Some(value), &[])?;
            log_dir.append("many", Route::Partition(partition), &mut batch, &options)?;
        }
        Ok(log_dir.close()?)
    })?;
    let mut met = Met::default();
    for partition in 0..partitions {
        met.add(log_checksum(
            &Path::new(path).join(format!("many-{partition}")),
        )?);
    }
    Ok(answer(cpu, wall, met))
}

fn compact(directory: &str) -> Outcome<String> {
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", SEGMENT_BYTES),
    ];
    let write = WriteOptions {
        config: Some(LogConfig::parse(settings)?),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(directory, &OpenOptions::default(), &write)?;
    let (cpu, wall) = clocked(|| {
        log.compact(&CompactOptions {
            first_dirty: Some(0),
            map_bytes: Some(MAP_BYTES),
        })?;
        Ok(())
    })?;
    let met = Met {
        count: log.log_end_offset()? as u64,
        sum: log.size_bytes()?,
    };
    log.close()?;
    Ok(answer(cpu, wall, met))
}
