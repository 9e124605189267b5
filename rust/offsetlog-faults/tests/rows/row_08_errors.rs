//! Row 8: each call of the engine fails, once or from then on, with each error.
use offsetlog_faults::check::{Depth, crashed};
use offsetlog_faults::fault::{FaultDisk, Lasting, Plan};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row, scaled};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, SimDisk};
use std::sync::Arc;

/// What a call does instead: the error, and whether a write has got half way before it, or a read gives half of what there is.
const FAULTS: [(&str, i32, bool); 10] = [
    ("EIO", 5, false),
    ("ENOSPC", 28, true),
    ("EDQUOT", 122, false),
    ("EROFS", 30, false),
    ("EACCES", 13, false),
    ("EMFILE", 24, false),
    ("ENOMEM", 12, false),
    ("EINTR", 4, false),
    ("short write, then EFBIG", 27, true),
    ("ENFILE", 23, false),
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
fn script(number: usize) -> Option<Script> {
    let steps = SCRIPTS.get(number)?;
    let segment = [600, 1_500, 20_000][number % 3];
    let index = [24, 96, 600][number / 3 % 3];
    let head = format!(
        "strict=false stale=false log_dir={} segment={segment} index={index} interval=100 preallocate={} late=false: {steps}",
        number % 4 == 3,
        number % 5 == 4,
    );
    Some(head.parse().expect("a script"))
}

/// What one injection did.
struct Injected {
    /// The call was reached, and failed.
    failed: bool,
    /// No step of the script said so.
    silent: bool,
}

/// Runs a script over a disk that fails.
fn inject(script: &Script, plan: Plan, depth: Depth) -> Result<Injected, String> {
    let sim = SimDisk::new(fresh(script));
    let faults = FaultDisk::over(&sim, plan);
    let mut run = Run::new(script, sim.clone(), Arc::new(faults.clone()));
    let mut said = String::new();
    let mut steps = script.steps.iter();
    let mut done = run.open();
    loop {
        if let Err(error) = &done {
            said = format!("{said} / {error}");
        }
        if let Some(broken) = &run.broken {
            return Err(format!("{broken}\n  the engine said{said}"));
        }
        let Some(&step) = steps.next() else { break };
        done = run.step(step);
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
    crashed(&world, &run.model, End::Process, script, depth)
        .map_err(|error| format!("{error}\n  the engine said{said}"))?;
    Ok(Injected {
        failed: faults.failed() > 0,
        silent: said.is_empty(),
    })
}

#[test]
#[ignore = "finds what docs/decisions/0011-open-findings.md lists"]
fn a_call_that_fails_does_no_lasting_damage() {
    // Fewer scripts in a quick look, in a soak more, which are drawn.
    let count = scaled(SCRIPTS.len());
    let floor = if count < SCRIPTS.len() { 1 } else { 15_000 };
    let mut row = Row::begin(8, "errors", "error at every call", "injections", floor);
    let mut rng = fastrand::Rng::with_seed(row.seed);
    let mut failures = Failures::default();
    let mut silent = 0;
    for number in 0..count {
        let script = script(number).unwrap_or_else(|| Script::random(&mut rng));
        for lasting in [Lasting::Once, Lasting::FromThenOn] {
            for nth in 1.. {
                let mut reached = false;
                for (name, error, half) in FAULTS {
                    let plan = Plan {
                        kinds: |_, _| true,
                        nth,
                        lasting,
                        error,
                        half,
                    };
                    let depth = if rng.u8(0..4) == 0 {
                        Depth::GoesOn
                    } else {
                        Depth::Found
                    };
                    match inject(&script, plan, depth) {
                        Ok(injected) => {
                            reached |= injected.failed;
                            silent += usize::from(injected.failed && injected.silent);
                        }
                        Err(error) => {
                            reached = true;
                            let case = format!("{script} # call {nth} {lasting:?} {name}");
                            failures.note(row.seed, &case, &error);
                        }
                    }
                    row.count(1);
                }
                // The script ended before its nth call.
                if !reached {
                    break;
                }
            }
        }
    }
    failures.end("row-08");
    row.end(&format!("{silent} of them did no step any harm"));
}
