//! Row 1: power is lost at any change of the disk, in any state that the rules of the simulated disk allow.
use offsetlog::{AppendOptions, AppendOrigin, LogWriter, MarkerOptions, WriteOptions};
use offsetlog_faults::batch::{crc32c, encode};
use offsetlog_faults::check::{Seen, open};
use offsetlog_faults::crash::{crash_script, shrink};
use offsetlog_faults::report::{Failures, Row, replayed, scaled};
use offsetlog_faults::run::{PARTITION, clock, config, fresh, options};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, SimDisk, World};
use std::path::Path;
use std::sync::Arc;

#[test]
fn power_loss_leaves_a_prefix() {
    let mut row = Row::begin(
        1,
        "power-loss",
        "power loss, all legal states",
        "states",
        scaled(20_000),
    );
    let mut seen = Seen::default();
    let mut failures = Failures::default();
    // Beside the floor, which is of scripts that are drawn.
    let mut known = 0;
    for line in include_str!("../../regressions/scripts.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let script: Script = line.parse().expect("a script");
        match crash_script(&script, 1, Some(8)) {
            Ok((states, found)) => {
                known += states;
                seen.add(found);
            }
            Err(error) => drop(failures.note(1, &script, &error)),
        }
    }
    let mut seeds = fastrand::Rng::with_seed(row.seed);
    while row.goes_on() {
        let seed = replayed().unwrap_or_else(|| seeds.u64(..));
        let script = Script::random(&mut fastrand::Rng::with_seed(seed));
        match crash_script(&script, seed, None) {
            Ok((states, found)) => {
                row.count(states);
                seen.add(found);
            }
            Err(error) => {
                row.count(1);
                if failures.note(seed, &script, &error) {
                    let (script, error) = shrink(script, seed, error);
                    failures.note(seed, &script, &error);
                }
            }
        }
        if replayed().is_some() {
            break;
        }
    }
    failures.end("row-01");
    row.count(known);
    row.end(&format!("{seen:?}"));
}

/// Opens a log, writes an aborted transaction of producer 7, flushes and dies.
fn abort(script: &Script) -> Result<World, offsetlog::Error> {
    let disk = SimDisk::new(fresh(script));
    let write = WriteOptions {
        config: Some(config(script)),
        ..WriteOptions::default()
    };
    let options = options(Arc::new(disk.clone()), &clock());
    let log = LogWriter::open(PARTITION, &options, &write)?;
    let mut batch = encode(0, 0, (options.clock)(), &[(None, Some(vec![1; 9]))])
        .bytes
        .to_vec();
    batch[22] |= 0x10;
    batch[43..51].copy_from_slice(&7_i64.to_be_bytes());
    batch[51..57].fill(0);
    let sum = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&sum.to_be_bytes());
    log.append_batches(&batch, AppendOrigin::Client, &AppendOptions::default())?;
    let marker = MarkerOptions {
        producer_id: 7,
        producer_epoch: 0,
        commit: false,
        coordinator_epoch: 0,
        timestamp: None,
        transaction_version: 1,
    };
    log.append_marker(&marker, &AppendOptions::default())?;
    log.flush()?;
    log.abandon();
    Ok(disk.world())
}

#[test]
fn what_recovery_makes_of_a_transaction_is_durable_once_the_log_is_closed() {
    let script: Script =
        "strict=false stale=false log_dir=false segment=4000 index=96 interval=100 preallocate=false late=false:"
            .parse()
            .unwrap();
    let written = abort(&script).unwrap();
    let index = Path::new(PARTITION).join("00000000000000000000.txnindex");
    let whole = written.bytes(&index).unwrap().to_vec();
    assert_eq!(whole.len(), 34);
    for lost in [Cut::Nothing, Cut::Process] {
        let rng = &mut fastrand::Rng::with_seed(1);
        let recovered = open(&written.crash(lost, script.fill, rng), &script).unwrap();
        recovered.log.close().unwrap();
        let closed = recovered.disk.world();
        assert_eq!(closed.bytes(&index), Some(&*whole), "{lost:?}");
        let later = closed.crash(Cut::Nothing, script.fill, rng);
        assert_eq!(later.bytes(&index), Some(&*whole), "{lost:?}, then power");
    }
}
