//! Crashes of a script, at each change of the disk.

use crate::check::{Depth, Seen, check_recovered, crashed, open};
use crate::model::End;
use crate::run::{Run, fresh};
use crate::script::Script;
use crate::sim::{Cut, World};

/// States of one script.
const STATES: usize = 60;
/// Crashes of one script whose recovery is crashed too.
const CRASHES: usize = 12;

/// Runs a script, and crashes at each change in `per_change` ways, or at random changes so that there are about `STATES`.
///
/// # Errors
/// What does not hold, in words.
pub fn crash_script(
    script: &Script,
    seed: u64,
    per_change: Option<usize>,
) -> Result<(usize, Seen), String> {
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
            let depth = Depth::random(&mut rng);
            let found =
                crashed(&image, run.model_at(count), end, script, depth).map_err(|error| {
                    format!(
                        "after {count} of {} changes, {cut:?}: {error}",
                        changes.len()
                    )
                })?;
            seen.add(found);
            states += 1;
        }
    }
    if let Some(log) = &run.log {
        log.abandon();
    }
    Ok((states, seen))
}

fn cut(rng: &mut fastrand::Rng) -> Cut {
    match rng.u8(0..4) {
        0 => Cut::Process,
        1 => Cut::Nothing,
        _ => Cut::Random,
    }
}

/// Runs a script, loses power at random changes, and again while the log is recovered, up to three times. How many states that made.
///
/// # Errors
/// What does not hold, in words.
///
/// # Panics
/// If the script closed its log for good.
pub fn crash_recovery(script: &Script, rng: &mut fastrand::Rng) -> Result<usize, String> {
    let run = Run::whole(script)?;
    let changes = run.sim.recorded();
    run.log.as_ref().expect("a log").abandon();
    let mut at: Vec<usize> = (0..CRASHES).map(|_| rng.usize(..=changes.len())).collect();
    at.sort_unstable();
    let mut world = fresh(script);
    let mut applied = 0;
    let mut states = 0;
    for count in at {
        for change in &changes[applied..count] {
            world.apply(change);
        }
        applied = count;
        let model = run.model_at(count);
        let mut image = world.crash(Cut::Random, script.fill, rng);
        let mut is_settled = true;
        let mut held = Vec::new();
        for depth in 2..=3 {
            let place = |error: String| {
                format!(
                    "after {count} of {} changes, {depth} deep: {error}",
                    changes.len()
                )
            };
            let recovered = open(&image, script).map_err(place)?;
            let direct = check_recovered(&recovered, model, End::Power).map_err(place)?;
            if is_settled {
                held.clone_from(&direct);
            }
            let steps = recovered.disk.recorded();
            recovered.log.abandon();
            drop(recovered);
            if steps.is_empty() {
                break;
            }
            let mut second: World = image.clone();
            for change in &steps[..rng.usize(..=steps.len())] {
                second.apply(change);
            }
            let cut = cut(rng);
            image = second.crash(cut, script.fill, rng);
            let again = open(&image, script).map_err(place)?;
            let found = check_recovered(&again, model, End::Power).map_err(place)?;
            again.log.abandon();
            // What a recovery that was killed cut off in the system's memory only is back when power is lost, and what stands behind
            // it goes as at first: then what the last loss of power left is all that must stay.
            let least = if cut == Cut::Process { &direct } else { &held };
            if !found.starts_with(least) {
                return Err(place(format!(
                    "F9: {found:?} found after {cut:?}, {least:?} without this crash"
                )));
            }
            is_settled = cut != Cut::Process;
            states += 1;
        }
        crashed(&image, model, End::Power, script, Depth::Repeated)
            .map_err(|error| format!("after {count} of {} changes: {error}", changes.len()))?;
    }
    Ok(states)
}

/// The shortest script that still fails, and how.
#[must_use]
pub fn shrink(mut script: Script, seed: u64, mut error: String) -> (Script, String) {
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
