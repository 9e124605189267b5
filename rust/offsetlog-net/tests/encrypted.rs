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

use echo::{Echo, frame, quick};
use offsetlog_net::client::{ClientOptions, Connection};
use offsetlog_net::sasl::{Credentials, Mechanism, Users};
use offsetlog_net::tls::{TlsClient, TlsServer};
use offsetlog_net::transport::{Server, ServerOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn start(client_ca: Option<&str>, users: bool) -> Server {
    let mut options = ServerOptions::at([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
    options.limits = quick();
    let ca = client_ca.map(file);
    options.tls =
        Some(TlsServer::load(&file("server.pem"), &file("server.key"), ca.as_deref()).unwrap());
    if users {
        options.users = Some(Arc::new(Users::of_passwords([("ann", "secret")]).unwrap()));
    }
    Server::start(Arc::new(Echo::new()), options).unwrap()
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

/// A connection that speaks no TLS, or stops in the middle of the handshake, is ended and costs nothing else.
#[test]
fn each_prefix_of_a_handshake_and_plain_requests_are_ended() {
    let server = start(None, false);
    let hello: Vec<u8> = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = std::thread::spawn(move || {
            let mut options = believing("ca.pem", None);
            options.connect_timeout = Duration::from_millis(300);
            Connection::connect("127.0.0.1", port, &options).is_err()
        });
        let mut hello = vec![0; 4096];
        let count = listener.accept().unwrap().0.read(&mut hello).unwrap();
        assert!(client.join().unwrap());
        hello.truncate(count);
        hello
    };
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
