//! The server's counters, as Prometheus's text.

use super::ended::{Ended, KINDS};
use offsetlog::format::protocol::api;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys of APIs that are counted by themselves; Kafka has given 93.
const KEYS: usize = 128;

/// Counters of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) accepted: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    ended: [AtomicU64; KINDS.len()],
    requests: [AtomicU64; KEYS],
    unknown_requests: AtomicU64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            accepted: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            open: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            ended: [const { AtomicU64::new(0) }; KINDS.len()],
            requests: [const { AtomicU64::new(0) }; KEYS],
            unknown_requests: AtomicU64::new(0),
        }
    }

    /// Counts the request in this frame by its API.
    pub(crate) fn request(&self, frame: &[u8]) {
        add(&self.bytes_received, frame.len() as u64 + 4);
        let key = frame.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
        let counter = key
            .filter(|&key| api(key).is_some())
            .and_then(|key| self.requests.get(usize::try_from(key).ok()?));
        add(counter.unwrap_or(&self.unknown_requests), 1);
    }

    /// Counts the end of a connection.
    pub(crate) fn ended(&self, ended: &Ended) {
        if let Some(counter) = self.ended.get(ended.kind()) {
            add(counter, 1);
        }
    }

    /// All of it, in Prometheus's format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let single = [
            (
                "connections_accepted_total",
                "counter",
                "Connections accepted",
                &self.accepted,
            ),
            (
                "accept_errors_total",
                "counter",
                "Connections that the system did not hand over",
                &self.accept_errors,
            ),
            ("connections", "gauge", "Connections open now", &self.open),
            (
                "requests_waiting",
                "gauge",
                "Requests that wait for something to happen",
                &self.waiting,
            ),
            (
                "received_bytes_total",
                "counter",
                "Bytes of requests",
                &self.bytes_received,
            ),
            (
                "sent_bytes_total",
                "counter",
                "Bytes of responses",
                &self.bytes_sent,
            ),
        ];
        for (name, kind, help, counter) in single {
            head(&mut text, name, kind, help);
            let _ = writeln!(
                text,
                "offsetlog_serve_{name} {}",
                counter.load(Ordering::Relaxed)
            );
        }
        head(
            &mut text,
            "connections_ended_total",
            "counter",
            "Connections ended, by reason",
        );
        for (reason, counter) in KINDS.iter().zip(&self.ended) {
            let count = counter.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "offsetlog_serve_connections_ended_total{{reason=\"{reason}\"}} {count}"
            );
        }
        head(&mut text, "requests_total", "counter", "Requests, by API");
        for (key, counter) in (0..).zip(&self.requests) {
            let count = counter.load(Ordering::Relaxed);
            if let Some(api) = api(key).filter(|_| count > 0) {
                let name = api.name;
                let _ = writeln!(
                    text,
                    "offsetlog_serve_requests_total{{api=\"{name}\"}} {count}"
                );
            }
        }
        let count = self.unknown_requests.load(Ordering::Relaxed);
        let _ = writeln!(
            text,
            "offsetlog_serve_requests_total{{api=\"unknown\"}} {count}"
        );
        text
    }
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP offsetlog_serve_{name} {help}.");
    let _ = writeln!(text, "# TYPE offsetlog_serve_{name} {kind}");
}
