//! Fetch sessions and long polling, by Kafka's rules.

use crate::client::{Client, Fetch, Fetched, NOW, clean, int, open, structs};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog_net::Step;
use offsetlog_net::server::{Broker, ServeOptions};

fn partitions(response: &Struct<'_>) -> Vec<(String, i64, Fetched)> {
    structs(response, "responses")
        .iter()
        .flat_map(|topic| {
            let name = topic
                .get("topic")
                .and_then(Value::as_str)
                .unwrap()
                .to_owned();
            structs(topic, "partitions").into_iter().map(move |each| {
                (
                    name.clone(),
                    int(&each, "partitionIndex"),
                    Fetched::of(&each),
                )
            })
        })
        .collect()
}

#[test]
fn a_session_tells_only_what_changed() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let (_, _, end, _) = client.offset(("g-plain", 0), -1, offsetlog::Isolation::ReadUncommitted);
    let mut fetch = Fetch::new("g-plain", 0, end);
    fetch.session = (0, 0);
    let response = client.call(&apis::FETCH, 12, &fetch.request());
    let id = int(&response, "sessionId") as i32;
    assert!(id > 0);
    assert_eq!(partitions(&response).len(), 1, "the first answer is whole");
    // Nothing new: nothing is told.
    fetch.session = (id, 1);
    let response = client.call(&apis::FETCH, 12, &fetch.frame());
    assert_eq!(int(&response, "sessionId"), i64::from(id));
    assert_eq!(partitions(&response).len(), 0);
    // The epoch of before, and one too far.
    for epoch in [1, 3] {
        fetch.session = (id, epoch);
        let response = client.call(&apis::FETCH, 12, &fetch.frame());
        assert_eq!(int(&response, "errorCode"), 71);
    }
    // Another offset of the same partition, and another partition.
    fetch.session = (id, 2);
    fetch.offset = 0;
    let response = client.call(&apis::FETCH, 12, &fetch.request());
    let told = partitions(&response);
    assert_eq!(told.len(), 1);
    assert!(!told[0].2.bytes().is_empty());
    // An error is told again and again, and its end too.
    fetch.session = (id, 3);
    fetch.offset = 1 << 40;
    let response = client.call(&apis::FETCH, 12, &fetch.request());
    assert_eq!(partitions(&response)[0].2.error, 1);
    fetch.session = (id, 4);
    let response = client.call(&apis::FETCH, 12, &fetch.frame());
    assert_eq!(partitions(&response)[0].2.error, 1);
    fetch.session = (id, 5);
    fetch.offset = end;
    let response = client.call(&apis::FETCH, 12, &fetch.request());
    assert_eq!(partitions(&response)[0].2.error, 0);
    // Ids where there were names.
    fetch.session = (id, 6);
    fetch.version = 13;
    let response = client.call(&apis::FETCH, 13, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 106);
    // Forgotten: the session is empty, and ends.
    fetch.version = 12;
    fetch.session = (id, 6);
    let forgotten = Struct::new()
        .with("topic", "g-plain")
        .with("partitions", vec![0]);
    let request = fetch.frame().with("forgottenTopicsData", vec![forgotten]);
    let response = client.call(&apis::FETCH, 12, &request);
    assert_eq!(int(&response, "errorCode"), 0);
    assert_eq!(int(&response, "sessionId"), 0);
    fetch.session = (id, 7);
    let response = client.call(&apis::FETCH, 12, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 70);
}

#[test]
fn a_session_ends_when_the_client_says_so_and_their_number_is_bounded() {
    let options = ServeOptions {
        fetch_sessions_max: 2,
        ..ServeOptions::default()
    };
    let broker = Broker::open(&clean(), options).unwrap();
    let mut client = Client::new(&broker);
    let begin = |client: &mut Client<'_>| {
        let mut fetch = Fetch::new("g-plain", 0, 0);
        fetch.session = (0, 0);
        let response = client.call(&apis::FETCH, 12, &fetch.request());
        int(&response, "sessionId") as i32
    };
    let (one, two) = (begin(&mut client), begin(&mut client));
    assert!(one > 0 && two > 0 && one != two);
    assert_eq!(
        begin(&mut client),
        0,
        "no room: the client fetches without a session"
    );
    let mut fetch = Fetch::new("g-plain", 0, 0);
    fetch.session = (one, -1);
    let response = client.call(&apis::FETCH, 12, &fetch.request());
    assert_eq!(int(&response, "sessionId"), 0);
    client.now += 1;
    assert!(begin(&mut client) > 0);
    assert_eq!(begin(&mut client), 0);
    client.now += 120_001;
    assert!(begin(&mut client) > 0, "one that nobody uses makes room");
    fetch.session = (two, 1);
    let response = client.call(&apis::FETCH, 12, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 70);
}

#[test]
fn a_fetch_waits_for_bytes_or_its_time() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let fetch = Fetch {
        max_wait_ms: 500,
        ..Fetch::new("g-empty", 0, 0)
    };
    let step = client.send(&apis::FETCH, 12, &fetch.request());
    assert!(matches!(step, Step::Wait { until_ms } if until_ms == NOW + 500));
    client.now += 499;
    assert!(matches!(client.resume(), Step::Wait { .. }));
    client.now += 1;
    assert!(matches!(client.resume(), Step::Reply(_)));
    // Enough bytes, an error, no partition, no minimum: at once.
    for fetch in [
        Fetch::new("g-plain", 0, 0),
        Fetch::new("g-plain", 0, 1 << 40),
        Fetch::new("absent", 0, 0),
        Fetch {
            min_bytes: 0,
            ..Fetch::new("g-empty", 0, 0)
        },
    ] {
        let fetch = Fetch {
            max_wait_ms: 500,
            ..fetch
        };
        let step = client.send(&apis::FETCH, 12, &fetch.request());
        assert!(matches!(step, Step::Reply(_)), "{step:?}");
    }
    let fetch = Fetch {
        max_wait_ms: 500,
        ..fetch
    };
    let step = client.send(&apis::FETCH, 12, &fetch.frame());
    assert!(matches!(step, Step::Reply(_)), "{step:?}");
    // More than there is.
    let fetch = Fetch {
        max_wait_ms: 500,
        min_bytes: i32::MAX,
        ..Fetch::new("g-plain", 0, 0)
    };
    let step = client.send(&apis::FETCH, 12, &fetch.request());
    assert!(matches!(step, Step::Wait { .. }), "{step:?}");
}
