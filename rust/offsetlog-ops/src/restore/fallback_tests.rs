//! What becomes of a partition whose best replica fails while it is read.

use super::proof::failing;
use super::*;
use offsetlog_faults::fault::{Call, Lasting, Plan};

/// Fails what is done to the replica `one`, from the `nth` call on.
fn of_one(nth: u64) -> Plan {
    Plan {
        kinds: |call, path| is_reading(call) && path.contains("/one/orders-0"),
        nth,
        lasting: Lasting::FromThenOn,
        ..Plan::none()
    }
}

fn is_reading(call: Call) -> bool {
    matches!(call, Call::Read | Call::Open | Call::Stat | Call::List)
}

impl Place {
    /// A plan of `one` and `two`, in this order.
    fn plan_into(&self, into: &str, how: &RestoreOptions, options: &OpenOptions) -> RestorePlan {
        let sources = ["one", "two"].map(|each| self.0.path().join(each));
        RestorePlan::make(&sources, &[self.0.path().join(into)], how, options).unwrap()
    }
}

/// Two replicas of which no record is the same; the first has more.
fn that_differ() -> Place {
    let place = Place::new();
    place.append("one", 6, "value", 1);
    place.append("two", 4, "else", 0);
    place
}

fn state(plan: &RestorePlan) -> &PartitionState {
    &plan.partitions[0].state
}

fn is_told(plan: &RestorePlan) -> bool {
    let of_one =
        |text: &str| text.contains("failed while it was read") && text.contains("os error 5");
    let each = &plan.partitions[0];
    plan.warnings
        .iter()
        .any(|warning| of_one(warning) && warning.contains("/one/orders-0"))
        && each
            .other_replicas
            .iter()
            .any(|(path, less)| replica_of(path) == "one" && of_one(less))
}

#[test]
fn where_the_best_replica_fails_the_next_one_is_restored_whole() {
    let place = that_differ();
    for nth in 1.. {
        let (disk, options) = failing();
        let new = format!("new-{nth}");
        let mut plan = place.plan_into(&new, &RestoreOptions::default(), &options);
        plan.partitions[0].leader_epoch_max = Some(0);
        disk.set(of_one(nth));
        plan.run(None).unwrap();
        assert!(
            matches!(state(&plan), PartitionState::Restored(_)),
            "{nth}: {:?}",
            state(&plan)
        );
        let each = &plan.partitions[0];
        let taken = replica_of(&each.source);
        assert_eq!(place.rows(&new), place.rows(&taken), "{nth}");
        if disk.failed().is_empty() {
            assert_eq!((taken.as_str(), plan.has_losses()), ("one", false));
            assert!(nth > 3, "{nth}");
            break;
        }
        // Beside the log may be what can be done without.
        if taken == "two" {
            assert!(is_told(&plan), "{nth}: {:?}", plan.warnings);
            assert!(plan.has_losses(), "{nth}");
            assert_eq!(
                (each.log_end_offset, each.leader_epoch),
                (Some(12), Some(0))
            );
            // Its epochs are those of the cluster already.
            assert_eq!(each.leader_epoch_max, None);
            assert_eq!(each.state.report().unwrap().source, each.source);
        }
    }
}

#[test]
fn a_call_that_fails_once_is_no_reason_to_mix_replicas() {
    let place = that_differ();
    for nth in 1.. {
        let (disk, options) = failing();
        let new = format!("new-{nth}");
        let mut plan = place.plan_into(&new, &RestoreOptions::default(), &options);
        disk.set(Plan {
            lasting: Lasting::Once,
            ..of_one(nth)
        });
        plan.run(None).unwrap();
        let taken = replica_of(&plan.partitions[0].source);
        assert_eq!(place.rows(&new), place.rows(&taken), "{nth}");
        assert_eq!(taken == "two", is_told(&plan), "{nth}");
        if disk.failed().is_empty() {
            break;
        }
    }
}

/// Fails to open what the two replicas have, as a process does that has as many files as it may.
fn without_descriptors(nth: u64, lasting: Lasting, error: i32) -> Plan {
    Plan {
        kinds: |call, path| {
            matches!(call, Call::Open | Call::List)
                && (path.contains("/one/orders-0") || path.contains("/two/orders-0"))
        },
        lasting,
        error,
        ..of_one(nth)
    }
}

/// It says nothing of a replica: the call ends, or takes the best one all the same.
#[test]
fn too_few_descriptors_choose_no_replica() {
    let with_a_hole = Place::new();
    with_a_hole.append("two", 5, "value", 0);
    with_a_hole.copy("two", "one");
    with_a_hole.roll("one");
    with_a_hole.append("one", 2, "value", 0);
    with_a_hole.damage("one", &[3]);
    for (number, place) in [that_differ(), with_a_hole].iter().enumerate() {
        place
            .plan_into("whole", &RestoreOptions::default(), &OpenOptions::default())
            .run(None)
            .unwrap();
        for (lasting, error) in [
            (Lasting::Once, 24),
            (Lasting::FromThenOn, 24),
            (Lasting::FromThenOn, 23),
        ] {
            for nth in 1.. {
                let (disk, options) = failing();
                disk.set(without_descriptors(nth, lasting, error));
                let sources = ["one", "two"].map(|each| place.0.path().join(each));
                let new = format!("new-{lasting:?}-{error}-{nth}");
                let into = [place.0.path().join(&new)];
                let how = RestoreOptions::default();
                let made = RestorePlan::make(&sources, &into, &how, &options);
                let done = made.and_then(|mut plan| plan.run(None).map(|()| plan));
                let has_failed = !disk.failed().is_empty();
                disk.set(Plan::none());
                match done {
                    Ok(plan) => {
                        let each = &plan.partitions[0];
                        assert!(
                            matches!(each.state, PartitionState::Restored(_)),
                            "{number} {new}: {:?}",
                            each.state
                        );
                        assert_eq!(replica_of(&each.source), "one", "{number} {new}");
                        assert_eq!(place.rows(&new), place.rows("whole"), "{number} {new}");
                    }
                    Err(error) => assert!(
                        error.is_of_process() && has_failed,
                        "{number} {new}: {error}"
                    ),
                }
                if !has_failed {
                    assert!(nth > 6, "{nth}");
                    break;
                }
            }
        }
    }
}

#[test]
fn of_equal_replicas_the_other_one_loses_nothing() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.copy("one", "two");
    let (disk, options) = failing();
    let mut plan = place.plan_into("new", &RestoreOptions::default(), &options);
    disk.set(of_one(1));
    plan.run(None).unwrap();
    assert_eq!(replica_of(&plan.partitions[0].source), "two");
    assert_eq!(place.rows("new"), place.rows("one"));
    assert!(is_told(&plan) && !plan.has_losses());
}

#[test]
fn up_to_an_offset_that_the_other_one_has_nothing_is_lost() {
    let place = Place::new();
    place.append("two", 4, "value", 0);
    place.copy("two", "one");
    place.append("one", 2, "value", 0);
    let key = TopicPartition {
        topic: "orders".to_owned(),
        partition: 0,
    };
    for (end, has_losses) in [(7, false), (14, true)] {
        let (disk, options) = failing();
        let how = RestoreOptions {
            ends: [(key.clone(), end)].into(),
            ..RestoreOptions::default()
        };
        let new = format!("new-{end}");
        let mut plan = place.plan_into(&new, &how, &options);
        disk.set(of_one(1));
        plan.run(None).unwrap();
        assert_eq!(replica_of(&plan.partitions[0].source), "two");
        assert_eq!(place.offsets(&new), (0..end.min(12)).collect::<Vec<_>>());
        assert_eq!(plan.has_losses(), has_losses, "{end}");
    }
}

#[test]
fn a_second_call_finds_what_the_next_replica_gave() {
    let place = that_differ();
    let how = RestoreOptions::default();
    let (disk, options) = failing();
    let mut plan = place.plan_into("new", &how, &options);
    disk.set(of_one(1));
    plan.run(None).unwrap();
    assert_eq!(place.rows("new"), place.rows("two"));
    for nth in 1.. {
        let (disk, options) = failing();
        let mut plan = place.plan_into("new", &how, &options);
        disk.set(of_one(nth));
        plan.run(None).unwrap();
        assert_eq!(place.rows("new"), place.rows("two"), "{nth}");
        let failed = disk.failed();
        match state(&plan) {
            PartitionState::There(_) => assert!(is_told(&plan) && plan.has_losses(), "{nth}"),
            PartitionState::Failed(error) => {
                // The best one can be read again, and has more.
                assert!(error.to_string().contains("move it away"), "{nth}: {error}");
                assert!(nth > 3, "{nth}: {failed:?}");
            }
            state => panic!("{nth}: {state:?}"),
        }
        if failed.is_empty() {
            assert!(matches!(state(&plan), PartitionState::Failed(_)));
            break;
        }
    }
}

#[test]
fn what_was_restored_of_the_best_replica_is_not_put_beside_the_next_one() {
    let place = that_differ();
    // Of two brokers, the second one's replica is not there yet.
    let second = place.of("second");
    for nth in 1.. {
        let (disk, options) = failing();
        let new = format!("new-{nth}");
        let mut plan = place.plan_into(&new, &RestoreOptions::default(), &options);
        plan.partitions[0].into.push((None, second.clone()));
        disk.set(of_one(nth));
        plan.run(None).unwrap();
        let is_whole = disk.failed().is_empty();
        match state(&plan) {
            PartitionState::Restored(_) => {
                assert_eq!(place.rows(&new), place.rows("second"), "{nth}");
            }
            PartitionState::Failed(error) => {
                assert!(error.to_string().contains("move it away"), "{nth}: {error}");
                assert!(is_told(&plan) && !second.exists(), "{nth}");
            }
            state => panic!("{nth}: {state:?}"),
        }
        if is_whole {
            assert_eq!(place.rows("second"), place.rows("one"));
            break;
        }
        drop(fs::remove_dir_all(&second));
    }
}

#[test]
fn where_all_replicas_fail_all_are_told() {
    let place = that_differ();
    let (disk, options) = failing();
    let mut plan = place.plan_into("new", &RestoreOptions::default(), &options);
    disk.set(Plan {
        kinds: |call, path| {
            is_reading(call) && (path.contains("/one/orders-0") || path.contains("/two/orders-0"))
        },
        ..of_one(1)
    });
    plan.run(None).unwrap();
    let reason = state(&plan).reason().unwrap();
    let told = [plan.warnings.as_slice(), &[reason]].concat().join("; ");
    for replica in ["one/orders-0", "two/orders-0"] {
        assert!(told.contains(replica), "{told}");
    }
    assert!(!place.of("new").exists());
}

#[test]
fn a_target_that_fails_is_no_replica_that_fails() {
    let place = that_differ();
    for nth in 1..40 {
        let (disk, options) = failing();
        let new = format!("new-{nth}");
        let mut plan = place.plan_into(&new, &RestoreOptions::default(), &options);
        disk.set(Plan {
            kinds: |call, path| path.contains("/new-") && call != Call::Lock,
            error: 28,
            ..of_one(nth)
        });
        drop(plan.run(None));
        assert_eq!(replica_of(&plan.partitions[0].source), "one", "{nth}");
        assert!(!is_told(&plan), "{nth}");
    }
}

#[test]
fn a_limit_is_the_callers_and_no_reason_to_take_less() {
    let place = Place::new();
    place.append("two", 2, "value", 0);
    place.copy("two", "one");
    let mut options = OpenOptions::default();
    let log = LogWriter::open(place.of("one"), &options, &WriteOptions::default()).unwrap();
    let mut batch = BatchBuilder::default();
    let headers = [(b"a".as_slice(), Some(b"1".as_slice())), (b"b", None)];
    batch.push(1, None, None, &headers).unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
    log.close().unwrap();
    options.limits.max_headers = 1;
    let mut plan = place.plan_into("new", &RestoreOptions::default(), &options);
    plan.run(None).unwrap();
    let reason = state(&plan).reason().unwrap();
    assert!(reason.contains("max_headers"), "{reason}");
    assert!(!place.of("new").exists());
}

#[test]
fn a_best_replica_that_fails_while_the_plan_is_made_is_left_out() {
    let place = that_differ();
    // The search for a time reads records; those of a batch have one.
    let how = RestoreOptions {
        until: Some(1_700_000_000_007),
        ..RestoreOptions::default()
    };
    for nth in 1.. {
        let (disk, options) = failing();
        let new = format!("new-{nth}");
        disk.set(of_one(nth));
        let mut plan = place.plan_into(&new, &how, &options);
        let is_whole = disk.failed().is_empty();
        disk.set(Plan::none());
        let taken = replica_of(&plan.partitions[0].source);
        assert!(
            is_whole || taken == "one" || !plan.warnings.is_empty(),
            "{nth}"
        );
        plan.run(None).unwrap();
        assert!(
            matches!(state(&plan), PartitionState::Restored(_)),
            "{nth}: {:?}",
            state(&plan)
        );
        assert_eq!(place.rows(&new), place.rows(&taken)[..9], "{nth}");
        if is_whole {
            assert_eq!(taken, "one");
            assert!(nth > 3);
            break;
        }
    }
}

/// What it has is unknown: the exit status shows that too, and so does a second call.
#[test]
fn a_replica_that_cannot_be_opened_may_have_more() {
    let place = that_differ();
    for call in 1..=2 {
        let (disk, options) = failing();
        disk.set(Plan {
            kinds: |call, path| is_reading(call) && path.contains("/one/orders-0/"),
            ..of_one(1)
        });
        let mut plan = place.plan_into("new", &RestoreOptions::default(), &options);
        plan.run(None).unwrap();
        assert!(!disk.failed().is_empty());
        assert_eq!(replica_of(&plan.partitions[0].source), "two");
        assert_eq!(place.rows("new"), place.rows("two"));
        let is_there = matches!(state(&plan), PartitionState::There(_));
        assert_eq!(is_there, call == 2, "{:?}", state(&plan));
        let others = &plan.partitions[0].other_replicas;
        assert!(
            others.iter().any(|(path, less)| replica_of(path) == "one"
                && less.starts_with("cannot be opened, and may have more")),
            "{others:?}"
        );
        assert!(plan.has_losses());
    }
}

#[test]
fn settings_that_cannot_be_read_are_told() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.copy("one", "two");
    for each in ["one", "two"] {
        std::fs::write(place.of(each).join(".offsetlog.config"), b"\x00\xff").unwrap();
    }
    let options = OpenOptions::default();
    let mut plan = place.plan_into("new", &RestoreOptions::default(), &options);
    plan.run(None).unwrap();
    assert_eq!(place.rows("new"), place.rows("one"));
    let told = plan.warnings.iter().any(|warning| {
        warning.contains("one/orders-0: its settings cannot be read, and are not restored")
    });
    assert!(told, "{:?}", plan.warnings);
}
