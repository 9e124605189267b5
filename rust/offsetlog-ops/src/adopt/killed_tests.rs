//! A call that was killed: the one that finishes it tells what has gone by then.

use super::*;
use offsetlog::disk::RealDisk;
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, WriteOptions};
use offsetlog_faults::fault::{FaultDisk, Lasting, Plan as Faults};
use std::fs;

const NOTE: &str = ".offsetlog.adopting";
/// What each of the sentences has that tell what goes: a lost end, a segment, and what stood in the place.
const GOING: [&str; 3] = [
    "the high watermark of its log dir is 9",
    "waits for its deletion",
    "set aside: ",
];

/// A broker's log dir with a directory of another topic id, which lost its end, and another one of the same partition.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let made = place.0.path().join("made/orders-0");
        let how = WriteOptions {
            topic_id: Some(Uuid::from_bytes([7; 16])),
            ..WriteOptions::default()
        };
        let log = LogWriter::open(&made, &OpenOptions::default(), &how).unwrap();
        for _ in 0..6 {
            let mut batch = BatchBuilder::default();
            batch.push(1, None, Some(b"value"), &[]).unwrap();
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
        log.close().unwrap();
        for entry in fs::read_dir(&made)
            .unwrap()
            .map(std::result::Result::unwrap)
        {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(".offsetlog")
            {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let log_dir = place.log_dir();
        fs::create_dir(&log_dir).unwrap();
        fs::write(log_dir.join("meta.properties"), "version=1\nnode.id=1\n").unwrap();
        fs::write(
            log_dir.join("replication-offset-checkpoint"),
            "0\n1\norders 0 9\n",
        )
        .unwrap();
        let future = log_dir.join(format!("orders-0.{}-future", "0".repeat(32)));
        fs::create_dir(&future).unwrap();
        for entry in fs::read_dir(&made)
            .unwrap()
            .map(std::result::Result::unwrap)
        {
            fs::copy(entry.path(), future.join(entry.file_name())).unwrap();
        }
        fs::rename(&made, place.directory()).unwrap();
        let segment = format!("{:020}.log", 0);
        let waiting = place.directory().join(format!("{segment}.deleted"));
        fs::copy(place.directory().join(segment), waiting).unwrap();
        place
    }

    fn log_dir(&self) -> PathBuf {
        self.0.path().join("log-dir")
    }

    fn directory(&self) -> PathBuf {
        self.log_dir().join("orders-0")
    }

    fn adopt(
        &self,
        disk: Arc<dyn offsetlog::disk::Disk>,
        dry_run: bool,
    ) -> Result<AdoptedPartition> {
        let how = AdoptOptions {
            topic_id: Some(Uuid::from_bytes([8; 16])),
            set_aside: true,
            dry_run,
            ..AdoptOptions::default()
        };
        let options = OpenOptions {
            disk,
            ..OpenOptions::default()
        };
        let mut adopted = adopt(&[self.directory()], &how, &options)?;
        Ok(adopted.pop().unwrap())
    }

    /// The sentences of what goes, without the path, which is another one each time.
    fn going(&self, adopted: &AdoptedPartition) -> Vec<String> {
        let root = self.0.path().display().to_string();
        let notes = adopted.notes.iter();
        let mut going: Vec<String> = notes
            .filter(|note| GOING.iter().any(|words| note.contains(words)))
            .map(|note| note.replace(&root, ""))
            .collect();
        going.sort();
        going
    }
}

#[test]
fn what_has_gone_when_a_call_is_killed_is_told_by_the_next_one() {
    let place = Place::new();
    let expected = place.going(&place.adopt(Arc::new(RealDisk), true).unwrap());
    assert_eq!(expected.len(), GOING.len(), "{expected:?}");
    let (mut finished, mut at_the_end) = (0, 0);
    for nth in 1.. {
        let place = Place::new();
        let faults = Faults {
            kinds: |call, _| call.is_change(),
            nth,
            lasting: Lasting::Killed,
            ..Faults::none()
        };
        let disk = FaultDisk::new(Arc::new(RealDisk), faults);
        let first = place.adopt(Arc::new(disk.clone()), false);
        if disk.failed().is_empty() {
            assert_eq!(place.going(&first.unwrap()), expected);
            break;
        }
        let second = place.adopt(Arc::new(RealDisk), false).unwrap();
        if !second.is_changed {
            // The first one had come to its end, and was about to tell.
            at_the_end += 1;
            continue;
        }
        assert_eq!(at_the_end, 0, "call {nth}");
        assert_eq!(place.going(&second), expected, "killed at call {nth}");
        assert!(!place.directory().join(NOTE).exists());
        finished += 1;
    }
    assert!(finished > 20, "{finished}");
    assert!(at_the_end < 10, "{at_the_end}");
}

#[test]
fn a_note_without_sentences_is_read_and_a_long_one_is_cut() {
    let place = Place::new();
    let note = place.directory().join(NOTE);
    let options = OpenOptions::default();
    fs::write(&note, " orders-0").unwrap();
    let read = || {
        interrupted_adoption(&place.directory(), &options)
            .unwrap()
            .unwrap()
    };
    assert_eq!((read().name.as_str(), read().told.len()), ("orders-0", 0));
    let second = place.adopt(Arc::new(RealDisk), true).unwrap();
    assert_eq!(place.going(&second).len(), GOING.len());
    let adoption = Adoption {
        directory: place.directory(),
        topic: "orders".to_owned(),
        partition: 0,
        topic_id: None,
        in_the_way: Vec::new(),
        log_start_offset: Some(3),
        checked_end_offset: 0,
        told: vec!["short".to_owned(), "\u{10ffff}".repeat(300_000)],
    };
    fs::remove_file(&note).unwrap();
    let disk = FaultDisk::new(
        Arc::new(RealDisk),
        Faults {
            kinds: |_, path| path.ends_with("checkpoint"),
            nth: 1,
            lasting: Lasting::Killed,
            ..Faults::none()
        },
    );
    let failing = OpenOptions {
        disk: Arc::new(disk),
        ..OpenOptions::default()
    };
    adoption.run(&failing, || Ok(())).unwrap_err();
    let found = read();
    assert_eq!(
        (found.name.as_str(), found.log_start_offset),
        ("orders-0", Some(3))
    );
    assert_eq!((found.told.len(), found.told[0].as_str()), (2, "short"));
    assert!(found.told[1].ends_with(" ..."));
}
