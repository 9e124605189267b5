//! Row 1: power is lost at any change of the disk, in any state that the rules of the simulated disk allow.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test"
)]

use offsetlog_faults::check::{Seen, crashed};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row, replayed};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::Cut;

/// States of one script.
const STATES: usize = 60;

/// Runs a script, and crashes at each change in `per_change` ways, or at random changes so that there are about [`STATES`].
fn crash_script(script: &Script, seed: u64, per_change: Option<usize>) -> Result<(usize, Seen), String> {
    let run = Run::whole(script)?;
    let changes = run.sim.recorded();
    let mut rng = fastrand::Rng::with_seed(seed);
    let odds = per_change.map_or_else(|| (STATES as f64 / changes.len() as f64).min(1.0), |_| 1.0);
    let mut world = fresh(script);
    let mut seen = Seen::default();
    let mut states = 0;
    for count in 0..=changes.len() {
        if count > 0 {
            world.apply(&changes[count - 1]);
        }
        if rng.f64() > odds {
            continue;
        }
        for _ in 0..per_change.unwrap_or(1) {
            let (cut, end) = match rng.u8(0..16) {
                0 => (Cut::Process, End::Process),
                1 => (Cut::Nothing, End::Power),
                _ => (Cut::Random, End::Power),
            };
            let image = world.crash(cut, script.fill, &mut rng);
            let deep = rng.u8(0..4) == 0;
            let found = crashed(&image, run.model_at(count), end, script, deep)
                .map_err(|error| format!("after {count} of {} changes, {cut:?}: {error}", changes.len()))?;
            seen.add(found);
            states += 1;
        }
    }
    if let Some(log) = &run.log {
        log.abandon();
    }
    Ok((states, seen))
}

/// The shortest script that still fails, and how.
fn shrink(mut script: Script, seed: u64, mut error: String) -> (Script, String) {
    'again: loop {
        for slot in (0..script.steps.len()).rev() {
            let shorter = script.without(slot);
            if let Err(other) = crash_script(&shorter, seed, Some(8)) {
                script = shorter;
                error = other;
                continue 'again;
            }
        }
        return (script, error);
    }
}

#[test]
fn power_loss_leaves_a_prefix() {
    let mut row = Row::begin(1, "power-loss", "power loss, all legal states", "states", 20_000);
    let mut seen = Seen::default();
    let mut failures = Failures::default();
    for line in include_str!("../regressions/scripts.txt").lines().filter(|line| !line.starts_with('#')) {
        let script: Script = line.parse().expect("a script");
        match crash_script(&script, 1, Some(8)) {
            Ok((states, found)) => {
                row.count(states);
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
    row.end(&format!("{seen:?}"));
}
