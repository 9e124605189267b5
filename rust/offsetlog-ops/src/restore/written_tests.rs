//! Tests silent write errors of a disk: a restore reads back every byte before the partition gets its name.

use super::proof::failing;
use super::*;
use offsetlog_faults::fault::{Call, Plan};

#[test]
fn a_byte_that_the_disk_wrote_wrong_is_noticed_before_the_partition_is_there() {
    let mut wrong = 0;
    for nth in 1.. {
        let place = Place::new();
        place.append("one", 6, "value", 0);
        let sources = [place.0.path().join("one")];
        let into = [place.0.path().join("new")];
        let (disk, options) = failing();
        let how = RestoreOptions::default();
        let mut plan = RestorePlan::make(&sources, &into, &how, &options).unwrap();
        disk.set(Plan {
            kinds: |call, path| {
                call == Call::Write && path.contains("/new") && path.ends_with("0.log")
            },
            nth,
            flips: true,
            ..Plan::none()
        });
        plan.run(None).unwrap();
        let state = &plan.partitions[0].state;
        if disk.failed().is_empty() {
            assert_eq!(state.name(), "restored");
            break;
        }
        wrong += 1;
        assert_eq!(state.name(), "failed", "{nth}");
        let reason = state.reason().unwrap();
        assert!(
            reason.contains("what was read back is not what was written"),
            "{reason}"
        );
        assert!(!place.of("new").exists(), "{nth}");
        // The disk is sound again.
        let options = OpenOptions::default();
        let mut again = RestorePlan::make(&sources, &into, &how, &options).unwrap();
        again.run(None).unwrap();
        assert_eq!(again.partitions[0].state.name(), "restored", "{nth}");
    }
    assert!(wrong > 0);
}
