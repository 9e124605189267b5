//! Row 1: power is lost at any change of the disk, in any state that the rules of the simulated disk allow.
use offsetlog_faults::check::Seen;
use offsetlog_faults::crash::{crash_script, shrink};
use offsetlog_faults::report::{Failures, Row, replayed, scaled};
use offsetlog_faults::script::Script;

#[test]
fn power_loss_leaves_a_prefix() {
    let mut row = Row::begin(
        1,
        "power-loss",
        "power loss, all legal states",
        "states",
        scaled(20_000),
    );
    let mut seen = Seen::default();
    let mut failures = Failures::default();
    for line in include_str!("../../regressions/scripts.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
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
