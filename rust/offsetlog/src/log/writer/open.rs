//! Opens a partition directory for appending, and recovers a damaged one without keeping it open ([`recover`]).

use super::{
    ClockHolder, CloseAtEnd, CodecBuffers, Durability, Flusher, PartitionWriter, PendingDeletes,
    Producers, Segments, WriteOptions, WriterConfig, settings,
};
use crate::config::LogConfig;
use crate::disk::Lock;
use crate::error::{Error, Result};
use crate::log::recovery::{
    EarlierCuts, LoadOptions, RecoverOptions, RecoveryReport, load, with_lost_mark,
};
use crate::log::state::{
    PartitionState, became_log_dir, keep_topic_id, lock, make_epochs_file, read_config,
    write_config,
};
use crate::log::{Guard, LogDirFiles, OpenOptions, Surroundings, open, view};
use crate::segment::Directory;
use crate::segment::active::ActiveSegment;
use crate::segment::index_maps::IndexMaps;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Whether the folder around became a log dir before the partition was locked: `place` must be looked for again.
fn is_late(directory: &Directory, place: &PartitionState) -> Result<bool> {
    match (place.log_dir(), directory.path.parent()) {
        (None, Some(folder)) => became_log_dir(directory.disk.as_ref(), folder),
        _ => Ok(false),
    }
}

/// What a writer goes by, as its files and the cluster say.
struct Found {
    /// The settings that are stored with the partition.
    stored: Option<LogConfig>,
    guard: Guard,
    /// The settings that apply.
    config: LogConfig,
}

impl Found {
    fn read(directory: &Directory, write: &WriteOptions, around: &Surroundings) -> Result<Self> {
        let stored = read_config(directory.disk.as_ref(), &directory.path)?;
        // The files decide whether the partition is a broker's.
        let (topic, partition) = (&directory.topic, directory.partition);
        let mut membership = around.membership(&directory.path, topic, partition)?;
        if write.config.is_some() {
            membership.keep();
        }
        let effective =
            membership.effective(write.config.as_ref(), stored.as_ref(), &write.defaults)?;
        Ok(Self {
            stored,
            config: effective.config().clone(),
            guard: Guard {
                membership: Arc::new(membership),
                internal: write.internal_topics.clone(),
                single_replica: write.single_replica,
                fills_mirror: write.fills_mirror,
            },
        })
    }
}

/// Opens a partition directory for appending.
pub(in crate::log) fn open(
    directory: &Arc<Directory>,
    topic: &str,
    partition: i32,
    options: &OpenOptions,
    write: &WriteOptions,
    shared: Option<&Arc<LogDirFiles>>,
    surroundings: Option<&Arc<Surroundings>>,
) -> Result<PartitionWriter> {
    let mut place = PartitionState::new(directory, topic, partition, shared)?;
    let read;
    let around = if let Some(known) = surroundings {
        known.as_ref()
    } else {
        let (metadata, broker) = (write.metadata.as_deref(), write.broker.as_ref());
        read = Surroundings::new(options, metadata, &[], broker)?;
        &read
    };
    // What is refused is refused before anything is created.
    Found::read(directory, write, around)?;
    let locks = lock(directory, &place)?;
    if is_late(directory, &place)? {
        drop(locks);
        return open(
            directory,
            topic,
            partition,
            options,
            write,
            None,
            surroundings,
        );
    }
    // Read again: until it was locked, another process may have changed the settings, or made the partition anew.
    let Found {
        stored,
        guard,
        config,
    } = Found::read(directory, write, around)?;
    place.join(&guard.membership);
    place.set_tiered(config.remote_storage_enable());
    keep_topic_id(directory, write.topic_id)?;
    let mut warnings = Vec::new();
    let mut start = place.read(&mut warnings)?;
    place.forget_cut()?;
    if let Some(clean) = write.clean {
        start.clean = clean;
        start.own = None;
    }
    if let Some(recovery_point) = write.recovery_point {
        start.recovery_point = recovery_point;
    }
    if let Some(log_start) = write.log_start_offset {
        start.noted_by_us = false;
        start.log_start_offset = log_start;
        place.limit_start_line(log_start);
    }
    // A log that is not a broker's gets stored settings even if none are given: by them the next opening sees that it is ours. A
    // broker's has those of its cluster: what is given holds while the log is open.
    let is_made = stored.is_none() && !write.is_copy;
    let is_changed = write.config.is_some() && stored != write.config;
    if !guard.membership.is_brokers() && (is_made || is_changed) {
        let given = write.config.clone().unwrap_or_default();
        write_config(directory.disk.as_ref(), &directory.path, &given)?;
    }
    let terms = LoadOptions {
        start,
        cut_batches: false,
        dry_run: false,
        now: (options.clock)(),
        warnings,
        progress: None,
    };
    let mut writer = assemble(directory, place, config, terms, options, write, locks)?;
    writer.config.given.clone_from(&write.config);
    writer.config.stored = stored;
    writer.guard = guard;
    Ok(writer)
}

/// Loads the directory and builds the writer.
pub(super) fn assemble(
    directory: &Arc<Directory>,
    place: PartitionState,
    config: LogConfig,
    terms: LoadOptions,
    options: &OpenOptions,
    write: &WriteOptions,
    locks: Vec<Lock>,
) -> Result<PartitionWriter> {
    let (now, durable) = (terms.now, terms.start.durable);
    let is_marked_clean = terms.start.clean || terms.start.own.is_some();
    let (promised, recovers) = (terms.start.promised(), terms.cut_batches);
    let interrupt = options.interrupt.as_ref();
    let loaded = load(directory, &config, terms, &place, interrupt)?;
    let settings = settings(&config, now);
    let mut bases = loaded.bases;
    let (active, is_new) = match (bases.pop(), &loaded.active) {
        (Some(base), Some(contents)) => (
            ActiveSegment::open(directory, base, &settings, contents)?,
            false,
        ),
        _ => (
            ActiveSegment::create(directory, loaded.log_start, &settings)?,
            true,
        ),
    };
    let ends = directory.ends.clone().unwrap_or_default();
    let maps = directory.maps.clone();
    let maps = maps.unwrap_or_else(|| Arc::new(IndexMaps::new(&ends)));
    let changed = loaded.report.is_changed();
    // After a clean end everything is durable.
    let durable = if loaded.report.clean {
        loaded.recovery_point
    } else {
        durable.min(loaded.recovery_point)
    };
    let unsettled = unsettled(&loaded.report, &bases, durable);
    let mut writer = PartitionWriter {
        directory: Arc::clone(directory),
        place,
        config: WriterConfig {
            effective: config,
            given: None,
            stored: None,
            defaults: write.defaults.clone(),
        },
        guard: Guard::default(),
        clock: ClockHolder(Arc::clone(&options.clock)),
        segments: Segments {
            closed: bases,
            active,
            opened_with: settings,
            made_with: BTreeMap::new(),
            data_end: loaded.report.log_end_offset,
            cut_inside: None,
            pending_deletes: PendingDeletes::default(),
        },
        epochs: loaded.epochs,
        producers: Producers {
            states: loaded.producers,
            snapshots: loaded.snapshots,
            last_snapshot: loaded.last_snapshot,
            last_expiry: now,
        },
        durability: Durability {
            flusher: Flusher::default(),
            last_flush: now,
            last_checkpoint: now,
            flush_due: false,
            // The last changes of an earlier writer may not have reached the disk.
            unsynced: !loaded.report.clean,
            unsettled,
            names_changed: true,
            gap: None,
        },
        codec_buffers: CodecBuffers::default(),
        started_clean: loaded.report.clean && write.config.is_none() && !changed && !is_new,
        report: loaded.report,
        poisoned: None,
        locks,
        closing: CloseAtEnd(Arc::clone(&maps)),
        ends,
        maps,
    };
    let log_end = writer.report.log_end_offset;
    writer.limit_points(log_end)?;
    writer.ends.set_log_start(loaded.log_start);
    writer.ends.set_recovery_point(durable);
    writer.publish(log_end);
    if let Some(base) = loaded.gap.filter(|_| !writer.report.clean) {
        writer.settle_found_gap(base)?;
    }
    if changed || is_new {
        // Recovery changed files, or the log is new: a broker must not trust an older clean-shutdown mark.
        match writer.mark_unclean() {
            // There is no such mark. On a full disk ours waits for the next change, so that the log can be opened to make room.
            Err(error) if error.is_out_of_room() && !is_new && !is_marked_clean => {}
            marked => marked?,
        }
    }
    if is_new {
        writer.segments.active.touch()?;
        make_epochs_file(directory)?;
    }
    if !is_new || recovers {
        forget_if_shorter(&mut writer, promised, recovers)?;
    }
    if loaded.recovery_point > durable {
        // The caller passed this recovery point, so everything below it is synced.
        let mut job = writer.commit_job()?;
        job.up_to = loaded.recovery_point;
        job.run()?;
    }
    Ok(writer)
}

/// After an unclean end: the closed segments above what is durable, and the one before it, whose indexes may not be.
fn unsettled(report: &RecoveryReport, bases: &[i64], durable: i64) -> Vec<i64> {
    if report.clean {
        return Vec::new();
    }
    let first = bases.partition_point(|&base| base < durable);
    bases.get(first.saturating_sub(1)..).unwrap_or(&[]).to_vec()
}

/// Takes the mark of a clean stop away for good from a log that lost what its broker may have promised.
fn forget_if_shorter(
    writer: &mut PartitionWriter,
    promised: Option<i64>,
    recovers: bool,
) -> Result<()> {
    let told = if is_shorter(&writer.report, promised, recovers) {
        let is_found = writer.place.forget_marker()?;
        is_found.then(|| unclean_from_now(writer.report.log_end_offset, true))
    } else {
        let had_no_room = writer.place.had_no_room_for_marker();
        had_no_room.then(|| NO_ROOM_FOR_MARK.to_owned())
    };
    writer.report.warnings.extend(told);
    Ok(())
}

const NO_ROOM_FOR_MARK: &str = "there was no room in the log dir to note that this recovery had begun: the mark of a clean stop is not put back, so \
     the broker recovers all its logs when it starts, and the controllers do not take its replicas for whole";

/// Whether a log lost what its broker may have promised. Opening looks only at what it cuts itself: a log that was shorter before keeps the
/// mark that it had, with a warning; `recover` is asked to make whole what a broker is to start with.
fn is_shorter(report: &RecoveryReport, promised: Option<i64>, recovers: bool) -> bool {
    let is_below = promised.is_some_and(|line| line > report.log_end_offset);
    let is_cut = !report.cut.is_empty();
    (is_below && (is_cut || recovers)) || report.cut.iter().any(|cut| cut.had_batches)
}

/// By KIP-966 a broker that starts with the epoch of its clean-shutdown marker stays in the ISR and may lead. Sound replicas would cut
/// themselves to what it has.
fn unclean_from_now(log_end: i64, had_mark: bool) -> String {
    let mark = if had_mark {
        "the mark of a clean stop is not put back"
    } else {
        "the log dir has no mark of a clean stop, and must not get one"
    };
    format!(
        "the log ends at offset {log_end} now, and had more: {mark}, as by it the controllers would take this broker's replicas for whole. If \
         other brokers have replicas, start those first: where this broker leads, they cut theirs to offset {log_end}"
    )
}

/// Recovers a log that was not closed cleanly or is damaged, so that it can be appended to. Reads whole segments, truncates the
/// log at the first bytes that are not a valid batch, and rebuilds the files beside the segments that are missing or wrong.
/// Keeps what it truncates in the folder `offsetlog-cut` of the partition directory.
///
/// Unlike opening, it also truncates if whole batches follow the damage. A broker does so without asking.
///
/// # Errors
/// `Io`; `Locked` while somebody writes; `LogDir` for names that are not Kafka's; `Argument` for a negative offset.
pub fn recover(
    path: impl AsRef<Path>,
    options: &OpenOptions,
    recover: &RecoverOptions,
) -> Result<RecoveryReport> {
    let directory = open::directory(path.as_ref(), options, !recover.dry_run, None)?;
    let (topic, partition) = (&directory.topic, directory.partition);
    view::refuse_other(directory.disk.as_ref(), &directory.path)?;
    let mut warnings = Vec::new();
    let mut place = PartitionState::new(&directory, topic, partition, None)?;
    let surroundings = Surroundings::new(options, None, &[], None)?;
    // What is refused is refused before anything is created.
    surroundings.membership(&directory.path, topic, partition)?;
    read_config(directory.disk.as_ref(), &directory.path)?;
    let locks = if recover.dry_run {
        Vec::new()
    } else {
        lock(&directory, &place)?
    };
    if !recover.dry_run && is_late(&directory, &place)? {
        drop(locks);
        return self::recover(path, options, recover);
    }
    // Read again: until it was locked, another process may have changed them.
    let membership = surroundings.membership(&directory.path, topic, partition)?;
    let is_brokers = membership.is_brokers();
    place.join(&membership);
    let config = read_config(directory.disk.as_ref(), &directory.path)?.unwrap_or_default();
    let earlier = EarlierCuts::read(&directory.path, options)?;
    let mut start = place.read(&mut warnings)?;
    if !recover.dry_run {
        place.forget_cut()?;
    }
    start.clean = false;
    start.own = None;
    start.recovery_point = recover.from_offset.unwrap_or(0);
    if start.recovery_point < 0 {
        return Err(Error::argument(
            "from_offset",
            format!("{} found, 0 or more expected", start.recovery_point),
        ));
    }
    let terms = LoadOptions {
        start,
        cut_batches: true,
        dry_run: recover.dry_run,
        now: (options.clock)(),
        warnings,
        progress: recover.progress.clone(),
    };
    let had_mark = place.has_marker()?;
    let promised = terms.start.promised();
    let mut report = if recover.dry_run {
        let interrupt = options.interrupt.as_ref();
        let mut report = load(&directory, &config, terms, &place, interrupt)?.report;
        if had_mark && is_shorter(&report, promised, true) {
            let told = unclean_from_now(report.log_end_offset, true);
            report.warnings.push(told);
        }
        report
    } else {
        let write = WriteOptions::default();
        let mut writer = assemble(&directory, place, config, terms, options, &write, locks)?;
        let report = writer.report().clone();
        let closed = writer.close();
        closed.map_err(|error| with_lost_mark(&writer.place, error))?;
        report
    };
    // A recovery that ended in the middle has taken the mark away, and told nobody.
    let is_short =
        is_shorter(&report, promised, true) || earlier.reach_behind(report.log_end_offset);
    if is_brokers && !had_mark && is_short {
        let told = unclean_from_now(report.log_end_offset, false);
        report.warnings.push(told);
    }
    earlier.tell(&mut report);
    Ok(report)
}
