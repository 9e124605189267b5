//! Row 3: power is lost again while a log is being recovered, up to three times.
use offsetlog_faults::check::{Depth, check_recovered, crashed, open};
use offsetlog_faults::model::End;
use offsetlog_faults::report::{Failures, Row, replayed, scaled};
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, World};

/// Crashes of one script.
const CRASHES: usize = 12;

fn cut(rng: &mut fastrand::Rng) -> Cut {
    match rng.u8(0..4) {
        0 => Cut::Process,
        1 => Cut::Nothing,
        _ => Cut::Random,
    }
}

fn crash_script(script: &Script, rng: &mut fastrand::Rng) -> Result<usize, String> {
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
        for depth in 2..=3 {
            let place = |error: String| {
                format!(
                    "after {count} of {} changes, {depth} deep: {error}",
                    changes.len()
                )
            };
            let recovered = open(&image, script).map_err(place)?;
            let direct = check_recovered(&recovered, model, End::Power).map_err(place)?;
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
            image = second.crash(cut(rng), script.fill, rng);
            let again = open(&image, script).map_err(place)?;
            let found = check_recovered(&again, model, End::Power).map_err(place)?;
            again.log.abandon();
            if !found.starts_with(&direct) {
                return Err(place(format!(
                    "F9: {found:?} found, {direct:?} without the second crash"
                )));
            }
            states += 1;
        }
        crashed(&image, model, End::Power, script, Depth::Repeated)
            .map_err(|error| format!("after {count} of {} changes: {error}", changes.len()))?;
    }
    Ok(states)
}

#[test]
fn a_crash_in_recovery_loses_nothing_more() {
    let mut row = Row::begin(
        3,
        "crash-in-recovery",
        "crash during recovery",
        "states",
        scaled(5_000),
    );
    let mut failures = Failures::default();
    let mut seeds = fastrand::Rng::with_seed(row.seed);
    while row.goes_on() {
        let seed = replayed().unwrap_or_else(|| seeds.u64(..));
        let mut rng = fastrand::Rng::with_seed(seed);
        let script = Script::random(&mut rng);
        match crash_script(&script, &mut rng.clone()) {
            Ok(states) => row.count(states),
            Err(error) => {
                row.count(1);
                if failures.note(seed, &script, &error) {
                    let mut shorter = script;
                    let mut slot = shorter.steps.len();
                    while slot > 0 {
                        slot -= 1;
                        let trial = shorter.without(slot);
                        if let Some(error) = (0..20).find_map(|other| {
                            crash_script(&trial, &mut fastrand::Rng::with_seed(other)).err()
                        }) {
                            failures.note(seed, &trial, &error);
                            shorter = trial;
                        }
                    }
                }
            }
        }
        if replayed().is_some() {
            break;
        }
    }
    failures.end("row-03");
    row.end(&"");
}
