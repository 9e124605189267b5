//! The works on whole log dirs, and compaction.
//!
//! `open-all LOG_DIR [append]` opens every partition and asks where it ends, on two threads as a broker does, all held at once and in one
//! call; for appending, as many as a log dir holds open at a time, and closing the last of them is not measured. `create LOG_DIR SOURCE PARTITIONS` makes a log dir with so many
//! partitions, appends one record to each, and closes it. `compact DIRECTORY` runs one pass of the cleaner over a log; opening and
//! closing are not measured.

use crate::writing::{Sources, log_checksum, remove};
use crate::{Met, Outcome, answer, clocked};
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, Log, LogConfig, LogDir, LogDirOptions, LogWriter,
    NewTopic, OpenOptions, Route, WriteOptions,
};
use offsetlog_benches::FIRST_TIMESTAMP;
use std::path::Path;

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
    let mut held: Vec<Log> = Vec::new();
    let (cpu, wall) = clocked(|| {
        let log_dir = LogDir::open(&[path], &OpenOptions::default())?;
        let logs = log_dir.logs(&log_dir.partitions(), OPENING_THREADS);
        held = logs.into_iter().collect::<Result<_, _>>()?;
        met = ends_of_all(&held, offsetlog::Log::log_end_offset)?;
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
