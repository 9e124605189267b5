//! One run of `dump` in JSON lines: what files there are by name, its output, and damage as an object at its place.

use crate::args::{Decoder, Dump};
use crate::console::Console;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use offsetlog::disk::IoCall;
use offsetlog::format::internal_topic::{CoordinatorTopic, METADATA_TOPIC};
use offsetlog::format::{DirectoryName, FileName, FormatError, OffsetCheckpointFile, SegmentFile};
use offsetlog::{BatchDecoder, ErrorKind};
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
    pub(super) fn of(name: &str) -> Option<(Self, i64)> {
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

    pub(super) const fn name(self) -> &'static str {
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

impl<'r, 'c> Run<'r, 'c> {
    pub(super) fn new(args: &'r Dump, console: &'r mut Console<'c>) -> Self {
        Self {
            args,
            console,
            decoder: BatchDecoder::default(),
            file: PathBuf::new(),
            damaged: false,
            failed: false,
        }
    }

    /// The file that the next lines are about.
    pub(super) fn begin(&mut self, path: &Path) {
        path.clone_into(&mut self.file);
    }

    /// Whether a file failed, and whether damage was found.
    pub(super) const fn outcome(&self) -> (bool, bool) {
        (self.failed, self.damaged)
    }

    pub(super) fn note(&mut self, text: &str) {
        self.console.note(text);
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

    pub(super) fn fail(&mut self, path: &Path, reason: &str) {
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
