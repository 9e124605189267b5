//! Row 2: every script of up to three steps, a loss of power after every change, every subset of up to eight cached writes.
use offsetlog_faults::check::{Depth, crashed};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row, variable};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, World};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Two batches, of which the second rolls; one that fits behind; a truncation into the second batch.
const STEPS: [&str; 8] = [
    "append 2 16",
    "flush",
    "roll",
    "truncate 2",
    "delete 1",
    "checkpoint",
    "close",
    "kill",
];
const SUBSET_BITS: usize = 8;

fn scripts(length: usize) -> Vec<String> {
    if length == 0 {
        return vec![String::new()];
    }
    let shorter = scripts(length - 1);
    let longest = shorter
        .iter()
        .filter(|script| script.matches(';').count() == length - 1);
    let more = longest.flat_map(|script| STEPS.map(|step| format!("{script} {step};")));
    shorter.iter().cloned().chain(more).collect()
}

fn fingerprint(world: &World, model: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, bytes) in world.files() {
        (path, bytes).hash(&mut hasher);
    }
    format!("{model:?}").hash(&mut hasher);
    hasher.finish()
}

/// Crashes at each change, in all ways.
fn crash_everywhere(script: &Script, seen: &mut HashSet<u64>) -> Result<usize, String> {
    let run = Run::whole(script)?;
    run.log.as_ref().expect("a log").abandon();
    let changes = run.sim.recorded();
    let mut world = fresh(script);
    let mut rng = fastrand::Rng::with_seed(1);
    for count in 0..=changes.len() {
        if count > 0 {
            world.apply(&changes[count - 1]);
        }
        let model = run.model_at(count);
        let model_text = model;
        let writes = world.unsynced_writes();
        let bits = writes.min(SUBSET_BITS);
        // Older ones all or none.
        let olders: &[u64] = if writes > bits { &[0, u64::MAX] } else { &[0] };
        let mut cuts = vec![(Cut::Process, End::Process)];
        for names in 0..=world.unsynced_names() {
            for older in olders {
                for subset in 0..1_u64 << bits {
                    let shift = writes - bits;
                    let low = older & ((1_u64 << shift.min(63)) - 1);
                    let cut = Cut::Subset {
                        writes: subset << shift | low,
                        names,
                    };
                    cuts.push((cut, End::Power));
                }
            }
        }
        for (cut, end) in cuts {
            let image = world.crash(cut, script.fill, &mut rng);
            if seen.insert(fingerprint(&image, &(model_text, end))) {
                crashed(&image, model, end, script, Depth::random(&mut rng)).map_err(|error| {
                    format!(
                        "after {count} of {} changes, {cut:?}: {error}",
                        changes.len()
                    )
                })?;
            }
        }
    }
    Ok(changes.len() + 1)
}

#[test]
fn no_short_script_is_harmed() {
    let length = variable("OFFSETLOG_STEPS").unwrap_or(3);
    let floor = if length == 3 { 585 } else { 1 };
    let mut row = Row::begin(2, "exhaustive", "every short script", "scripts", floor);
    let mut failures = Failures::default();
    let mut seen = HashSet::new();
    let mut points = 0;
    for steps in scripts(length) {
        let head = format!(
            "strict=false stale=false log_dir=false segment=600 index=24 interval=0 preallocate=false late=true:{steps}"
        );
        let script: Script = head.parse().expect("a script");
        match crash_everywhere(&script, &mut seen) {
            Ok(found) => points += found,
            Err(error) => drop(failures.note(0, &script, &error)),
        }
        row.count(1);
    }
    failures.end("row-02");
    row.end(&format!(
        "{points} crash points, {} different states",
        seen.len()
    ));
}
