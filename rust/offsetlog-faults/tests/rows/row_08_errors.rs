//! Row 8: each call of the engine fails, once or from then on, with each error.
use offsetlog::{Error, ErrorKind};
use offsetlog_faults::check::{Depth, crashed};
use offsetlog_faults::fault::{Call, Failed, FaultDisk, Lasting, Plan};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row, scaled};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, SimDisk};
use std::path::Path;
use std::sync::Arc;

/// What a call does instead: the error, whether a write has got half way before it; or no error, but half of what was asked. The
/// first ones are tried at each call, of the others some.
const FAULTS: [(&str, i32, bool, bool); 10] = [
    ("EIO", 5, false, false),
    ("ENOSPC", ENOSPC, true, false),
    ("short count", 0, false, true),
    ("EINTR", EINTR, false, false),
    ("EDQUOT", EDQUOT, false, false),
    ("EROFS", 30, false, false),
    ("EACCES", EACCES, false, false),
    ("EMFILE", 24, false, false),
    ("ENOMEM", 12, false, false),
    ("short write, then EFBIG", 27, true, false),
];
/// Those that are tried at each call.
const ALWAYS: usize = 3;
const EINTR: i32 = 4;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
const EACCES: i32 = 13;

/// Steps; before a colon the settings that a script has of its own.
const SCRIPTS: [&str; 16] = [
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
    "retention=900: append 3 8; append 2 4; maintain; append 2 10; checkpoint; maintain; close;",
    "compact=true: append 3 4; roll; compact 0; append 2 8; kill; append 1 2; compact 2; close;",
    "retention=1500 compact=true: append 4 6; compact 0; delete 2; maintain; truncate 4; append 1 6; checkpoint; close;",
    "retention=0: append 2 12; flush; maintain; append 1 4; roll; maintain; kill; append 1 8;",
];

/// Files of different sizes and places, so that every script is about something else.
fn script(number: usize) -> Option<Script> {
    let text = SCRIPTS.get(number)?;
    let (own, steps) = text.split_once(':').unwrap_or(("", text));
    let segment = [600, 1_500, 20_000][number % 3];
    let index = [24, 96, 600][number / 3 % 3];
    let head = format!(
        "strict=false stale=false log_dir={} segment={segment} index={index} interval=100 preallocate={} late=false {own}: {steps}",
        number % 4 == 3,
        number % 5 == 4,
    );
    Some(head.parse().expect("a script"))
}

/// Errors that nobody is told of, by call and end of the path, and why that does no harm.
const SWALLOWED: [(&[Call], &str, &str); 14] = [
    (
        READING,
        "index",
        "an index that cannot be read is gone round, and made again",
    ),
    (
        WRITING,
        "index",
        "without room for a shorter index its entries become zeros in place",
    ),
    (
        WRITING,
        ".snapshot",
        "opening needs no room: the next one reads more",
    ),
    (
        WRITING,
        ".offsetlog.state",
        "written once a minute: an older recovery point is as good",
    ),
    (WRITING, "-checkpoint", "the same in a log dir"),
    (
        &[Call::SyncDirectory],
        "orders-0",
        "the same, where the directory could not be opened",
    ),
    (
        READING,
        ".log",
        "a clean mark or a durable part that nothing is known of counts as none",
    ),
    (
        &[Call::Stat],
        ".kafka_cleanshutdown",
        "the log counts as not closed",
    ),
    (
        &[Call::Stat],
        "-checkpoint",
        "a reader looks whether it has changed, and takes it for changed",
    ),
    (
        &[Call::Stat],
        "orders-0",
        "the same; and a directory that seems to be missing is made, which finds it",
    ),
    (&[Call::Stat], "/logs", "the same"),
    (&[Call::Stat], "/sim", "the same"),
    (
        &[Call::Stat],
        ".snapshot",
        "an empty one would say that there is nothing to look for: it is looked for",
    ),
    (
        &[Call::Unlink],
        "",
        "what is not wanted any more: the next opening removes it",
    ),
];
const READING: &[Call] = &[Call::Open, Call::Read, Call::Stat];
const WRITING: &[Call] = &[Call::Create, Call::Write, Call::Sync, Call::Rename];

/// The name of a file without that of its state.
fn live(path: &str) -> &str {
    let states = [".tmp", ".deleted", ".swap", ".cleaned"];
    let state = states
        .into_iter()
        .find_map(|state| path.strip_suffix(state));
    state.unwrap_or(path)
}

/// Each error is told once, by its number and the path; those that a later call runs into say what was first.
fn check_told(plan: &Plan, failed: &[Failed], errors: &[Error]) -> Result<(), String> {
    let number = format!("(os error {})", plan.error);
    let is_first = |error: &&Error| matches!(error.kind(), ErrorKind::Io { source, .. } if source.raw_os_error() == Some(plan.error));
    let first: Vec<&Error> = errors.iter().filter(is_first).collect();
    let is_loop = |call| matches!(call, Call::Read | Call::Write);
    let [failed] = failed else {
        return Ok(());
    };
    if plan.short || plan.error == EINTR && is_loop(failed.call) {
        return match errors.first() {
            None => Ok(()),
            Some(error) => Err(format!("{failed:?} was no error, told as {error}")),
        };
    }
    if first.len() > 1 {
        return Err(format!("B3: {failed:?} was told more than once: {first:?}"));
    }
    // A file on its way is told as what it is or is to become; names as the directory or a file in it.
    let path = live(&failed.path);
    let is_at = |told: &Path| {
        told.to_str().is_some_and(|told| live(told) == path)
            || failed.call == Call::SyncDirectory && told.starts_with(path)
    };
    if let Some(told) = first.first() {
        return match told.path() {
            Some(at) if is_at(at) => Ok(()),
            at => Err(format!("B3: {failed:?} was told of {at:?}: {told}")),
        };
    }
    // What the background ran into is told by the next call.
    let later = |error: &Error| error.to_string().contains(&number);
    if errors.iter().any(later) {
        return Ok(());
    }
    let is_known = SWALLOWED
        .iter()
        .any(|(calls, end, _)| calls.contains(&failed.call) && path.ends_with(end));
    // Folders above the partition may be nobody's to list; other errors there are told.
    let is_above = plan.error == EACCES
        && failed.call == Call::List
        && Run::partition()
            .ancestors()
            .skip(1)
            .any(|above| above == Path::new(&failed.path));
    // Where retention finds no room for a name, it makes some and goes on.
    let is_mended = matches!(plan.error, ENOSPC | EDQUOT)
        && failed.call == Call::Rename
        && failed.path.ends_with(".deleted");
    if is_known || is_above || is_mended {
        return Ok(());
    }
    Err(format!(
        "B3: nobody was told of {:?} {}",
        failed.call,
        failed.path.rsplit('/').next().unwrap_or_default()
    ))
}

/// Runs a script over a disk that fails; says whether the call was reached.
fn inject(script: &Script, plan: &Plan, depth: Depth) -> Result<bool, String> {
    let sim = SimDisk::new(fresh(script));
    let faults = FaultDisk::over(&sim, plan.clone());
    let mut run = Run::new(script, sim.clone(), Arc::new(faults.clone()));
    let mut errors = Vec::new();
    let said = |errors: &[Error]| {
        let words = errors.iter().map(|error| format!(" / {error}"));
        words.collect::<String>()
    };
    let mut steps = script.steps.iter();
    let mut done = run.open();
    loop {
        errors.extend(done.err());
        if let Some(broken) = &run.broken {
            return Err(format!("{broken}\n  the engine said{}", said(&errors)));
        }
        let Some(&step) = steps.next() else { break };
        done = run.step(step);
    }
    run.settle();
    let failed = faults.failed();
    faults.set(Plan::none());
    if let Some(log) = run.log.take() {
        if !failed.is_empty() && errors.is_empty() {
            errors.extend(log.flush().err());
        }
        log.abandon();
    }
    check_told(plan, &failed, &errors)
        .map_err(|error| format!("{error}\n  the engine said{}", said(&errors)))?;
    let (files, locks) = (sim.open_files(), sim.held_locks());
    if files + locks > 0 {
        return Err(format!(
            "F14: {files} files and {locks} locks left{}",
            said(&errors)
        ));
    }
    let world = sim
        .world()
        .crash(Cut::Process, script.fill, &mut fastrand::Rng::with_seed(1));
    crashed(&world, &run.model, End::Process, script, depth)
        .map_err(|error| format!("{error}\n  the engine said{}", said(&errors)))?;
    Ok(!failed.is_empty())
}

#[test]
fn a_call_that_fails_does_no_lasting_damage_and_says_so_once() {
    // Fewer scripts in a quick look, in a soak more, which are drawn.
    let count = scaled(SCRIPTS.len());
    let floor = if count < SCRIPTS.len() { 1 } else { 15_000 };
    let mut row = Row::begin(8, "errors", "error at every call", "injections", floor);
    let mut rng = fastrand::Rng::with_seed(row.seed);
    let mut failures = Failures::default();
    for number in 0..count {
        let script = script(number).unwrap_or_else(|| Script::random(&mut rng));
        for lasting in [Lasting::Once, Lasting::FromThenOn] {
            for nth in 1.. {
                let mut reached = false;
                for (slot, (name, error, half, short)) in FAULTS.into_iter().enumerate() {
                    // An interruption that lasts for ever is waited for for ever.
                    if slot >= ALWAYS && rng.u8(0..8) > 0
                        || error == EINTR && lasting != Lasting::Once
                    {
                        continue;
                    }
                    let plan = Plan {
                        nth,
                        lasting,
                        error,
                        half,
                        short,
                        ..Plan::none()
                    };
                    let depth = if rng.u8(0..4) == 0 {
                        Depth::GoesOn
                    } else {
                        Depth::Found
                    };
                    match inject(&script, &plan, depth) {
                        Ok(failed) => reached |= failed,
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
    row.end(&"");
}
