//! Whole connections against a server with a small protocol logic: cut anywhere, slow, hostile, many.
//!
//! over 600 lines: each test needs the same small server and its clock, and is short.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "common/mod.rs"]
mod echo;

use echo::{Echo, PATIENCE, ask, fds, frame, quick, read_frame, resident};
use offsetlog_net::transport::{
    Event, Server, ServerError, ServerLimits, ServerOptions, answer_all,
};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

struct Running {
    server: Server,
    echo: Arc<Echo>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(limits: ServerLimits) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
        options.limits = limits;
        options.log = Some(Arc::new(move |event: &Event<'_>| {
            heard
                .lock()
                .unwrap()
                .push(format!("{}: {}", event.kind, event.text));
        }));
        let echo = Arc::new(Echo::new());
        let server = Server::start(Arc::clone(&echo), options).unwrap();
        Self { server, echo, told }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn answers(&self) {
        let mut client = self.connect();
        assert_eq!(ask(&mut client, b"echo hello").unwrap(), b"echo hello");
    }

    fn is_told(&self, kind: &str) -> bool {
        let told = self.told.lock().unwrap();
        told.iter().any(|line| line.starts_with(kind))
    }
}

fn is_closed(client: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match client.read_to_end(&mut rest) {
        Ok(_) => rest.is_empty(),
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn requests_are_answered_in_order_also_if_they_come_at_once() {
    let running = Running::start(quick());
    let mut client = running.connect();
    let mut all = Vec::new();
    for number in 0..100 {
        all.extend(frame(format!("echo {number}").as_bytes()));
    }
    // One that wants no answer.
    all.extend(frame(b"silent"));
    all.extend(frame(b"echo last"));
    client.write_all(&all).unwrap();
    for number in 0..100 {
        assert_eq!(
            read_frame(&mut client).unwrap(),
            format!("echo {number}").as_bytes()
        );
    }
    assert_eq!(read_frame(&mut client).unwrap(), b"echo last");
}

#[test]
fn files_are_sent_as_they_are() {
    let running = Running::start(quick());
    let mut client = running.connect();
    for (position, length) in [(0, 0), (0, 1), (7, 300_000), (0, Echo::file_size())] {
        let answer = ask(&mut client, format!("file {position} {length}").as_bytes()).unwrap();
        assert_eq!(answer.len() as u64, 4 + length);
        assert_eq!(&answer[..4], b"file");
        let expected = Echo::file_bytes(position, length);
        assert!(answer[4..] == expected, "{position} {length}");
    }
    // Without a copy through the process.
    if cfg!(target_os = "linux") {
        let all = 1 + 300_000 + Echo::file_size() as usize;
        assert_eq!(running.echo.sent_and_read(), (all, 0));
    }
}

/// Never anything in the place of what is missing.
#[test]
fn a_file_that_became_shorter_ends_the_connection() {
    let running = Running::start(quick());
    let size = Echo::file_size();
    let mut client = running.connect();
    client
        .write_all(&frame(format!("file 10 {size}").as_bytes()))
        .unwrap();
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got);
    assert_eq!(got.len() as u64, 4 + 4 + size - 10);
    assert!(got[8..] == Echo::file_bytes(10, size - 10));
    until("it is told", || running.is_told("file: "));
    running.answers();
}

/// A request that is cut off at each of its bytes costs nothing but its connection.
#[test]
fn each_prefix_of_a_request_is_just_an_end() {
    let running = Running::start(quick());
    let whole = frame(b"echo 0123456789");
    for end in 0..whole.len() {
        let mut client = running.connect();
        client.write_all(&whole[..end]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(is_closed(&mut client), "{end}");
    }
    until("all are gone", || running.server.connections() == 0);
    assert_eq!(running.echo.received(), 0);
    running.answers();
}

#[test]
fn a_client_may_hang_up_at_each_byte_of_a_response() {
    let running = Running::start(quick());
    let answer = 4 + 4 + 200;
    for end in 0..answer {
        let mut client = running.connect();
        client.write_all(&frame(b"file 3 200")).unwrap();
        let mut got = vec![0; end];
        client.read_exact(&mut got).unwrap();
    }
    until("all are gone", || running.server.connections() == 0);
    assert!(running.echo.all_ended());
    running.answers();
}

#[test]
fn lengths_that_are_not_allowed_end_the_connection_before_any_memory_is_taken() {
    let running = Running::start(quick());
    for length in [
        -1,
        i32::MIN,
        i32::MAX,
        (1 << 20) + 1,
        i32::from_be_bytes(*b"GET "),
        0x1603_0102,
    ] {
        let mut client = running.connect();
        client.write_all(&length.to_be_bytes()).unwrap();
        assert!(is_closed(&mut client), "{length}");
    }
    until("it is told", || running.is_told("request-length: "));
    // The greatest is fine.
    let mut client = running.connect();
    let mut large = b"echo ".to_vec();
    large.resize(1 << 20, b'x');
    assert_eq!(ask(&mut client, &large).unwrap(), large);
    // And an empty frame is the protocol logic's to refuse.
    let mut client = running.connect();
    assert_eq!(ask(&mut client, b"").unwrap(), b"");
}

#[test]
fn garbage_never_stops_the_server() {
    let running = Running::start(quick());
    let mut seed = 7_u64;
    for _ in 0..100 {
        let mut garbage = Vec::new();
        for _ in 0..200 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            garbage.push((seed >> 56) as u8);
        }
        let mut client = running.connect();
        let _ = client.write_all(&garbage);
        let _ = client.shutdown(Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    }
    until("all are gone", || running.server.connections() == 0);
    running.answers();
}

#[test]
fn who_connects_and_says_nothing_is_ended_by_the_handshake_timeout() {
    let running = Running::start(ServerLimits {
        handshake_timeout: Duration::from_millis(100),
        ..quick()
    });
    let mut silent = running.connect();
    let mut slow = running.connect();
    // It may have been ended by now, on a busy machine.
    let _ = slow.write_all(&[0, 0]);
    assert!(is_closed(&mut silent) && is_closed(&mut slow));
    until("it is told", || running.is_told("handshake-timeout: "));
    until("who is quick enough is answered", || {
        ask(&mut running.connect(), b"echo hello").is_ok_and(|answer| answer == b"echo hello")
    });
}

#[test]
fn a_request_that_comes_byte_by_byte_must_be_whole_in_time() {
    let running = Running::start(ServerLimits {
        request_timeout: Duration::from_millis(200),
        ..quick()
    });
    let mut client = running.connect();
    assert_eq!(ask(&mut client, b"echo first").unwrap(), b"echo first");
    // More bytes than ever come.
    client.write_all(&(1_i32 << 20).to_be_bytes()).unwrap();
    until("it is ended although bytes keep coming", || {
        thread::sleep(Duration::from_millis(20));
        client.write_all(b"x").is_err()
    });
    until("it is told", || running.is_told("slow-request: "));
}

#[test]
fn a_connection_that_asks_nothing_is_ended() {
    let running = Running::start(ServerLimits {
        idle_timeout: Duration::from_millis(100),
        ..quick()
    });
    let mut client = running.connect();
    assert_eq!(ask(&mut client, b"echo first").unwrap(), b"echo first");
    assert!(is_closed(&mut client));
}

#[test]
fn a_client_that_never_reads_is_ended() {
    let running = Running::start(ServerLimits {
        response_timeout: Duration::from_millis(100),
        response_bytes_per_second: u32::MAX,
        ..quick()
    });
    let client = running.connect();
    // More than the buffers of two sockets hold.
    for _ in 0..40 {
        let _ = (&client).write_all(&frame(b"file 0 1000000"));
    }
    until("it is told", || running.is_told("slow-client: "));
    until("it is gone", || running.server.connections() == 0);
    running.answers();
}

#[test]
fn a_panic_ends_one_connection() {
    let running = Running::start(quick());
    let mut other = running.connect();
    assert_eq!(ask(&mut other, b"echo before").unwrap(), b"echo before");
    for what in ["panic", "panic-later"] {
        let mut client = running.connect();
        client.write_all(&frame(what.as_bytes())).unwrap();
        assert!(is_closed(&mut client));
    }
    assert_eq!(ask(&mut other, b"echo after").unwrap(), b"echo after");
    until("it is told", || {
        running.is_told("panic: a bug of offsetlog")
    });
    assert!(running.server.metrics().contains("reason=\"panic\"} 2"));
    drop(other);
    until("all sessions ended", || running.echo.all_ended());
}

#[test]
fn last_words_arrive_although_more_was_asked() {
    let running = Running::start(quick());
    let mut client = running.connect();
    let mut all = frame(b"close bye");
    for _ in 0..100 {
        all.extend(frame(&[b'x'; 1000]));
    }
    client.write_all(&all).unwrap();
    assert_eq!(read_frame(&mut client).unwrap(), b"bye");
    assert!(is_closed(&mut client));
}

#[test]
fn a_request_that_waits_is_answered_by_a_change_or_by_time() {
    let running = Running::start(quick());
    let mut client = running.connect();
    let begun = Instant::now();
    assert_eq!(ask(&mut client, b"wait 300").unwrap(), b"late");
    assert!(begun.elapsed() >= Duration::from_millis(295));
    client.write_all(&frame(b"wait 60000")).unwrap();
    until("it waits", || {
        running.server.metrics().contains("requests_waiting 1")
    });
    running.echo.change();
    assert_eq!(read_frame(&mut client).unwrap(), b"changed");
}

#[test]
fn a_client_that_hangs_up_while_it_waits_is_noticed() {
    let running = Running::start(quick());
    let mut client = running.connect();
    client.write_all(&frame(b"wait 60000")).unwrap();
    // Bytes that nobody has read do not hide the end.
    client.write_all(&frame(b"echo never")).unwrap();
    until("it waits", || {
        running.server.metrics().contains("requests_waiting 1")
    });
    drop(client);
    until("it is gone", || running.server.connections() == 0);
    assert!(running.echo.all_ended());
}

/// Requests that announce much and send nothing share what memory there is; those that came whole are answered.
#[test]
fn memory_of_all_requests_is_bounded() {
    let running = Running::start(ServerLimits {
        requests_bytes_max: 1 << 20,
        request_timeout: Duration::from_millis(500),
        ..quick()
    });
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut client = running.connect();
        assert_eq!(ask(&mut client, b"echo first").unwrap(), b"echo first");
        // On a slow machine it is ended before it has sent all this.
        let _ = client.write_all(&(1_i32 << 20).to_be_bytes());
        let _ = client.write_all(&vec![b'x'; 200_000]);
        greedy.push(client);
    }
    // What is announced alone takes nothing: this one comes through at once, or after the others' deadline.
    let mut client = running.connect();
    assert_eq!(ask(&mut client, b"echo small").unwrap(), b"echo small");
    until("they are ended", || running.server.connections() == 1);
    assert_eq!(ask(&mut client, b"echo again").unwrap(), b"echo again");
}

/// Long polls hold connections, and not the memory that all requests share.
/// Answers that clients do not take fill the memory: then no request that is not small is begun until one is taken.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    let limits = ServerLimits {
        requests_bytes_max: 1 << 20,
        ..quick()
    };
    let running = Running::start(limits);
    let (mut slow, mut other) = (running.connect(), running.connect());
    let length = 64 << 20;
    slow.write_all(&frame(format!("long {length}").as_bytes()))
        .unwrap();
    // The answer is there.
    slow.read_exact(&mut [0; 4]).unwrap();
    let long = vec![b'x'; 20_000];
    other.write_all(&frame(&long)).unwrap();
    let little = Duration::from_millis(300);
    other.set_read_timeout(Some(little)).unwrap();
    assert!(other.read(&mut [0]).is_err(), "it waits");
    assert_eq!(running.echo.received(), 1);
    // It locks nobody out who asks for little.
    running.answers();
    let mut taken = vec![1; length];
    slow.read_exact(&mut taken).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(read_frame(&mut other).unwrap(), long);
}

#[test]
fn a_request_that_waits_gives_its_memory_back() {
    let running = Running::start(ServerLimits {
        requests_bytes_max: 1 << 20,
        request_timeout: PATIENCE,
        ..quick()
    });
    let long = |words: &str| {
        let mut body = words.as_bytes().to_vec();
        body.resize(900_000, b' ');
        body
    };
    let mut waiting = Vec::new();
    for count in 1..=4 {
        let mut client = running.connect();
        client.write_all(&frame(&long("wait 60000 "))).unwrap();
        waiting.push(client);
        until("it waits", || running.echo.received() == count);
    }
    let mut client = running.connect();
    assert_eq!(ask(&mut client, &long("echo")).unwrap().len(), 900_000);
    running.echo.change();
    for client in &mut waiting {
        assert_eq!(read_frame(client).unwrap(), b"changed");
    }
}

#[test]
fn more_connections_than_allowed_wait_for_a_place() {
    let running = Running::start(ServerLimits {
        connections_max: 2,
        ..quick()
    });
    let (mut first, mut second) = (running.connect(), running.connect());
    for client in [&mut first, &mut second] {
        assert_eq!(ask(client, b"echo in").unwrap(), b"echo in");
    }
    let mut third = running.connect();
    third.write_all(&frame(b"echo third")).unwrap();
    third
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(read_frame(&mut third).is_err());
    assert_eq!(running.server.connections(), 2);
    drop(first);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(read_frame(&mut third).unwrap(), b"echo third");
}

/// Each listener sees the last place free, and one of them gives it away.
#[test]
fn several_listeners_share_the_places() {
    let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); 4]);
    options.limits = ServerLimits {
        connections_max: 1,
        ..quick()
    };
    let server = Server::start(Arc::new(Echo::new()), options).unwrap();
    let connect = |at: &SocketAddr| {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut clients: Vec<TcpStream> = server.addresses().iter().map(connect).collect();
    for client in &mut clients {
        client.write_all(&frame(b"echo in")).unwrap();
    }
    let mut answers = 0;
    until("all are served, one after the other", || {
        assert!(server.connections() <= 1);
        clients.retain_mut(|client| {
            client
                .set_read_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            let is_served = client.peek(&mut [0]).is_ok_and(|count| count > 0);
            if is_served {
                assert_eq!(read_frame(client).unwrap(), b"echo in");
                answers += 1;
            }
            // Gone, it gives its place to the next one.
            !is_served
        });
        clients.is_empty()
    });
    assert_eq!(answers, 4);
}

/// Silent connections take all places and queue for more: whoever asks gets in behind them, as their deadline ends them.
#[test]
fn more_silent_connections_than_allowed_lock_nobody_out() {
    let (places, silent) = (4, 20);
    let running = Running::start(ServerLimits {
        connections_max: places,
        handshake_timeout: Duration::from_millis(200),
        ..quick()
    });
    let mut flood: Vec<TcpStream> = (0..silent).map(|_| running.connect()).collect();
    until("an honest client is answered", || {
        assert!(running.server.connections() <= places);
        // On a busy machine its own deadline may pass before its thread reads.
        ask(&mut running.connect(), b"echo hello").is_ok_and(|answer| answer == b"echo hello")
    });
    // Connections are taken in order: at most the other places still have silent ones.
    let told = running.told.lock().unwrap().clone();
    let is_ended = |line: &&String| line.starts_with("handshake-timeout: ");
    assert!(told.iter().filter(is_ended).count() > silent - places);
    assert!(flood.iter_mut().all(is_closed));
    until("all are gone", || running.server.connections() == 0);
}

/// 1,000 that are half open, then 1,000 that are idle: bounded memory, and descriptors come back.
#[test]
fn a_thousand_connections_cost_little_and_give_back_all() {
    let before = fds();
    let running = Running::start(ServerLimits {
        handshake_timeout: PATIENCE,
        connections_max: 2000,
        ..quick()
    });
    let memory = resident();
    let mut all: Vec<TcpStream> = (0..1000).map(|_| running.connect()).collect();
    until("all are there", || running.server.connections() == 1000);
    running.answers();
    for client in &mut all {
        assert_eq!(ask(client, b"echo once").unwrap(), b"echo once");
    }
    let used = resident().saturating_sub(memory) / 1024;
    assert!(used < 100, "{used} MiB for 1,000 idle connections");
    assert!(running.server.stop(PATIENCE));
    assert!(all.iter_mut().all(is_closed));
    drop(all);
    drop(running);
    // Other tests run in this process meanwhile.
    until("descriptors are back", || fds() < before + 200);
}

#[test]
fn stopping_under_load_ends_waits_and_lets_responses_out() {
    let running = Running::start(quick());
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = running.connect();
        clients.push(thread::spawn(move || {
            let request = if number % 2 == 0 {
                "file 0 1000000"
            } else {
                "wait 3600000"
            };
            let mut count = 0;
            while let Ok(answer) = ask(&mut client, request.as_bytes()) {
                // Whole or not at all.
                assert_eq!(answer.len(), 1_000_004);
                count += 1;
            }
            count
        }));
    }
    until("they are at work", || running.echo.received() > 100);
    // An hour's waits end before their time.
    assert!(running.server.stop(PATIENCE));
    assert!(
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum::<i32>()
            > 50
    );
    assert!(running.echo.all_ended());
    assert!(TcpStream::connect(running.server.addresses()[0]).is_err());
    assert!(running.server.stop(Duration::ZERO));
}

#[test]
fn a_client_that_never_reads_does_not_hold_up_the_stop() {
    let running = Running::start(ServerLimits {
        response_timeout: 4 * PATIENCE,
        ..quick()
    });
    let client = running.connect();
    for _ in 0..40 {
        let _ = (&client).write_all(&frame(b"file 0 1000000"));
    }
    // It is stuck once the buffers of both sockets are full: then nothing moves for a while. Some systems never let them grow to one answer.
    let (mut seen, mut since) = (0, Instant::now());
    until("it is stuck", || {
        if running.echo.received() != seen {
            (seen, since) = (running.echo.received(), Instant::now());
        }
        seen > 0 && since.elapsed() > Duration::from_secs(2)
    });
    let begun = Instant::now();
    assert!(!running.server.stop(Duration::from_millis(200)));
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(running.server.connections(), 0);
}

#[test]
fn time_is_told_to_the_protocol_logic() {
    let running = Running::start(quick());
    until("it ticks", || running.echo.ticks() >= 3);
}

#[test]
fn who_others_can_reach_needs_tls_and_users_before_anything_is_bound() {
    let open = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let start = |options| Server::start(Arc::new(Echo::new()), options).map(drop);
    let error = start(ServerOptions::at([open])).unwrap_err();
    assert!(matches!(error, ServerError::Exposed { .. }));
    for word in ["0.0.0.0:0", "--tls-cert", "--users", "--insecure"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
    options.metrics = Some(open);
    assert!(start(options).unwrap_err().to_string().contains("metrics"));
    let mut options = ServerOptions::at([open]);
    options.insecure = true;
    start(options).unwrap();
    let mapped: SocketAddr = "[::ffff:127.0.0.1]:0".parse().unwrap();
    let loopback = ServerOptions::at([
        mapped,
        "127.9.9.9:1".parse().unwrap(),
        "[::1]:1".parse().unwrap(),
    ]);
    loopback.check().unwrap();
    assert!(
        ServerOptions::at(["[::]:1".parse().unwrap()])
            .check()
            .is_err()
    );
    assert!(matches!(
        start(ServerOptions::default()).unwrap_err(),
        ServerError::NoAddress
    ));
}

#[test]
fn an_address_in_use_is_told() {
    let running = Running::start(quick());
    let taken = running.server.addresses()[0];
    let error = Server::start(Arc::new(Echo::new()), ServerOptions::at([taken])).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen at {taken}: ")),
        "{error}"
    );
}

#[test]
fn metrics_are_answered_over_http_also_while_all_places_are_taken() {
    let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
    options.metrics = options.listen.first().copied();
    options.limits = ServerLimits {
        connections_max: 1,
        ..quick()
    };
    options.more_metrics = Some(Arc::new(|text| text.push_str("own 1\n")));
    let server = Server::start(Arc::new(Echo::new()), options).unwrap();
    let mut client = TcpStream::connect(server.addresses()[0]).unwrap();
    // FindCoordinator, by its key.
    ask(&mut client, &[0, 10, 1, 2]).unwrap();
    let get = |request: &[u8]| {
        let mut http = TcpStream::connect(server.metrics_address().unwrap()).unwrap();
        http.write_all(request).unwrap();
        let mut text = String::new();
        http.read_to_string(&mut text).unwrap();
        text
    };
    let text = get(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "offsetlog_serve_connections 1\n",
        "offsetlog_serve_requests_total{api=\"FindCoordinator\"} 1\n",
        "offsetlog_serve_received_bytes_total 8\n",
        "own 1\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(get(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(&vec![b'x'; 20_000]).starts_with("HTTP/1.1 404"));
}

/// The same in memory, for each cut of several requests: what goes out is always a prefix of what the whole gets.
#[test]
fn bytes_in_memory_are_answered_as_on_a_socket() {
    let echo = Echo::new();
    let mut input = Vec::new();
    for request in ["echo one", "file 3 100", "silent", "wait 0", "close end"] {
        input.extend(frame(request.as_bytes()));
    }
    let whole = answer_all(&echo, &quick(), None, &input);
    assert!(whole.ends_with(b"end"));
    for end in 0..input.len() {
        let part = answer_all(&echo, &quick(), None, &input[..end]);
        assert!(whole.starts_with(&part), "{end}");
    }
    assert!(echo.all_ended());
}
