//! Answers Prometheus: one HTTP request at a time, within a few seconds, and nothing but `GET /metrics`.

use crate::socket::Socket;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Answers one connection.
pub(crate) fn answer(stream: TcpStream, text: impl FnOnce() -> String) -> io::Result<()> {
    let mut socket = Socket::new(Arc::new(stream), Instant::now() + WITHIN)?;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = socket.read(&mut part)?;
        if read == 0 || request.len() > REQUEST_BYTES_MAX {
            break;
        }
        request.extend_from_slice(part.get(..read).unwrap_or_default());
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ")
    {
        ("200 OK", text())
    } else {
        ("404 Not Found", "GET /metrics is all there is\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())?;
    super::channel::Channel::finish(&mut socket);
    Ok(())
}
