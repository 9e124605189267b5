//! `dump --kafka`: the lines of Kafka's own tool, those that are false included.
//!
//! Kafka's tool ends with an exception if it cannot read something. Then this ends too, with one line for the exception and without
//! the stack. Names of classes are Kafka's. So are the sentences about framing, counts and what decoders skip; others are the engine's.

use super::java;
use super::kafka_run::{Ended, Run, base_offset, cannot_read, exception, name_of, suffix_of};
use super::log_file::LogFile;
use super::{kafka_batch, kafka_index, kafka_state};
use crate::args::Dump;
use crate::console::Console;
use crate::failure::Failure;
use crate::{EXIT_DAMAGED, EXIT_FINE};
use offsetlog::format::FileName;
use std::path::Path;

pub(super) fn run(args: &Dump, console: &mut Console<'_>) -> Result<i32, Failure> {
    let mut run = Run::new(args, console);
    let mut ended = Ok(());
    for path in args.files() {
        ended = run.file(&path);
        if ended.is_err() {
            break;
        }
    }
    let code = match ended {
        Ok(()) => {
            run.summary();
            EXIT_FINE
        }
        Err(Ended::Exception(text)) => {
            run.say(format!("Exception in thread \"main\" {text}"));
            EXIT_DAMAGED
        }
        Err(Ended::Output(error)) => return Err(error.into()),
    };
    run.finish()?;
    Ok(code)
}

impl Run<'_, '_> {
    fn file(&mut self, path: &Path) -> Result<(), Ended> {
        let file = java::file(path);
        self.line(&format!("Dumping {file}"))?;
        let name = name_of(&file);
        match suffix_of(name) {
            Some(".log" | ".checkpoint") => self.log(&file),
            Some(".index") => kafka_index::offsets(self, &file),
            Some(".timeindex") => kafka_index::times(self, &file),
            Some(".snapshot") => kafka_state::snapshot(self, &file),
            Some(".txnindex") => kafka_state::aborted(self, &file),
            _ => {
                self.say(format!("Ignoring unknown file {file}"));
                Ok(())
            }
        }
    }

    /// A segment, or a snapshot of the metadata log.
    fn log(&mut self, file: &str) -> Result<(), Ended> {
        let name = name_of(file);
        if suffix_of(name) == Some(".log") {
            let base = base_offset(file)?;
            self.line(&format!("Log starting offset: {base}"))?;
        } else if name == "bootstrap.checkpoint" {
            self.line("KRaft bootstrap snapshot")?;
        } else {
            let FileName::MetadataSnapshot {
                end_offset, epoch, ..
            } = FileName::classify(name)
            else {
                return Err(exception(
                    "java.util.NoSuchElementException",
                    "No value present",
                ));
            };
            self.line(&format!(
                "Snapshot end offset: {end_offset}, epoch: {epoch}"
            ))?;
        }
        let mut log = LogFile::open(Path::new(file)).map_err(|error| cannot_read(file, &error))?;
        let limit = self.args.max_bytes.unwrap_or(i32::MAX);
        let end = log.size.min(u64::try_from(limit).unwrap_or(0));
        let mut position = 0;
        let mut previous = -1;
        while let Some(batch) = kafka_batch::next(&mut log, position, end, file)? {
            let size = kafka_batch::dump(self, &mut log, &batch, position, file, &mut previous)?;
            position += size;
        }
        if end > position && limit == i32::MAX {
            let trailing = end - position;
            self.line(&format!(
                "Found {trailing} invalid bytes at the end of {name}"
            ))?;
        }
        Ok(())
    }
}
