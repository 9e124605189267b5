//! Row 9, the simulated part: a sync fails, and what it should have made durable never gets to the disk though reads show it.
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, RecoverOptions, WriteOptions, recover};
use offsetlog_faults::check::{Depth, check_recovered, crashed, open, read};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row};
use offsetlog_faults::run::{PARTITION, Run, clock, fresh, options};
use offsetlog_faults::script::{Script, Step};
use offsetlog_faults::sim::{Cut, SimDisk};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SCRIPTS: [&str; 8] = [
    "append 2 2; flush; append 2 4; flush; append 1 6; flush;",
    "durable 2; durable 3; durable 4; durable 5; durable 6;",
    "append 5 2; flush; roll; append 5 4; flush; roll; append 2 8; flush;",
    "append 2 2; flush; append 5 4; append 5 6; append 5 8; flush; close;",
    "append 3 2; flush; close; append 3 4; flush; truncate 2; flush; append 1 2; close;",
    // Cut to nothing, and in the middle of what was never synced.
    "append 5 7; truncate 3; append 2 9; flush; close;",
    "append 5 8; truncate 3; append 2 8; flush; truncate 1; append 1 8; flush; close;",
    "append 5 2; flush; append 5 6; delete 2; append 2 8; roll; truncate 1; flush; close;",
];

/// What a sync is of.
const PLACES: [(&str, fn(Call, &str) -> bool); 3] = [
    (".log", |call, path| {
        call == Call::Sync && path.ends_with(".log")
    }),
    ("index", |call, path| {
        call == Call::Sync && path.ends_with("index")
    }),
    ("directory", |call, path| {
        call == Call::SyncDirectory && path.ends_with("-0")
    }),
];

fn no_more(log: &LogWriter) -> Result<(), String> {
    let mut batch = BatchBuilder::default();
    batch
        .push(1_700_000_100_000, None, Some(b"more"), &[])
        .expect("a record");
    if log.append(&mut batch, &AppendOptions::default()).is_ok() {
        return Err("B4: an append after a failed sync succeeded".to_owned());
    }
    match log.flush() {
        Ok(()) => Err("B4: a flush after a failed sync succeeded".to_owned()),
        Err(_) => Ok(()),
    }
}

/// Runs a script until the nth sync of a place fails; whether it did.
fn fail_nth(script: &Script, kinds: fn(Call, &str) -> bool, nth: u64) -> Result<bool, String> {
    let sim = SimDisk::new(fresh(script));
    let plan = Plan {
        kinds,
        nth,
        ..Plan::none()
    };
    let faults = FaultDisk::over(&sim, plan);
    let mut run = Run::new(script, sim.clone(), Arc::new(faults.clone()));
    if run.open().is_err() {
        // A log that could not be made is made the next time.
        faults.set(Plan::none());
        let world = sim.world();
        drop(run);
        crashed(
            &world.crash(Cut::Nothing, script.fill, &mut fastrand::Rng::with_seed(1)),
            &offsetlog_faults::Model::new(),
            End::Power,
            script,
            Depth::Repeated,
        )?;
        return Ok(true);
    }
    let mut steps = script.steps.iter();
    let failed_step = loop {
        let Some(&step) = steps.next() else {
            run.settle();
            if faults.failed().is_empty() {
                run.log.take().expect("a log").abandon();
                return Ok(false);
            }
            break Step::Flush;
        };
        let before = run.model.clone();
        if run.step(step).is_err() {
            break step;
        }
        run.settle();
        if !faults.failed().is_empty()
            && matches!(step, Step::Flush | Step::Durable { .. } | Step::Close)
        {
            return Err(format!(
                "B4: {step} returned although a sync failed: {before:?}"
            ));
        }
    };
    let model = run.model.clone();
    if let Some(log) = run.log.take() {
        no_more(&log)?;
        let (found, error) = read(&log);
        if let Some(error) = error {
            return Err(format!("B4: reading after a failed sync: {error}"));
        }
        let log_start = log.log_start_offset().map_err(|error| error.to_string())?;
        let told = model.current[..model.acknowledged].iter();
        let visible: Vec<_> = told.filter(|batch| batch.last >= log_start).collect();
        if found.len() < visible.len() || !found.iter().zip(visible).all(|(one, two)| one == two) {
            return Err(format!("B4: {found:?} read after a failed sync, {model:?}"));
        }
        if log.close().is_ok() {
            return Err("B4: closing after a failed sync succeeded".to_owned());
        }
        drop(log);
    } else if failed_step != Step::Close {
        return Err(format!("no log after {failed_step}"));
    }
    if sim.open_files() + sim.held_locks() > 0 {
        return Err("F14: files or locks are left".to_owned());
    }
    let mut rng = fastrand::Rng::with_seed(nth);
    for cut in [Cut::Nothing, Cut::Random, Cut::Random, Cut::Random] {
        let world = sim.world().crash(cut, script.fill, &mut rng);
        crashed(&world, &model, End::Power, script, Depth::Repeated)
            .map_err(|error| format!("power lost after the failed sync, {cut:?}: {error}"))?;
    }
    // Opened again on the same machine: what the cache shows is made durable before it counts.
    let world = sim.world().crash(Cut::Process, script.fill, &mut rng);
    let recovered = open(&world, script)?;
    let found = check_recovered(&recovered, &model, End::Process)?;
    recovered
        .log
        .flush()
        .map_err(|error| format!("B4: flush after reopening: {error}"))?;
    let world = recovered
        .disk
        .world()
        .crash(Cut::Nothing, script.fill, &mut rng);
    recovered.log.abandon();
    let again = open(&world, script)?;
    let after = check_recovered(&again, &model, End::Power)?;
    again.log.abandon();
    let log_start = model.log_start();
    let must: Vec<_> = found
        .iter()
        .filter(|batch| batch.last >= log_start)
        .collect();
    if must.iter().any(|batch| !after.contains(batch)) {
        return Err(format!(
            "B4: {found:?} was there after reopening and flushed; power lost: {after:?}"
        ));
    }
    Ok(true)
}

#[test]
fn a_failed_sync_is_final_until_the_log_is_opened_again() {
    let mut row = Row::begin(
        9,
        "failed-sync-simulated",
        "failed sync, simulated disk",
        "cases",
        30,
    );
    let mut failures = Failures::default();
    for steps in SCRIPTS {
        for (segment, log_dir) in [(600, false), (20_000, false), (600, true)] {
            let head = format!(
                "strict=false stale=false log_dir={log_dir} segment={segment} index=96 interval=100 preallocate=false late=false: {steps}"
            );
            let script: Script = head.parse().expect("a script");
            for (place, kinds) in PLACES {
                for nth in 1..100 {
                    match fail_nth(&script, kinds, nth) {
                        Ok(false) => break,
                        Ok(true) => {}
                        Err(error) => drop(failures.note(
                            nth,
                            &format!("{script} # sync {nth} of {place}"),
                            &error,
                        )),
                    }
                    row.count(1);
                }
            }
        }
    }
    failures.end("row-09");
    row.end(&"");
}

/// A log that is killed, after a failed sync or without one, and opened again by somebody who says that all of it is durable.
fn believe(failing: bool, recovering: bool) -> Result<(), String> {
    let script: Script =
        "strict=false stale=false log_dir=false segment=600 index=96 interval=100 preallocate=false late=true:"
            .parse()?;
    let sim = SimDisk::new(fresh(&script));
    let faults = FaultDisk::over(&sim, Plan::none());
    let mut run = Run::new(&script, sim.clone(), Arc::new(faults.clone()));
    let words = |error: offsetlog::Error| error.to_string();
    run.open().map_err(words)?;
    run.step(Step::Append {
        batches: 5,
        seed: 2,
    })
    .map_err(words)?;
    if failing {
        faults.set(Plan {
            kinds: PLACES[0].1,
            nth: 1,
            ..Plan::none()
        });
        if run.step(Step::Flush).is_ok() {
            return Err("the flush succeeded".to_owned());
        }
    }
    run.log.take().expect("a log").abandon();
    let end = run.model.next;
    let disk = SimDisk::new(sim.world().crash(
        Cut::Process,
        script.fill,
        &mut fastrand::Rng::with_seed(1),
    ));
    let options = options(Arc::new(disk.clone()), &clock());
    if recovering {
        let recovering = RecoverOptions {
            from_offset: Some(end),
            ..RecoverOptions::default()
        };
        recover(PARTITION, &options, &recovering).map_err(words)?;
    } else {
        let write = WriteOptions {
            clean: Some(false),
            recovery_point: Some(end),
            ..WriteOptions::default()
        };
        let log = LogWriter::open(PARTITION, &options, &write).map_err(words)?;
        log.close().map_err(words)?;
    }
    let world = disk
        .world()
        .crash(Cut::Nothing, script.fill, &mut fastrand::Rng::with_seed(1));
    let again = open(&world, &script)?;
    run.model.flushed();
    check_recovered(&again, &run.model, End::Power)?;
    again.log.abandon();
    Ok(())
}

#[test]
fn a_recovery_point_that_the_caller_names_makes_nothing_durable() {
    for (failing, recovering) in [(false, false), (true, false), (false, true), (true, true)] {
        believe(failing, recovering)
            .unwrap_or_else(|error| panic!("failing {failing}, recovering {recovering}: {error}"));
    }
}

static SYNCING: AtomicBool = AtomicBool::new(false);

/// The sync of an append, which takes a while and fails.
fn slow_sync(call: Call, path: &str) -> bool {
    let is_slow = call == Call::Sync && path.ends_with(".log");
    if is_slow {
        SYNCING.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
    }
    is_slow
}

#[test]
fn a_truncation_that_waited_for_a_failed_sync_does_nothing() {
    let truncations: [fn(&LogWriter) -> bool; 2] = [
        |log| log.truncate_to(0).is_err(),
        |log| log.truncate_fully_and_start_at(7, None).is_err(),
    ];
    for is_refused in truncations {
        SYNCING.store(false, Ordering::SeqCst);
        let script: Script =
            "strict=false stale=false log_dir=false segment=600 index=24 interval=0 preallocate=false late=false:"
                .parse()
                .unwrap();
        let faults = FaultDisk::over(&SimDisk::new(fresh(&script)), Plan::none());
        let log = LogWriter::open(
            PARTITION,
            &options(Arc::new(faults.clone()), &clock()),
            &WriteOptions::default(),
        )
        .unwrap();
        faults.set(Plan {
            kinds: slow_sync,
            nth: 1,
            ..Plan::none()
        });
        std::thread::scope(|scope| {
            let appending = scope.spawn(|| {
                let mut batch = BatchBuilder::default();
                batch.push(1, None, Some(b"value"), &[]).unwrap();
                let flush = AppendOptions {
                    flush: true,
                    ..AppendOptions::default()
                };
                log.append(&mut batch, &flush).is_err()
            });
            while !SYNCING.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(is_refused(&log));
            assert!(appending.join().unwrap());
        });
        assert_eq!(log.log_end_offset().unwrap(), 1);
        log.abandon();
    }
}
