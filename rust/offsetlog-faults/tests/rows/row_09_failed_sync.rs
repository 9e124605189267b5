//! Row 9, the simulated part: a sync fails, and what it should have made durable never gets to the disk though reads show it.
use offsetlog::{AppendOptions, BatchBuilder, Log};
use offsetlog_faults::check::{Depth, check_recovered, crashed, open, read};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::{Script, Step};
use offsetlog_faults::sim::{Cut, SimDisk};
use std::sync::Arc;

const SCRIPTS: [&str; 5] = [
    "append 2 2; flush; append 2 4; flush; append 1 6; flush;",
    "durable 2; durable 3; durable 4; durable 5; durable 6;",
    "append 5 2; flush; roll; append 5 4; flush; roll; append 2 8; flush;",
    "append 2 2; flush; append 5 4; append 5 6; append 5 8; flush; close;",
    "append 3 2; flush; close; append 3 4; flush; truncate 2; flush; append 1 2; close;",
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

fn no_more(log: &Log) -> Result<(), String> {
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
        lasting: Lasting::Once,
        error: 5,
        half: false,
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
            if faults.failed() == 0 {
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
        if faults.failed() > 0 && matches!(step, Step::Flush | Step::Durable { .. } | Step::Close) {
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
        if found.len() < model.acknowledged
            || !found.starts_with(&model.current[..model.acknowledged])
        {
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
        for segment in [600, 20_000] {
            let head = format!(
                "strict=false stale=false log_dir=false segment={segment} index=96 interval=100 preallocate=false late=false: {steps}"
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
