//! Crashes of a script, at each change of the disk.

use crate::check::{Depth, Seen, crashed};
use crate::model::End;
use crate::run::{Run, fresh};
use crate::script::Script;
use crate::sim::Cut;

/// States of one script.
const STATES: usize = 60;

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
