//! Fetch sessions that a server keeps wrong: a client that is told nothing of a partition takes it as unchanged.

use super::logic::{Asks, Fetch, Fetched, int, structs};
use offsetlog::Isolation::ReadUncommitted;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::apis;

/// What an answer tells of partitions.
pub fn partitions(response: &Struct<'_>) -> Vec<Fetched> {
    let topics = structs(response, "responses").into_iter();
    let all = topics.flat_map(|topic| structs(&topic, "partitions"));
    all.map(|each| Fetched::of(&each)).collect()
}

pub fn sessions_tell_what_changed(client: &mut dyn Asks) {
    // By name, and by id; and a version of the other kind.
    for (version, other) in [(7, 13), (12, 16), (13, 12), (14, 12), (15, 7), (16, 12)] {
        session_in_version(client, version, other);
    }
}

fn session_in_version(client: &mut dyn Asks, version: i16, other: i16) {
    let (topic_id, _) = client.metadata("g-plain");
    let (_, _, end, _) = client.offset(("g-plain", 0), -1, ReadUncommitted);
    let mut fetch = Fetch {
        version,
        topic_id,
        ..Fetch::new("g-plain", 0, end)
    };
    fetch.session = (0, 0);
    let response = client.call(&apis::FETCH, version, &fetch.request());
    let id = int(&response, "sessionId") as i32;
    assert!(id > 0);
    assert_eq!(partitions(&response).len(), 1, "the first answer is whole");
    // Nothing new: nothing is told.
    fetch.session = (id, 1);
    let response = client.call(&apis::FETCH, version, &fetch.frame());
    assert_eq!(int(&response, "sessionId"), i64::from(id));
    assert_eq!(partitions(&response).len(), 0);
    // The epoch of before, and one too far.
    for epoch in [1, 3] {
        fetch.session = (id, epoch);
        let response = client.call(&apis::FETCH, version, &fetch.frame());
        assert_eq!(int(&response, "errorCode"), 71);
    }
    // Another offset of the same partition, and another partition.
    fetch.session = (id, 2);
    fetch.offset = 0;
    let response = client.call(&apis::FETCH, version, &fetch.request());
    let told = partitions(&response);
    assert_eq!(told.len(), 1);
    assert!(!told[0].bytes().is_empty());
    // An error is told again and again, and its end too.
    fetch.session = (id, 3);
    fetch.offset = 1 << 40;
    let response = client.call(&apis::FETCH, version, &fetch.request());
    assert_eq!(partitions(&response)[0].error, 1);
    fetch.session = (id, 4);
    let response = client.call(&apis::FETCH, version, &fetch.frame());
    assert_eq!(partitions(&response)[0].error, 1);
    fetch.session = (id, 5);
    fetch.offset = end;
    let response = client.call(&apis::FETCH, version, &fetch.request());
    assert_eq!(partitions(&response)[0].error, 0);
    // Ids where there were names, or the other way.
    fetch.session = (id, 6);
    let response = client.call(&apis::FETCH, other, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 106);
    // Forgotten: the session is empty, and ends.
    let forgotten = Struct::new().with("partitions", vec![0]);
    let forgotten = if version >= 13 {
        forgotten.with("topicId", topic_id)
    } else {
        forgotten.with("topic", "g-plain")
    };
    let request = fetch.frame().with("forgottenTopicsData", vec![forgotten]);
    let response = client.call(&apis::FETCH, version, &request);
    assert_eq!(int(&response, "errorCode"), 0);
    assert_eq!(int(&response, "sessionId"), 0);
    fetch.session = (id, 7);
    let response = client.call(&apis::FETCH, version, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 70);
    // One that its client closes, and one that never was.
    fetch.session = (0, 0);
    let response = client.call(&apis::FETCH, version, &fetch.request());
    let closed = int(&response, "sessionId") as i32;
    assert!(closed > 0 && closed != id);
    fetch.session = (closed, -1);
    let response = client.call(&apis::FETCH, version, &fetch.request());
    assert_eq!(int(&response, "sessionId"), 0);
    assert_eq!(
        partitions(&response).len(),
        1,
        "it is a fetch without a session"
    );
    let unknown = closed.checked_add(1 << 20).unwrap_or(1);
    for session in [(closed, 1), (unknown, 1)] {
        fetch.session = session;
        let response = client.call(&apis::FETCH, version, &fetch.frame());
        assert_eq!(int(&response, "errorCode"), 70);
        assert_eq!(int(&response, "sessionId"), 0);
    }
}
