//! TLS and SASL between our own two ends, and what either refuses.
#![cfg(feature = "tls")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "common/mod.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod echo;

use echo::{Echo, PATIENCE, frame, quick, resident};
use offsetlog_net::client::{ClientOptions, Connection};
use offsetlog_net::sasl::{Credentials, Mechanism, Users};
use offsetlog_net::tls::{TlsClient, TlsServer};
use offsetlog_net::transport::{Event, Server, ServerOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn start(client_ca: Option<&str>, users: bool) -> Server {
    Server::start(Arc::new(Echo::new()), options(client_ca, users)).unwrap()
}

fn options(client_ca: Option<&str>, users: bool) -> ServerOptions {
    let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
    options.limits = quick();
    let ca = client_ca.map(file);
    options.tls =
        Some(TlsServer::load(&file("server.pem"), &file("server.key"), ca.as_deref()).unwrap());
    if users {
        options.users = Some(Arc::new(Users::of_passwords([("ann", "secret")]).unwrap()));
    }
    options
}

fn believing(ca: &str, identity: Option<&str>) -> ClientOptions {
    let pair = identity.map(|name| (file(&format!("{name}.pem")), file(&format!("{name}.key"))));
    let pair = pair
        .as_ref()
        .map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    ClientOptions {
        tls: Some(TlsClient::load(&file(ca), pair).unwrap()),
        connect_timeout: Duration::from_secs(300),
        request_timeout: Duration::from_secs(300),
        ..ClientOptions::default()
    }
}

fn connect(server: &Server, host: &str, options: &ClientOptions) -> Result<Connection, String> {
    Connection::connect(host, server.addresses()[0].port(), options)
        .map_err(|error| error.to_string())
}

fn talk(mut connection: Connection) -> Result<(), String> {
    let mut buffer = Vec::new();
    for request in [&b"echo hello"[..], b"file 10 1000000"] {
        connection
            .send(request)
            .map_err(|error| error.to_string())?;
        connection
            .receive(&mut buffer)
            .map_err(|error| error.to_string())?;
    }
    assert!(buffer[4..] == Echo::file_bytes(10, 1_000_000));
    Ok(())
}

#[test]
fn bytes_and_files_go_through_encrypted() {
    let server = start(None, false);
    for host in ["127.0.0.1", "localhost"] {
        talk(connect(&server, host, &believing("ca.pem", None)).unwrap()).unwrap();
    }
}

#[test]
fn a_server_of_another_authority_is_refused() {
    let server = start(None, false);
    let error = connect(&server, "127.0.0.1", &believing("other-ca.pem", None)).unwrap_err();
    assert!(
        error.contains("TLS with 127.0.0.1:") && error.contains("UnknownIssuer"),
        "{error}"
    );
}

#[test]
fn only_clients_with_a_certificate_get_in_where_one_is_asked_for() {
    let server = start(Some("ca.pem"), false);
    talk(connect(&server, "127.0.0.1", &believing("ca.pem", Some("client"))).unwrap()).unwrap();
    for identity in [None, Some("stranger")] {
        // With TLS 1.3 a client hears of it after its handshake.
        let outcome = connect(&server, "127.0.0.1", &believing("ca.pem", identity)).and_then(talk);
        assert!(outcome.is_err(), "{identity:?}");
    }
}

#[test]
fn users_say_who_they_are_with_each_mechanism() {
    let server = start(None, true);
    for mechanism in Mechanism::ALL {
        let mut options = believing("ca.pem", None);
        options.credentials = Some(Credentials::new(mechanism, "ann", "secret"));
        talk(connect(&server, "127.0.0.1", &options).unwrap()).unwrap();
        options.credentials = Some(Credentials::new(mechanism, "ann", "guess"));
        let error = connect(&server, "127.0.0.1", &options).unwrap_err();
        assert!(
            error.contains("Authentication failed") && !error.contains("guess"),
            "{error}"
        );
        options.credentials = None;
        assert!(
            connect(&server, "127.0.0.1", &options)
                .and_then(talk)
                .is_err()
        );
    }
}

/// The first words of a client that speaks TLS.
fn hello() -> Vec<u8> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = thread::spawn(move || {
        let mut options = believing("ca.pem", None);
        options.connect_timeout = Duration::from_millis(300);
        Connection::connect("127.0.0.1", port, &options).is_err()
    });
    let mut hello = vec![0; 4096];
    let count = listener.accept().unwrap().0.read(&mut hello).unwrap();
    assert!(client.join().unwrap());
    hello.truncate(count);
    hello
}

/// A connection that speaks no TLS, or stops in the middle of the handshake, is ended and costs nothing else.
#[test]
fn each_prefix_of_a_handshake_and_plain_requests_are_ended() {
    let server = start(None, false);
    let hello = hello();
    for end in 0..hello.len() {
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream.write_all(&hello[..end]).unwrap();
    }
    let mut plain = TcpStream::connect(server.addresses()[0]).unwrap();
    plain.write_all(&frame(b"echo in the clear")).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|part| part == b"echo"));
    talk(connect(&server, "127.0.0.1", &believing("ca.pem", None)).unwrap()).unwrap();
    assert!(server.stop(Duration::from_secs(300)));
}

/// Who keeps its socket open and says no more holds a place only until the deadline of the handshake.
#[test]
fn who_stalls_inside_a_handshake_is_ended_by_its_deadline() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut options = options(None, false);
    options.limits.handshake_timeout = Duration::from_millis(300);
    options.log = Some(Arc::new(move |event: &Event<'_>| {
        heard.lock().unwrap().push(event.kind.to_owned());
    }));
    let server = Server::start(Arc::new(Echo::new()), options).unwrap();
    let hello = hello();
    // Nothing, inside the record's header, half of the hello, and all of it, which the server answers.
    let stalls = [0, 3, hello.len() / 2, hello.len()];
    let mut stalled: Vec<TcpStream> = Vec::new();
    for end in stalls {
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // On a busy machine the server may have ended it by now.
        let _ = stream.write_all(&hello[..end]);
        stalled.push(stream);
    }
    for (stream, end) in stalled.iter_mut().zip(stalls) {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let is_reset = |error: &io::Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(ended.as_ref().map_or_else(is_reset, |_| true), "{ended:?}");
        assert!(end == hello.len() || rest.is_empty(), "{end}");
    }
    let deadline = Instant::now() + PATIENCE;
    while server.connections() > 0 {
        assert!(Instant::now() < deadline, "places are not given back");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(*told.lock().unwrap(), ["handshake-timeout"; 4]);
}

/// A way to the server that passes all that it says, and only the first bytes of what its client says. What else the client says is lost, and
/// the connection stays open until the server ends it. Returns its port and, in the end, how many bytes of the client passed.
fn way(server: SocketAddr, bytes: usize) -> (u16, JoinHandle<usize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut onward = TcpStream::connect(server).unwrap();
    let passing = thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        let (mut answers, mut back) = (onward.try_clone().unwrap(), client.try_clone().unwrap());
        let answering = thread::spawn(move || {
            let _ = io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let mut passed = 0;
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = client.read(&mut buffer) {
            let count = read.min(bytes - passed);
            if onward.write_all(&buffer[..count]).is_err() {
                break;
            }
            passed += count;
        }
        let _ = onward.shutdown(Shutdown::Write);
        answering.join().unwrap();
        passed
    });
    (port, passing)
}

/// With TLS and, if so, SCRAM.
fn arriving(port: u16, is_user: bool) -> Result<Connection, String> {
    let mut options = believing("ca.pem", None);
    if is_user {
        options.credentials = Some(Credentials::new(Mechanism::ScramSha512, "ann", "secret"));
    }
    Connection::connect("127.0.0.1", port, &options).map_err(|error| error.to_string())
}

/// How many bytes a client says until it is in.
fn bytes_to_arrive(is_user: bool) -> usize {
    let server = start(None, true);
    let (port, passing) = way(server.addresses()[0], usize::MAX);
    drop(arriving(port, is_user).unwrap());
    passing.join().unwrap()
}

/// Stalled connections take all places and queue for more: silent ones, and ones that stop anywhere in TLS, between TLS and SASL, or in SASL.
/// Whoever can say who it is gets in behind them, as their deadline ends them.
#[test]
fn more_that_stall_before_they_are_in_than_places_lock_nobody_out() {
    const PLACES: usize = 4;
    const FLOOD: usize = 32;
    let (encrypted, all) = (bytes_to_arrive(false), bytes_to_arrive(true));
    assert!(hello().len() < encrypted && encrypted < all);
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut options = options(None, true);
    options.limits.connections_max = PLACES;
    options.limits.handshake_timeout = Duration::from_millis(500);
    options.log = Some(Arc::new(move |event: &Event<'_>| {
        heard.lock().unwrap().push(event.kind.to_owned());
    }));
    let server = Server::start(Arc::new(Echo::new()), options).unwrap();
    let memory = resident();
    // From no byte at all to all but the last one; one says nothing after TLS.
    let spread = (1..FLOOD).map(|number| number * (all - 1) / (FLOOD - 1));
    let stops: Vec<usize> = [0].into_iter().chain(spread).chain([encrypted]).collect();
    let in_stage =
        |from: usize, to: usize| stops.iter().filter(|&&at| from < at && at < to).count();
    assert!(in_stage(0, encrypted) >= PLACES && in_stage(encrypted, all) >= PLACES);
    let flood = stops.iter().map(|&bytes| {
        let (port, passing) = way(server.addresses()[0], bytes);
        (bytes, passing, thread::spawn(move || arriving(port, true)))
    });
    let flood: Vec<_> = flood.collect();
    let deadline = Instant::now() + PATIENCE;
    let mut used = 0;
    loop {
        assert!(server.connections() <= PLACES);
        used = used.max(resident().saturating_sub(memory) / 1024);
        // On a busy machine its own deadline may pass before it is in.
        if arriving(server.addresses()[0].port(), true).and_then(talk) == Ok(()) {
            break;
        }
        assert!(Instant::now() < deadline, "an honest client is locked out");
    }
    // Each was ended, by its deadline: nobody waits for the time that an idle connection has.
    let mut deepest = 0;
    for (bytes, passing, client) in flood {
        assert!(client.join().unwrap().is_err(), "{bytes} of {all}");
        deepest = deepest.max(passing.join().unwrap());
    }
    assert!(encrypted < deepest && deepest < all, "{deepest} of {all}");
    while server.connections() > 0 {
        assert!(Instant::now() < deadline, "places are not given back");
        thread::sleep(Duration::from_millis(5));
    }
    let told = told.lock().unwrap();
    let ended = told.iter().filter(|kind| *kind == "handshake-timeout");
    assert!(ended.count() >= stops.len(), "{told:?}");
    assert!(used < 64, "{used} MiB, most of them of the flood itself");
}

/// The room of those that are in the middle of their handshake does not grow with what they claim.
#[test]
fn hundreds_that_stall_in_their_handshake_cost_little() {
    const FLOOD: usize = 300;
    let mut options = options(None, true);
    options.limits.connections_max = FLOOD;
    let server = Server::start(Arc::new(Echo::new()), options).unwrap();
    let hello = hello();
    let memory = resident();
    let stops = [0, 5, hello.len() / 2, hello.len()];
    let flood = (0..FLOOD).map(|number| {
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream
            .write_all(&hello[..stops[number % stops.len()]])
            .unwrap();
        stream
    });
    let mut flood: Vec<TcpStream> = flood.collect();
    let deadline = Instant::now() + PATIENCE;
    while server.connections() < FLOOD {
        assert!(Instant::now() < deadline, "they are not let in");
        thread::sleep(Duration::from_millis(5));
    }
    // Those that said all of it have the server's part.
    for stream in flood.iter_mut().skip(stops.len() - 1).step_by(stops.len()) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 1);
    }
    let used = resident().saturating_sub(memory);
    assert!(
        used < 256 * FLOOD,
        "{used} KiB for {FLOOD} half-open handshakes"
    );
    assert!(server.stop(PATIENCE));
}

#[test]
fn a_client_without_tls_hears_what_may_be_wrong() {
    let server = start(None, false);
    let mut options = believing("ca.pem", None);
    options.tls = None;
    let error = connect(&server, "127.0.0.1", &options)
        .and_then(talk)
        .unwrap_err();
    assert!(
        error.contains("closed the connection") || error.contains("encrypted?"),
        "{error}"
    );
}

#[cfg(feature = "pkcs12")]
#[test]
fn stores_of_java_clients_work_as_pem_files_do() {
    let server = start(Some("ca.pem"), false);
    let (ca, client) = (file("ca.p12"), file("client.p12"));
    let mut options = believing("ca.pem", None);
    let load = |password, key| TlsClient::load_pkcs12((&ca, password), key);
    options.tls = Some(load("secret", Some((client.as_path(), "secret"))).unwrap());
    talk(connect(&server, "127.0.0.1", &options).unwrap()).unwrap();
    assert!(
        load("wrong", None)
            .unwrap_err()
            .to_string()
            .contains("its password")
    );
    assert!(
        load("secret", Some((ca.as_path(), "secret")))
            .unwrap_err()
            .to_string()
            .contains("no private key")
    );
    let pem = file("ca.pem");
    assert!(TlsClient::load_pkcs12((&pem, "secret"), None).is_err());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let load = |certificate: &str, key: &str| {
        TlsServer::load(&file(certificate), &file(key), None)
            .unwrap_err()
            .to_string()
    };
    assert!(load("missing.pem", "server.key").contains("missing.pem"));
    assert!(load("server.key", "server.key").contains("no certificate is in it"));
    assert!(load("server.pem", "ca.pem").contains("an unencrypted key in PEM is expected"));
    assert!(load("server.pem", "client.key").contains("client.key"));
    assert!(TlsClient::load(&file("README.md"), None).is_err());
}
