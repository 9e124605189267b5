//! Each time that a connection has, to the millisecond, by a clock that passes when nobody can go on.

use super::super::clock::Clock as _;
use super::super::options::ServerLimits;
use super::echo::{Echo, frame};
use super::wire::{Client, Simulated};
use super::world::World;
use crate::sasl::Users;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 8;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Runs a client against a server with the usual limits, in several orders of its threads.
fn each_order(
    limits: &ServerLimits,
    users: bool,
    client: impl Fn(&Simulated<Echo>, &Client) + Clone + Send + 'static,
) {
    for seed in 0..SEEDS {
        let users = users.then(|| Users::of_passwords([("ann", "secret")]).unwrap());
        let server = Simulated::new(seed, Arc::new(Echo::new()), limits.clone(), users);
        let run = client.clone();
        server.client(move |server| run(server, &server.connect()));
        server.run();
        assert!(server.service.all_ended());
    }
}

fn usual() -> ServerLimits {
    ServerLimits::default()
}

/// A byte each second, until nobody takes them.
fn trickle(world: &World, client: &Client, bytes: &[u8]) {
    for &byte in bytes {
        client.send(&[byte]);
        world.sleep(seconds(1));
    }
}

#[test]
fn a_new_connection_has_twenty_seconds_to_become_of_use() {
    each_order(&usual(), false, |_, client| {
        assert_eq!(client.ended(), ("handshake-timeout", seconds(20)));
    });
    each_order(&usual(), false, |_, client| {
        client.send(&[0, 0]);
        assert_eq!(client.ended(), ("handshake-timeout", seconds(20)));
    });
    each_order(&usual(), false, |server, client| {
        trickle(&server.world, client, &frame(&[b'x'; 30]));
        assert_eq!(client.ended(), ("handshake-timeout", seconds(20)));
    });
    // Who only asks what there is, and never says who it is, has no more.
    each_order(&usual(), true, |server, client| {
        let versions = [0, 18, 0, 0, 0, 0, 0, 7, 255, 255];
        while client.ask(&versions).is_some() {
            server.world.sleep(ms(300));
        }
        assert_eq!(client.ended(), ("handshake-timeout", seconds(20)));
    });
    // Nor who takes no answer to that.
    each_order(&usual(), true, |_, client| {
        client.set_room(100);
        client.send(&frame(&[0, 18, 0, 0, 0, 0, 0, 7, 255, 255]).repeat(20));
        assert_eq!(client.ended(), ("slow-client", seconds(20)));
    });
    // One that asked in time has all the time that any connection has.
    each_order(&usual(), false, |server, client| {
        server.world.sleep(ms(19_999));
        assert_eq!(client.ask(b"echo hello").unwrap(), b"echo hello");
        server.world.sleep(seconds(500));
        assert_eq!(client.ask(b"echo again").unwrap(), b"echo again");
    });
}

#[test]
fn a_connection_may_ask_nothing_for_ten_minutes() {
    each_order(&usual(), false, |server, client| {
        server.world.sleep(seconds(5));
        assert!(client.ask(b"echo first").is_some());
        server.world.sleep(ms(599_999));
        assert!(client.ask(b"echo last").is_some());
        assert_eq!(client.ended(), ("idle", ms(5_000 + 599_999 + 600_000)));
    });
}

#[test]
fn a_request_that_has_begun_must_be_whole_in_half_a_minute() {
    each_order(&usual(), false, |server, client| {
        assert!(client.ask(b"echo first").is_some());
        server.world.sleep(seconds(100));
        // The first byte waits as long as a connection may be idle, the others do not.
        trickle(&server.world, client, &frame(&[b'x'; 50]));
        assert_eq!(client.ended(), ("slow-request", seconds(130)));
    });
    each_order(&usual(), false, |server, client| {
        assert!(client.ask(b"echo first").is_some());
        trickle(&server.world, client, &frame(b"echo abcdefghijklmnop"));
        assert_eq!(client.receive().unwrap(), b"echo abcdefghijklmnop");
    });
}

#[test]
fn an_answer_must_be_taken_at_the_least_rate() {
    const BYTES: usize = 1 << 20;
    let asked = format!("long {BYTES}");
    // 64 seconds for 1 MiB at 16 KiB a second, and a minute for any answer.
    let silent = asked.clone();
    each_order(&usual(), false, move |server, client| {
        server.world.sleep(seconds(3));
        client.send(&frame(silent.as_bytes()));
        assert_eq!(client.ended(), ("slow-client", seconds(3 + 60 + 64)));
    });
    // What is taken slowly, but at that rate, comes whole.
    each_order(&usual(), false, move |server, client| {
        client.set_room(4 << 10);
        client.send(&frame(asked.as_bytes()));
        let mut left = BYTES + 4;
        while left > 0 {
            let part = left.min(16 << 10);
            client.take(part).unwrap();
            left -= part;
            server.world.sleep(seconds(1));
        }
        assert!(server.world.time() > seconds(60));
        assert!(client.ask(b"echo and goes on").is_some());
    });
}

/// A request that wants the memory which another one has gets it with that one's end, or ends by its own time.
#[test]
fn memory_that_another_has_is_waited_for() {
    let limits = ServerLimits {
        requests_bytes_max: 1 << 20,
        ..usual()
    };
    let long = frame(&vec![b'x'; 1 << 20]);
    for (leaves, ends) in [(10, None), (100, Some(("memory", seconds(31))))] {
        for seed in 0..SEEDS {
            let server = Simulated::new(seed, Arc::new(Echo::new()), limits.clone(), None);
            let holds = long.clone();
            server.client(move |server| {
                let client = server.connect();
                assert!(client.ask(b"echo first").is_some());
                server.world.sleep(seconds(5));
                client.send(&holds[..holds.len() - 1]);
                server.world.sleep(seconds(leaves - 5));
                if leaves == 100 {
                    assert_eq!(client.ended(), ("slow-request", seconds(35)));
                }
            });
            let waits = long.clone();
            server.client(move |server| {
                let client = server.connect();
                assert!(client.ask(b"echo first").is_some());
                server.world.sleep(seconds(1));
                client.send(&waits[..100]);
                server.world.sleep(seconds(6));
                client.send(&waits[100..]);
                match ends {
                    None => {
                        assert_eq!(client.receive().unwrap().len(), 1 << 20);
                        assert_eq!(server.world.time(), seconds(leaves));
                    }
                    Some(ends) => assert_eq!(client.ended(), ends),
                }
            });
            server.run();
        }
    }
}

/// A request that is not small waits while others do not take their answers.
#[test]
fn a_turn_is_waited_for() {
    let limits = ServerLimits {
        requests_bytes_max: 1 << 20,
        ..usual()
    };
    for seed in 0..SEEDS {
        let server = Simulated::new(seed, Arc::new(Echo::new()), limits.clone(), None);
        server.client(|server| {
            let client = server.connect();
            client.send(&frame(format!("long {}", 4 << 20).as_bytes()));
            server.world.sleep(seconds(50));
            assert_eq!(client.receive().unwrap().len(), 4 << 20);
        });
        server.client(|server| {
            let (large, small) = (server.connect(), server.connect());
            assert!(large.ask(b"echo first").is_some());
            server.world.sleep(seconds(1));
            large.send(&frame(&vec![b'x'; 20_000]));
            server.world.sleep(seconds(10));
            assert!(small.ask(b"echo small").is_some());
            assert_eq!(large.ended(), ("memory", seconds(31)));
            let late = server.connect();
            assert!(late.ask(b"echo first").is_some());
            server
                .world
                .sleep(ms(49_999).saturating_sub(server.world.time()));
            assert_eq!(late.ask(&vec![b'x'; 20_000]).unwrap().len(), 20_000);
            assert!(server.world.time() >= seconds(50));
        });
        server.run();
    }
}

#[test]
fn a_request_that_waits_is_answered_at_its_time_or_by_a_change() {
    each_order(&usual(), false, |server, client| {
        assert_eq!(client.ask(b"wait 300").unwrap(), b"late");
        assert_eq!(server.world.time(), ms(300));
        let other = server.service.clone();
        server.client(move |server| {
            server.world.sleep(ms(1234));
            other.change();
            server.world.touch_all();
        });
        assert_eq!(client.ask(b"wait 3600000").unwrap(), b"changed");
        assert_eq!(server.world.time(), ms(1534));
    });
    // A client that hangs up is noticed half a second later at most.
    each_order(&usual(), false, |server, client| {
        assert!(client.ask(b"echo first").is_some());
        client.send(&frame(b"wait 3600000"));
        server.world.sleep(ms(10_250));
        client.close();
        let (why, when) = client.ended();
        assert_eq!(why, "client");
        assert!(when <= ms(10_750), "{when:?}");
    });
}

#[test]
fn a_wrong_password_is_answered_a_tenth_of_a_second_later() {
    each_order(&usual(), true, |server, client| {
        let handshake = [&[0, 17, 0, 1, 0, 0, 0, 7, 255, 255, 0, 5][..], b"PLAIN"].concat();
        assert!(client.ask(&handshake).is_some());
        let words = b"\0ann\0guess";
        let length = u8::try_from(words.len()).unwrap();
        let head = [0, 36, 0, 0, 0, 0, 0, 8, 255, 255, 0, 0, 0, length];
        let answer = client.ask(&[&head[..], words].concat()).unwrap();
        assert_eq!(answer[4..6], [0, 58]);
        assert_eq!(server.world.time(), ms(100));
        assert_eq!(client.ended(), ("authentication", ms(100)));
    });
}
