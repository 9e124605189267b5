//! Replays a script of requests (`tests/net/group_script.py`) and compares the answers with those of a real 4.3.0 broker.

use super::*;
use std::fmt::Write;

const RECORDED: &str = include_str!("../../../../../tests/data/groups/kafka-4.3.0.txt");

/// How much later than a broker the coordinator may do what is due by time.
const LATE_MS: i64 = 250;

/// The order of members, groups and partitions does not matter.
fn sorted(value: Value<'static>) -> Value<'static> {
    match value {
        Value::Array(elements) => {
            let mut elements: Vec<_> = elements.into_iter().map(sorted).collect();
            elements.sort_by_key(|element| format!("{element:?}"));
            Value::Array(elements)
        }
        Value::Struct(fields) => Value::Struct(sorted_fields(fields)),
        other => other,
    }
}

fn sorted_fields(fields: Struct<'static>) -> Struct<'static> {
    let fields = fields.fields.into_iter();
    Struct {
        fields: fields.map(|(name, value)| (name, sorted(value))).collect(),
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.trim_matches('-').as_bytes();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

struct Asked {
    api_key: i16,
    version: i16,
    answer: Answer,
    said: String,
}

/// The answer that the connection got next after a line, unless it was dropped before.
fn next_answer(
    lines: &[&str],
    connection: &str,
    api_key: i16,
    version: i16,
) -> Option<Struct<'static>> {
    let mut next = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let next = next.find(|words| matches!(words[1], "recv" | "drop") && words[2] == connection);
    let next = next.filter(|words| words[1] == "recv")?;
    let bytes = from_hex(next[3]);
    let mut reader = Reader::new(&bytes, Part::Protocol);
    let table = &api(api_key).unwrap().response;
    let response = table.read(version, &mut reader).unwrap();
    assert_eq!(reader.remaining(), 0, "{}", table.name);
    Some(response.into_owned())
}

/// A new member gets the id that the broker gave it.
fn give_id(coordinator: &Coordinator, api_key: i16, request: &Struct<'_>, answer: &Struct<'_>) {
    let given = text(answer, "memberId");
    let mut state = coordinator.lock();
    state.shared.ids.clear();
    if api_key == apis::JOIN_GROUP.key && text(request, "memberId").is_empty() {
        state
            .shared
            .ids
            .extend(Some(given).filter(|id| !id.is_empty()));
    }
}

#[test]
fn answers_are_a_real_brokers() {
    let lines: Vec<&str> = RECORDED.lines().collect();
    let options = CoordinatorOptions {
        initial_rebalance_delay_ms: 0,
        min_session_timeout_ms: 100,
        max_session_timeout_ms: 60_000,
        max_group_size: 3,
        ..CoordinatorOptions::default()
    };
    let coordinator = coordinator(options, &[("one", 2), ("two", 1)]);
    let mut asked: BTreeMap<&str, Asked> = BTreeMap::new();
    let (mut story, mut differences, mut compared) = ("", String::new(), 0);
    for (number, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix("# ") {
            story = name;
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        let (now, connection) = (words[0].parse::<i64>().unwrap(), words[2]);
        if words[1] == "drop" {
            asked.remove(connection).unwrap();
            coordinator.disconnect(connection.parse().unwrap(), now);
            continue;
        }
        if words[1] == "send" {
            let (api_key, version) = (words[3].parse().unwrap(), words[4].parse().unwrap());
            let bytes = from_hex(words[5]);
            let mut reader = Reader::new(&bytes, Part::Protocol);
            let request = api(api_key)
                .unwrap()
                .request
                .read(version, &mut reader)
                .unwrap();
            let answer = next_answer(&lines[number..], connection, api_key, version);
            let answer = answer.unwrap_or_default();
            if api_key == apis::FIND_COORDINATOR.key && version == 0 {
                coordinator.set_node(Node {
                    id: int32(&answer, "nodeId"),
                    host: text(&answer, "host"),
                    port: int32(&answer, "port"),
                });
            }
            give_id(&coordinator, api_key, &request, &answer);
            let context = Context {
                client_id: "tests",
                client_host: "/127.0.0.1",
                connection_id: connection.parse().unwrap(),
            };
            let said = format!("{request:?}");
            let answer = coordinator.handle(api_key, version, &request, &context, now);
            let asking = Asked {
                api_key,
                version,
                answer,
                said,
            };
            assert!(asked.insert(connection, asking).is_none());
            continue;
        }
        let Asked {
            api_key,
            version,
            mut answer,
            said,
        } = asked.remove(connection).unwrap();
        for late in [0, LATE_MS] {
            if let Answer::Wait { ticket, .. } = answer {
                answer = coordinator.poll(ticket, now + late);
            }
        }
        let expected = next_answer(&lines[number..], connection, api_key, version).unwrap();
        compared += 1;
        let found = match answer {
            Answer::Wait { ticket, until_ms } => {
                coordinator.forget(ticket);
                format!("waits until {until_ms}")
            }
            Answer::Reply(response) => {
                let response = over_the_wire(api_key, version, &response);
                format!("{:?}", sorted_fields(response))
            }
        };
        let expected = format!("{:?}", sorted_fields(expected));
        if found != expected {
            let name = api(api_key).unwrap().name;
            writeln!(
                differences,
                "{story}, line {}, {name} {version} at {now}: {said}\n  broker {expected}\n  ours   {found}",
                number + 1
            )
            .unwrap();
        }
    }
    assert!(compared > 400, "{compared}");
    assert!(differences.is_empty(), "of {compared}:\n{differences}");
}
