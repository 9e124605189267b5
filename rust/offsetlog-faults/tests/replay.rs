//! Runs one case again and tells what happens: `OFFSETLOG_CASE="<script>" OFFSETLOG_SEED=<crash seed>`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test"
)]

use offsetlog_faults::crash::crash_script;
use offsetlog_faults::report::replayed;
use offsetlog_faults::run::Run;
use offsetlog_faults::script::Script;

#[test]
fn a_case_given_by_hand() {
    let Ok(line) = std::env::var("OFFSETLOG_CASE") else {
        return;
    };
    let script: Script = line.parse().expect("a script");
    let run = Run::whole(&script).expect("the script runs");
    for (number, change) in run.sim.recorded().iter().enumerate() {
        let text = format!("{change:?}");
        eprintln!(
            "{:4} {}",
            number + 1,
            text.chars().take(150).collect::<String>()
        );
    }
    let outcome = crash_script(&script, replayed().unwrap_or(1), Some(8));
    outcome.expect("no crash does harm");
}
