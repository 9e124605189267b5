//! JSON lines: which files, one object for each thing in them, and damage as an object at its place.

use super::{lines_log, lines_state};
use crate::args::{Decoder, Dump};
use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::json::{Shown, write_json};
use crate::{EXIT_DAMAGED, EXIT_ERROR, EXIT_FINE};
use offsetlog::disk::{Disk as _, EntryKind, IoCall, RealDisk};
use offsetlog::format::internal_topic::{CoordinatorTopic, METADATA_TOPIC};
use offsetlog::format::{DirectoryName, FileName, FormatError, OffsetCheckpointFile, SegmentFile};
use offsetlog::{BatchDecoder, ErrorKind, FolderKind, folder_kind};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a file is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    MetaProperties,
    CleanShutdown,
    OffsetCheckpoint,
    PartitionMetadata,
    LeaderEpochs,
    MetadataSnapshot,
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    ProducerSnapshot,
}

/// The name that a segment had of which recovery cut this off: `00000000000000000064.log.2508`, with a number behind it where the place
/// was taken.
fn uncut(name: &str) -> &str {
    let is_number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    match name.split_once(".log.") {
        Some((stem, place)) if !place.is_empty() && is_number(place) => {
            name.get(..stem.len() + ".log".len()).unwrap_or(name)
        }
        _ => name,
    }
}

impl Kind {
    /// Kind and number of a file; `None` for what is not Kafka's or holds nothing that is read here.
    fn of(name: &str) -> Option<(Self, i64)> {
        match name {
            "meta.properties" => return Some((Self::MetaProperties, 0)),
            ".kafka_cleanshutdown" => return Some((Self::CleanShutdown, 0)),
            "bootstrap.checkpoint" => return Some((Self::MetadataSnapshot, 0)),
            _ => {}
        }
        if OffsetCheckpointFile::ALL
            .iter()
            .any(|file| file.name() == name)
        {
            return Some((Self::OffsetCheckpoint, 0));
        }
        Some(match FileName::classify(uncut(name)) {
            FileName::LeaderEpochCheckpoint => (Self::LeaderEpochs, 0),
            FileName::PartitionMetadata => (Self::PartitionMetadata, 0),
            FileName::MetadataSnapshot { end_offset, .. } => (Self::MetadataSnapshot, end_offset),
            FileName::Segment(segment) => {
                let kind = match segment.file {
                    SegmentFile::Log => Self::Log,
                    SegmentFile::OffsetIndex => Self::OffsetIndex,
                    SegmentFile::TimeIndex => Self::TimeIndex,
                    SegmentFile::TransactionIndex => Self::TransactionIndex,
                    SegmentFile::ProducerSnapshot => Self::ProducerSnapshot,
                };
                (kind, segment.offset)
            }
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::MetaProperties => "meta_properties",
            Self::CleanShutdown => "clean_shutdown",
            Self::OffsetCheckpoint => "offset_checkpoint",
            Self::PartitionMetadata => "partition_metadata",
            Self::LeaderEpochs => "leader_epoch_checkpoint",
            Self::MetadataSnapshot => "metadata_snapshot",
            Self::Log => "log",
            Self::OffsetIndex => "offset_index",
            Self::TimeIndex => "time_index",
            Self::TransactionIndex => "transaction_index",
            Self::ProducerSnapshot => "producer_snapshot",
        }
    }
}

/// The first line of each file.
#[derive(Serialize)]
struct FileStart {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_offset: Option<i64>,
    size_bytes: u64,
}

/// What is wrong, and where.
#[derive(Serialize)]
struct Damage {
    /// First byte of what is damaged: batch, entry or file.
    position: Option<u64>,
    offset: Option<i64>,
    /// Class of the error, as in Python.
    error: &'static str,
    reason: String,
}

/// A line of output: type and file in front, then what belongs to the type.
#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    r#type: &'static str,
    file: Shown<'a>,
    #[serde(flatten)]
    body: &'a T,
}

/// One run.
pub(super) struct Run<'r, 'c> {
    pub(super) args: &'r Dump,
    console: &'r mut Console<'c>,
    pub(super) decoder: BatchDecoder,
    file: PathBuf,
    damaged: bool,
    failed: bool,
}

pub(super) fn run(args: &Dump, console: &mut Console<'_>) -> Result<i32, Failure> {
    let mut run = Run {
        args,
        console,
        decoder: BatchDecoder::default(),
        file: PathBuf::new(),
        damaged: false,
        failed: false,
    };
    for path in args.files() {
        if path.is_dir() {
            run.directory(&path)?;
        } else {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            match name.as_deref().and_then(Kind::of) {
                Some((kind, offset)) => run.file(&path, kind, offset)?,
                None if path.exists() => {
                    run.fail(&path, "no file of Kafka's has such a name");
                }
                None => run.fail(&path, "no such file"),
            }
        }
    }
    Ok(match (run.failed, run.damaged) {
        (true, _) => EXIT_ERROR,
        (false, true) => EXIT_DAMAGED,
        (false, false) => EXIT_FINE,
    })
}

impl Run<'_, '_> {
    /// The files of a partition, or those of a log dir itself, in the order of their kinds and numbers.
    fn directory(&mut self, path: &Path) -> Result<(), Failure> {
        if let Ok(FolderKind::AroundLogDirs(log_dirs)) = folder_kind(path) {
            let names: Vec<_> = log_dirs.iter().map(|log_dir| log_dir.display()).collect();
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            let text = format!(
                "not a log dir itself, but the folder around {}; give one, or a partition in it",
                names.join(" ")
            );
            self.fail(path, &text);
            return Ok(());
        }
        let entries = match RealDisk.list(path) {
            Ok(entries) => entries,
            Err(error) => {
                self.fail(path, &error.to_string());
                return Ok(());
            }
        };
        let mut files = Vec::new();
        let mut partitions = 0;
        for entry in &entries {
            match entry.kind {
                EntryKind::File => {
                    if let Some((kind, offset)) = Kind::of(&entry.name) {
                        // A segment's files stand together.
                        let group = if kind < Kind::Log { kind } else { Kind::Log };
                        files.push((group, offset, kind, entry.name.as_str()));
                    }
                }
                EntryKind::Directory => {
                    partitions += usize::from(DirectoryName::parse(&entry.name).is_ok());
                }
                EntryKind::Other => {}
            }
        }
        files.sort_unstable();
        for (_, offset, kind, name) in files {
            self.file(&path.join(name), kind, offset)?;
        }
        if partitions > 0 {
            let text = format!(
                "{} holds {partitions} partitions; give one to dump it",
                path.display()
            );
            self.console.note(&text);
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, kind: Kind, offset: i64) -> Result<(), Failure> {
        path.clone_into(&mut self.file);
        let size_bytes = match RealDisk.stat(path) {
            Ok(stat) => stat.size,
            Err(error) => {
                self.fail(path, &error.to_string());
                return Ok(());
            }
        };
        let is_numbered = kind >= Kind::Log && kind != Kind::ProducerSnapshot;
        self.line(
            "file",
            &FileStart {
                kind: kind.name(),
                base_offset: is_numbered.then_some(offset),
                size_bytes,
            },
        )?;
        let read = match kind {
            Kind::Log | Kind::MetadataSnapshot => lines_log::dump(self, path, kind, offset),
            _ => lines_state::dump(self, path, kind, offset),
        };
        match read {
            Err(Failure::Engine(error)) if matches!(error.kind(), ErrorKind::Io { .. }) => {
                self.fail(path, &with_advice(&error));
                Ok(())
            }
            other => other,
        }
    }

    /// What records are read as: what is asked for, or what the directory's name says.
    pub(super) fn record_decoder(&self) -> Option<Decoder> {
        self.args.decoder().or_else(|| {
            let path = self.file.canonicalize().ok()?;
            let directory = path.parent()?.file_name()?.to_str()?;
            let topic = DirectoryName::parse(directory).ok()?.topic;
            if topic == METADATA_TOPIC {
                return Some(Decoder::Metadata);
            }
            CoordinatorTopic::of_name(topic).map(Decoder::Coordinator)
        })
    }

    pub(super) fn line<T: Serialize>(
        &mut self,
        kind: &'static str,
        body: &T,
    ) -> Result<(), Failure> {
        let line = Line {
            r#type: kind,
            file: Shown::path(&self.file),
            body,
        };
        write_json(&mut self.console.out, &line)?;
        Ok(self.console.out.write_all(b"\n")?)
    }

    /// Damage, which begins at a byte of the file.
    pub(super) fn damage(
        &mut self,
        position: Option<u64>,
        offset: Option<i64>,
        error: &offsetlog::Error,
    ) -> Result<(), Failure> {
        self.damaged = true;
        self.line(
            "damage",
            &Damage {
                position,
                offset,
                error: error.kind().code(),
                reason: error.to_string(),
            },
        )
    }

    /// The same for what the format says; `position` is where the batch or entry begins that is damaged.
    pub(super) fn fault(
        &mut self,
        position: u64,
        offset: Option<i64>,
        error: FormatError,
    ) -> Result<(), Failure> {
        self.damage(Some(position), offset, &offsetlog::Error::new(error))
    }

    /// Stops when somebody wants that.
    pub(super) fn look(&self) -> Result<(), Failure> {
        match &self.console.terminal.interrupt {
            Some(interrupt) if interrupt() => {
                Err(offsetlog::Error::new(ErrorKind::Interrupted).into())
            }
            _ => Ok(()),
        }
    }

    fn fail(&mut self, path: &Path, reason: &str) {
        self.failed = true;
        let text = format!("{}: {reason}", path.display());
        self.console.error(&text);
    }
}

/// A failed call as the engine's error.
pub(super) fn unreadable(source: io::Error) -> Failure {
    Failure::Engine(offsetlog::Error::new(ErrorKind::Io {
        source,
        call: IoCall::Read,
    }))
}
