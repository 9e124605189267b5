//! JSON lines: which files, one object for each thing in them, and damage as an object at its place.

use super::lines_run::{Kind, Run};
use super::{lines_log, lines_state};
use crate::args::Dump;
use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::{EXIT_DAMAGED, EXIT_ERROR, EXIT_FINE};
use offsetlog::disk::{Disk as _, EntryKind, RealDisk};
use offsetlog::format::{DirectoryName, counted};
use offsetlog::{ErrorKind, FolderKind, folder_kind};
use serde::Serialize;
use std::path::Path;

/// The first line of each file.
#[derive(Serialize)]
struct FileStart {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_offset: Option<i64>,
    size_bytes: u64,
}

pub(super) fn run(args: &Dump, console: &mut Console<'_>) -> Result<i32, Failure> {
    let mut run = Run::new(args, console);
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
    Ok(match run.outcome() {
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
            match (Kind::of(&entry.name), entry.kind) {
                (Some((kind, offset)), EntryKind::File) => {
                    // A segment's files stand together.
                    let group = if kind < Kind::Log { kind } else { Kind::Log };
                    files.push((group, offset, kind, entry.name.as_str()));
                }
                // A folder, a link or a pipe of a file's name: what should stand there is missing.
                (Some(_), _) => {
                    let reason = "not a regular file; move it out of the directory";
                    self.fail(&path.join(&entry.name), reason);
                }
                (None, EntryKind::Directory) => {
                    partitions += usize::from(DirectoryName::parse(&entry.name).is_ok());
                }
                (None, _) => {}
            }
        }
        files.sort_unstable();
        for (_, offset, kind, name) in files {
            self.file(&path.join(name), kind, offset)?;
        }
        if partitions > 0 {
            let text = format!(
                "{} holds {}; give one to dump it",
                path.display(),
                counted(partitions, "partition")
            );
            self.note(&text);
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, kind: Kind, offset: i64) -> Result<(), Failure> {
        self.begin(path);
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
}
