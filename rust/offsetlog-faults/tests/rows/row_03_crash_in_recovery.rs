//! Row 3: power is lost again while a log is being recovered, up to three times.
use offsetlog_faults::crash::crash_recovery;
use offsetlog_faults::report::{Failures, Row, replayed, scaled};
use offsetlog_faults::script::Script;

/// Scripts that once failed, with the seed of the crashes: run first. The line above says what was wrong.
const REGRESSIONS: [(&str, u64); 2] = [
    // A power loss behind a recovery that was killed took what only that one had shown: the row asked for too much.
    (PREALLOCATED, 538),
    (PREALLOCATED, 1_407),
];
const PREALLOCATED: &str = "strict=false stale=false log_dir=false segment=1500 index=96 interval=1000 preallocate=true late=false: \
    kill; append 1 37717; close; roll; append 5 34106;";

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
    let mut known = 0;
    for (line, seed) in REGRESSIONS {
        let script: Script = line.parse().expect("a script");
        match crash_recovery(&script, &mut fastrand::Rng::with_seed(seed)) {
            Ok(states) => known += states,
            Err(error) => drop(failures.note(seed, &script, &error)),
        }
    }
    let mut seeds = fastrand::Rng::with_seed(row.seed);
    while row.goes_on() {
        let seed = replayed().unwrap_or_else(|| seeds.u64(..));
        let mut rng = fastrand::Rng::with_seed(seed);
        let script = Script::random(&mut rng);
        match crash_recovery(&script, &mut rng.clone()) {
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
                            crash_recovery(&trial, &mut fastrand::Rng::with_seed(other)).err()
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
    row.count(known);
    row.end(&"");
}
