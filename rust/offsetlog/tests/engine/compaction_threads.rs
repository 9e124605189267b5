//! A pass over compressed batches: with a second core another thread helps, and leaves what one thread alone leaves.

use crate::common::{NOW, Place, log_file, marker, path};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use offsetlog::format::Codec;
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, Compaction, Error, LogWriter, Producer,
    ScanOptions,
};
use offsetlog_faults::batch::{crc32c, walk};
use std::collections::BTreeMap;

const CODECS: [Codec; 5] = [
    Codec::Lz4,
    Codec::Zstd,
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
];
const SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "2000000"),
    ("segment.index.bytes", "100000"),
    ("delete.retention.ms", "86400000"),
];

/// Runs `work` in a thread that sees one core only.
fn on_one_core<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let this = Pid::from_raw(0);
            let all = sched_getaffinity(this).unwrap();
            let first = (0..CpuSet::count()).find(|&core| all.is_set(core).unwrap());
            let mut one = CpuSet::new();
            one.set(first.unwrap()).unwrap();
            sched_setaffinity(this, &one).unwrap();
            assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
            work()
        });
        thread.join().unwrap()
    })
}

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = random.usize(0..2_000);
    std::iter::repeat_with(|| random.u8(..))
        .take(length)
        .collect()
}

/// Batches of all codecs, of which all, some or no records stay; tombstones; transactions that end both ways. Returns the last value of
/// each key.
fn fill(log: &LogWriter, seed: u64, producer_epoch: i16) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut last = BTreeMap::new();
    let mut sequence = 0;
    for number in 0..900 {
        let codec = *random.choice(&CODECS).unwrap();
        let is_transactional = random.u8(..) < 30;
        let producer = if is_transactional {
            Producer {
                producer_id: 7,
                producer_epoch,
                base_sequence: sequence,
                is_transactional,
            }
        } else {
            Producer::default()
        };
        let mut batch = BatchBuilder::new(codec, producer);
        let mut rows = Vec::new();
        for _ in 0..random.usize(1..20) {
            // Half of the keys are written once.
            let key = if random.bool() {
                format!("once-{number}-{}", rows.len())
            } else {
                format!("often-{}", random.u16(..400))
            };
            let value = (random.u8(..) > 20).then(|| value(&mut random));
            batch
                .push(NOW, Some(key.as_bytes()), value.as_deref(), &[])
                .unwrap();
            rows.push((key.into_bytes(), value));
        }
        log.append(&mut batch, &AppendOptions::default()).unwrap();
        let mut counts = true;
        if is_transactional {
            sequence += rows.len() as i32;
            counts = random.bool();
            let ending = marker(7, producer_epoch, counts);
            log.append_marker(&ending, &AppendOptions::default())
                .unwrap();
        }
        if counts {
            last.extend(rows);
        }
    }
    log.roll().unwrap();
    last
}

fn table(log: &LogWriter) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut found = BTreeMap::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            let value = record.value.map(<[u8]>::to_vec);
            found.insert(record.key.unwrap().to_vec(), value);
        }
    }
    found
}

fn compact(place: &Place) -> Result<Compaction, Error> {
    let log = place.again();
    let done = log.compact(&CompactOptions::default());
    log.close().unwrap();
    done
}

#[test]
fn two_threads_leave_what_one_leaves() {
    for seed in 0..4 {
        let alone = Place::new();
        let log = alone.open(&SETTINGS);
        let last = fill(&log, seed, 0);
        log.close().unwrap();
        let together = alone.copy();
        let first = on_one_core(|| compact(&alone)).unwrap();
        // Fewer bytes than a second thread is started for would show nothing.
        assert!(first.bytes_before > 4 << 20, "{first:?}");
        assert!(first.records_after < first.records_before);
        assert_eq!(compact(&together).unwrap(), first);
        assert!(together.data_files() == alone.data_files(), "seed {seed}");
        let log = together.again();
        assert!(table(&log) == last, "seed {seed}");
        log.close().unwrap();
    }
}

/// The error is that of the first batch which has one, whichever thread finds it.
#[test]
fn the_first_damage_is_reported() {
    for seed in 0..4 {
        let place = Place::new();
        let log = place.open(&SETTINGS);
        fill(&log, seed, 0);
        log.compact(&CompactOptions::default()).unwrap();
        fill(&log, seed + 100, 1);
        log.close().unwrap();
        // The map is made of the second half, so damage in the first one is found by the filter.
        let mut damaged = Vec::new();
        place.edit(&log_file(0), |bytes| {
            let mut position = 0;
            let (batches, _) = walk(bytes);
            let sizes: Vec<usize> = batches.iter().map(|batch| batch.bytes.len()).collect();
            for (number, size) in sizes.into_iter().enumerate() {
                let batch = &mut bytes[position..position + size];
                let is_lz4 = batch[22] & 7 == 3 && batch[21..23] == [0, 3];
                if is_lz4 && number > 30 && damaged.len() < 3 {
                    // Records that cannot be decompressed, under a checksum that is right.
                    batch[70..90].fill(0xff);
                    let crc = crc32c(&batch[21..]);
                    batch[17..21].copy_from_slice(&crc.to_be_bytes());
                    damaged.push(position as u64);
                }
                position += size;
            }
        });
        assert_eq!(damaged.len(), 3);
        let others = place.copy();
        let error = compact(&place).unwrap_err();
        assert_eq!(error.path(), Some(path(&log_file(0)).as_path()), "{error}");
        assert_eq!(error.position(), Some(damaged[0]), "{error}");
        let alone = on_one_core(|| compact(&others).unwrap_err());
        assert_eq!(error.to_string(), alone.to_string());
    }
}
