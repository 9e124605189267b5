//! A bug under the lock of all groups.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bug behind an answer: who has it is told all the same.
#[test]
fn an_answer_is_announced_also_by_a_change_that_panics() {
    let announced = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&announced);
    let count = || announced.load(Ordering::Relaxed);
    let offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let coordinator = Coordinator::new(CoordinatorOptions::default(), offsets, 0, move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let context = Context {
        client_id: "client",
        client_host: "/127.0.0.1",
        connection_id: 1,
    };
    let request = Struct::new()
        .with("groupId", "group")
        .with("sessionTimeoutMs", 10_000)
        .with("rebalanceTimeoutMs", 60_000)
        .with("memberId", "")
        .with("protocolType", "consumer")
        .with("protocols", vec![Struct::new().with("name", "range")]);
    let Answer::Wait { ticket, .. } =
        coordinator.handle(apis::JOIN_GROUP.key, 3, &request, &context, 0)
    else {
        panic!("it waits for more members");
    };
    let before = count();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        coordinator.change(|state| {
            state.tick_group("group", 3000);
            panic!("planted");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(count(), before + 1);
    let answer = coordinator.poll(ticket, 3000);
    assert!(matches!(answer, Answer::Reply(_)), "{answer:?}");
}
