//! Row 8: each call of the engine fails, once or from then on, with each error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test"
)]

use offsetlog_faults::check::{Seen, crashed};
use offsetlog_faults::fault::{FaultDisk, Lasting, Plan};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row, replayed};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, SimDisk};
use std::sync::Arc;

const ERRORS: [(i32, &str); 10] = [
    (28, "ENOSPC"),
    (122, "EDQUOT"),
    (27, "EFBIG"),
    (5, "EIO"),
    (30, "EROFS"),
    (13, "EACCES"),
    (1, "EPERM"),
    (24, "EMFILE"),
    (23, "ENFILE"),
    (12, "ENOMEM"),
];

const SCRIPTS: [&str; 12] = [
    "append 3 2; flush; append 2 4; close;",
    "append 2 3; roll; append 2 5; flush; kill; append 1 7; close;",
    "durable 2; durable 3; durable 4; close; durable 5;",
    "append 5 7; truncate 3; append 2 9; flush; close;",
    "append 4 2; roll; append 3 4; truncate 9; append 1 6; kill;",
    "append 4 21; delete 2; append 2 8; close; append 1 2;",
    "append 2 2; checkpoint; append 2 14; checkpoint; kill; flush;",
    "append 5 3; append 5 5; append 5 14; append 5 28; flush; close;",
    "append 1 2; kill; append 1 4; kill; append 1 6; kill; close;",
    "roll; append 2 2; roll; append 2 4; roll; flush; truncate 3; close;",
    "append 3 6; flush; truncate 200; append 3 8; flush; delete 1; close;",
    "append 2 70; append 2 14; append 2 7; delete 0; kill; append 2 2; close;",
];

/// Files of different sizes and places, so that every script is about something else.
fn script(number: usize) -> Script {
    let segment = [600, 1_500, 20_000][number % 3];
    let index = [24, 96, 600][number / 3 % 3];
    let head = format!(
        "strict=false stale=false log_dir={} segment={segment} index={index} interval=100 preallocate={} late=false: {}",
        number % 4 == 3,
        number % 5 == 4,
        SCRIPTS[number]
    );
    head.parse().expect("a script")
}

/// Runs a script over a disk that fails; how many calls there were, and whether any failed.
fn inject(script: &Script, plan: Plan) -> Result<(u64, bool), String> {
    let sim = SimDisk::new(fresh(script));
    let faults = FaultDisk::over(&sim, plan.clone());
    let mut run = Run::new(script, sim.clone(), Arc::new(faults.clone()));
    let mut said = String::new();
    let mut steps = script.steps.iter();
    let mut failed = run.open();
    loop {
        if let Err(error) = &failed {
            said = format!("{said} / {error}");
        }
        if let Some(broken) = &run.broken {
            return Err(format!("F1: {broken}{said}"));
        }
        let Some(&step) = steps.next() else { break };
        failed = run.step(step);
    }
    run.settle();
    if let Some(log) = run.log.take() {
        log.abandon();
    }
    let (files, locks) = (sim.open_files(), sim.held_locks());
    if files + locks > 0 {
        return Err(format!("F14: {files} files and {locks} locks left{said}"));
    }
    faults.set(Plan::none());
    let world = sim
        .world()
        .crash(Cut::Process, script.fill, &mut fastrand::Rng::with_seed(1));
    crashed(&world, &run.model, End::Process, script, false)
        .map_err(|error| format!("{error}\n  the engine said{said}"))?;
    Ok((faults.seen(), faults.failed() > 0))
}

#[test]
fn a_call_that_fails_does_no_lasting_damage() {
    let mut row = Row::begin(8, "errors", "errors of every call", "injections", 15_000);
    let mut failures = Failures::default();
    let mut index = 0;
    for number in 0..SCRIPTS.len() {
        let script = script(number);
        for lasting in [Lasting::Once, Lasting::FromThenOn] {
            let mut nth = 1;
            loop {
                let mut failed = false;
                // Every call with one error after the other, and with all of them where it writes.
                for (slot, (error, name)) in ERRORS.into_iter().enumerate() {
                    index += 1;
                    if replayed().is_some_and(|seed| seed != index) {
                        failed = true;
                        continue;
                    }
                    let plan = Plan {
                        kinds: |_, _| true,
                        nth,
                        lasting,
                        error,
                        half: slot % 2 == 0,
                    };
                    match inject(&script, plan) {
                        Ok((_, any)) => failed |= any,
                        Err(error) => {
                            failed = true;
                            let case = format!("{script} # call {nth} {lasting:?} {name}");
                            failures.note(index, &case, &error);
                        }
                    }
                    row.count(1);
                }
                if !failed || (replayed().is_some() && nth > 2_000) {
                    break;
                }
                nth += 1;
            }
        }
    }
    failures.end("row-08");
    row.end(&format!("{:?}", Seen::default()));
}
