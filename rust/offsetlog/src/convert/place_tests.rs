//! Where the new directory is created, what is refused, and how progress and interruption work.

use super::*;
use crate::{LogDir, LogDirOptions, WriteOptions};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn the_log_start_offset_is_kept() {
    for in_log_dir in [false, true] {
        let place = Place::new();
        let options = OpenOptions::default();
        let log = LogWriter::open(place.old(), &options, &WriteOptions::default()).unwrap();
        let mut batch = BatchBuilder::default();
        for _ in 0..4 {
            for _ in 0..5 {
                batch
                    .push(1_700_000_000_000, None, Some(b"v"), &[])
                    .unwrap();
            }
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
        log.delete_records_before(12).unwrap();
        log.close().unwrap();
        if in_log_dir {
            let log_dir = place.folder.path().join("new");
            fs::create_dir(&log_dir).unwrap();
            fs::write(log_dir.join("meta.properties"), "version=1\n").unwrap();
            // Left by an earlier directory of this name.
            for name in [
                "recovery-point-offset-checkpoint",
                "log-start-offset-checkpoint",
            ] {
                fs::write(log_dir.join(name), "0\n1\norders 0 9999\n").unwrap();
            }
        }
        let report = place.convert(Some(Codec::Gzip)).unwrap();
        assert_eq!((report.log_start_offset, report.log_end_offset), (12, 20));
        assert_eq!(ends(&place.new_one()), (12, 20));
        assert_eq!(rows(&place.new_one()), rows(&place.old()));
        assert_eq!(headers(&place.new_one())[0].base_offset, Some(10));
        let names = place.names();
        assert!(
            names.iter().all(|name| !name.ends_with("-delete")),
            "{names:?}"
        );
    }
}

#[test]
fn places_that_will_not_do_are_refused() {
    let place = Place::new();
    let bytes = messages(1, Codec::None, None, &[record(0, 0, b"a")]);
    place.write(&[(0, &bytes)]);
    let folder = place.folder.path();
    fs::create_dir_all(folder.join("full/orders-0")).unwrap();
    fs::write(folder.join("full/orders-0/x"), b"").unwrap();
    fs::create_dir_all(folder.join("nothing/orders-0")).unwrap();
    let how = ConvertOptions::default();
    for (old, new, words) in [
        (
            "old/orders-0",
            "full/orders-0",
            "the directory is not empty",
        ),
        (
            "old/orders-0",
            "old/orders-0",
            "it lies in the directory to be converted",
        ),
        (
            "old/orders-0",
            "old/orders-0/orders-1",
            "it lies in the directory to be converted",
        ),
        (
            "old/orders-0",
            "new/orders",
            "directory name \"orders\" is not topic-partition",
        ),
        (
            "old/orders-0",
            "new/or ders-0",
            "directory name \"or ders-0\" is not topic-partition",
        ),
        (
            "old/orders-0",
            "new/orders-0.0123456789abcdef0123456789abcdef-delete",
            "directory name \"orders-0.0123456789abcdef0123456789abcdef-delete\" is that of",
        ),
        (
            "nothing/orders-0",
            "new/orders-0",
            "no .log and no .kafka file found",
        ),
        ("none/orders-0", "new/orders-0", "cannot list"),
    ] {
        let error = convert(
            folder.join(old),
            folder.join(new),
            &OpenOptions::default(),
            &how,
        )
        .unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
    }
    assert_eq!(place.names(), Vec::<String>::new());
    // An empty directory counts as none.
    fs::create_dir_all(place.new_one()).unwrap();
    place.convert(None).unwrap();
    assert_eq!(rows(&place.new_one()).len(), 1);
}

/// Interrupted at any point it leaves nothing. Progress covers every byte that it read.
#[test]
fn it_can_be_followed_and_stopped() {
    let place = Place::new();
    let value: &'static [u8] = Box::leak(vec![b'x'; 300_000].into_boxed_slice());
    let records: Vec<_> = (0..40).map(|n| record(n, n, value)).collect();
    let bytes: Vec<u8> = records
        .iter()
        .flat_map(|record| messages(1, Codec::Gzip, None, std::slice::from_ref(record)))
        .collect();
    place.write(&[(0, &bytes)]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let how = ConvertOptions {
        codec: Some(Codec::Lz4),
        progress: Some(Arc::new(move |done, total| {
            telling.lock().unwrap().push((done, total));
        })),
        ..ConvertOptions::default()
    };
    let mut asked_at_all = false;
    for stop in 0..60 {
        let asked = AtomicU64::new(0);
        let options = OpenOptions {
            interrupt: Some(Arc::new(move || {
                asked.fetch_add(1, Ordering::Relaxed) >= stop
            })),
            ..OpenOptions::default()
        };
        match convert(place.old(), place.new_one(), &options, &how) {
            Ok(_) => {
                asked_at_all = stop > 5;
                break;
            }
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Interrupted), "{error}"),
        }
        assert_eq!(place.names(), Vec::<String>::new());
    }
    assert!(asked_at_all);
    let size = bytes.len() as u64;
    assert_eq!(told.lock().unwrap().last(), Some(&(size, size)));
    assert_eq!(place.names(), ["orders-0"]);
}

#[test]
fn settings_are_copied_or_given() {
    let place = Place::new();
    let options = OpenOptions::default();
    let config = LogConfig::parse([("segment.bytes", "1048576"), ("retention.ms", "5")]).unwrap();
    let id = offsetlog_format::Uuid::parse("AAAAAAAAAAAAAAAAAAAABQ").unwrap();
    let write = WriteOptions {
        config: Some(config.clone()),
        topic_id: Some(id),
        ..WriteOptions::default()
    };
    LogWriter::open(place.old(), &options, &write)
        .unwrap()
        .close()
        .unwrap();
    let stored = |path: &Path| read_config(options.disk.as_ref(), path).unwrap();
    place.convert(None).unwrap();
    assert_eq!(stored(&place.new_one()), Some(config));
    let log = Log::open(place.new_one(), &options).unwrap();
    assert_eq!(log.topic_id().unwrap(), Some(id));
    let other = place.folder.path().join("new/others-3");
    let given = LogConfig::parse([("segment.bytes", "2097152")]).unwrap();
    let how = ConvertOptions {
        config: Some(given.clone()),
        ..ConvertOptions::default()
    };
    convert(place.old(), &other, &options, &how).unwrap();
    assert_eq!(stored(&other), Some(given));
    // Two topics with one id would be taken for the same topic.
    assert_eq!(
        Log::open(&other, &options).unwrap().topic_id().unwrap(),
        None
    );
}

/// Log dirs that remove deleted topics at once.
fn keeper(path: &Path) -> LogDir {
    let how = LogDirOptions {
        defaults: LogConfig::parse([("file.delete.delay.ms", "0")]).unwrap(),
        ..LogDirOptions::default()
    };
    LogDir::open_for_append(&[path], &OpenOptions::default(), &how).unwrap()
}

/// The folder of a conversion looks like one that waits for deletion. It must survive if its delay passes meanwhile.
#[test]
fn a_directory_under_conversion_is_not_removed() {
    let place = Place::new();
    let bytes = messages(1, Codec::None, None, &[record(0, 0, b"a")]);
    place.write(&[(0, &bytes)]);
    let log_dir = place.folder.path().join("new");
    // Left by a conversion that was killed.
    let left = log_dir.join("gone-0.0123456789abcdef0123456789abcdef-delete");
    fs::create_dir_all(left.join("gone-0")).unwrap();
    fs::write(left.join(".offsetlog.lock"), "1\n").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (told, watched) = (Arc::clone(&seen), log_dir);
    let how = ConvertOptions {
        progress: Some(Arc::new(move |_, _| {
            let other = keeper(&watched);
            let planned = other.remove_deleted(true).unwrap();
            let removed = other.remove_deleted(false).unwrap();
            other.close().unwrap();
            told.lock().unwrap().push((planned, removed));
        })),
        ..ConvertOptions::default()
    };
    place.convert_as(&how).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], (vec![left.clone()], vec![left]));
    assert!(seen[1..].iter().all(|(_, removed)| removed.is_empty()));
    assert_eq!(rows(&place.new_one()), rows(&place.old()));
    let names = place.names();
    assert!(
        names.iter().all(|name| !name.ends_with("-delete")),
        "{names:?}"
    );
}
