//! Fetch sessions and long polling, by Kafka's rules.

use crate::client::{Asks, Client, Fetch, NOW, clean, int, open};
use crate::trap_16::{partitions, sessions_tell_what_changed};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog_net::Step;
use offsetlog_net::server::{Broker, ServeOptions};

#[test]
fn trap_16_a_session_tells_only_what_changed() {
    let broker = open(&clean());
    sessions_tell_what_changed(&mut Client::new(&broker));
}

fn topic_of(number: Value<'_>) -> Struct<'_> {
    Struct::new()
        .with("topic", "g-plain")
        .with("partitions", vec![number])
}

/// As 4.3.0 answers.
#[test]
fn a_session_may_begin_with_nothing_and_what_empties_it_is_still_answered() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let mut fetch = Fetch::new("g-plain", 0, 0);
    fetch.session = (0, 0);
    let nothing = || Vec::<Struct<'_>>::new();
    let response = client.call(&apis::FETCH, 12, &fetch.frame().with("topics", nothing()));
    let id = int(&response, "sessionId") as i32;
    assert!(id > 0);
    fetch.session = (id, 1);
    let forgotten = topic_of(Value::from(0));
    let request = fetch.request().with("forgottenTopicsData", vec![forgotten]);
    let response = client.call(&apis::FETCH, 12, &request);
    assert_eq!(int(&response, "sessionId"), 0);
    assert_eq!(partitions(&response).len(), 1);
    fetch.session = (id, 2);
    let response = client.call(&apis::FETCH, 12, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 70);
}

/// A version before 12 cannot say where the logs diverge, as one of version 12 asked.
#[test]
fn a_session_of_a_newer_version_is_refused_where_an_older_one_lacks_the_field() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let mut fetch = Fetch::new("g-plain", 0, 0);
    fetch.session = (0, 0);
    let partition = Struct::new()
        .with("partition", 0)
        .with("fetchOffset", 1_i64 << 40)
        .with("lastFetchedEpoch", 0)
        .with("partitionMaxBytes", 1);
    let topic = topic_of(Value::from(partition));
    let request = fetch.frame().with("topics", vec![topic]);
    let response = client.call(&apis::FETCH, 12, &request);
    let id = int(&response, "sessionId");
    assert!(id > 0);
    fetch.session = (id as i32, 1);
    fetch.version = 11;
    let response = client.call(&apis::FETCH, 11, &fetch.frame());
    assert_eq!(int(&response, "errorCode"), 35);
    assert_eq!(int(&response, "sessionId"), id);
    assert!(partitions(&response).is_empty());
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
