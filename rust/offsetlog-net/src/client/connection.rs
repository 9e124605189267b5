//! One connection: frames out, frames in, and requests by name.

use super::ClientError;
use crate::sasl::Credentials;
use crate::socket::{Socket, write_parts};
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{Api, RequestHeader, ResponseHeader};
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a connection is made.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How long connecting may take for each of the host's addresses, and what follows (TLS, SASL) together.
    pub connect_timeout: Duration,
    /// How long the broker may send or take nothing while something is due. Greater than the longest wait that a request asks for.
    pub request_timeout: Duration,
    /// What the client calls itself, for the broker's logs and quotas.
    pub client_id: String,
    /// The greatest length of a response, in bytes.
    pub response_bytes_max: u32,
    /// Encrypts (Kafka's `security.protocol` with SSL in it).
    #[cfg(feature = "tls")]
    pub tls: Option<crate::tls::TlsClient>,
    /// The client's credentials (Kafka's `security.protocol` with SASL in it).
    pub credentials: Option<Credentials>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            client_id: "offsetlog".to_owned(),
            response_bytes_max: 128 << 20,
            #[cfg(feature = "tls")]
            tls: None,
            credentials: None,
        }
    }
}

/// A connection to one broker. Responses come in the order of their requests.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    address: String,
    options: ClientOptions,
    correlation_id: i32,
    has_answered: bool,
}

impl Connection {
    /// Connects to `host` at `port`, address after address until one answers.
    ///
    /// # Errors
    /// `Connect` if none can be reached; `Tls`, `Sasl`.
    pub fn connect(host: &str, port: u16, options: &ClientOptions) -> Result<Self, ClientError> {
        let address = shown(host, port);
        let stream =
            reach(host, port, options.connect_timeout).map_err(|source| ClientError::Connect {
                address: address.clone(),
                source,
            })?;
        let deadline = Instant::now() + options.connect_timeout;
        let socket = match Socket::new(Arc::new(stream), deadline) {
            Ok(socket) => socket,
            Err(source) => return Err(ClientError::Connect { address, source }),
        };
        let mut connection = Self {
            stream: encrypted(host, socket, options).map_err(|error| ClientError::Tls {
                address: address.clone(),
                reason: match error.kind() {
                    io::ErrorKind::TimedOut => {
                        "no answer in time; is the listener encrypted?".to_owned()
                    }
                    io::ErrorKind::UnexpectedEof => {
                        "the connection was closed; does the broker ask for a certificate?"
                            .to_owned()
                    }
                    _ => error.to_string(),
                },
            })?,
            address,
            options: options.clone(),
            correlation_id: 0,
            has_answered: false,
        };
        if let Some(credentials) = &options.credentials {
            super::login::log_in(&mut connection, credentials)?;
        }
        Ok(connection)
    }

    /// The broker, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends one frame: its length, then `frame`.
    ///
    /// # Errors
    /// `TimedOut`, `Closed`, `Io`.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), ClientError> {
        let length = u32::try_from(frame.len()).map_err(|_| self.broken(too_long()))?;
        self.start_waiting();
        let length = length.to_be_bytes();
        write_parts(&mut self.stream, [&length, frame])
            .and_then(|()| self.stream.flush())
            .map_err(|error| self.broken(error))
    }

    /// Receives one frame into `buffer`, replacing its contents and reusing its capacity. The buffer grows with the bytes that arrive, not
    /// by the declared length. After an error its contents are meaningless.
    ///
    /// # Errors
    /// `TimedOut`, `Closed`, `Io`; `Length` above [`ClientOptions::response_bytes_max`].
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<(), ClientError> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let length = i32::from_be_bytes(length);
        let bytes_max = self.options.response_bytes_max;
        let Some(size) = u32::try_from(length).ok().filter(|&size| size <= bytes_max) else {
            return Err(ClientError::Length {
                address: self.address.clone(),
                length,
                bytes_max,
            });
        };
        let size = size as usize;
        // Old bytes stay until they are overwritten: clearing them each time took 8 % of a mirror's CPU.
        buffer.truncate(size);
        let mut at = 0;
        while at < size {
            if at == buffer.len() {
                let grown = buffer.len().saturating_mul(2).max(FIRST_STEP);
                buffer.resize(grown.min(size), 0);
            }
            match self.stream.read(buffer.get_mut(at..).unwrap_or_default()) {
                Ok(0) => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => at += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
        self.has_answered = true;
        Ok(())
    }

    /// Sends a request and returns its correlation id, which [`response`](Self::response) needs to read the response.
    ///
    /// # Errors
    /// `Request` if `body` does not fit the API's version; `TimedOut`, `Closed`, `Io`.
    pub fn send_request(
        &mut self,
        api: &'static Api,
        version: i16,
        body: &Struct<'_>,
    ) -> Result<i32, ClientError> {
        let wrong = |source| ClientError::Request {
            api: api.name,
            source,
        };
        let correlation_id = self.correlation_id;
        let header = RequestHeader {
            api_key: api.key,
            api_version: version,
            correlation_id,
            client_id: Some(self.options.client_id.as_bytes()),
        };
        let mut frame = Vec::new();
        header.write(&mut frame).map_err(wrong)?;
        api.request
            .write(version, body, &mut frame)
            .map_err(wrong)?;
        self.send(&frame)?;
        self.correlation_id = correlation_id.wrapping_add(1);
        Ok(correlation_id)
    }

    /// Reads the frame of a response to the request with this correlation id.
    ///
    /// # Errors
    /// `CorrelationId`, `Response`.
    pub fn response<'a>(
        &self,
        api: &'static Api,
        version: i16,
        correlation_id: i32,
        frame: &'a [u8],
    ) -> Result<Struct<'a>, ClientError> {
        let wrong = |source| ClientError::Response {
            address: self.address.clone(),
            api: api.name,
            source,
        };
        let mut reader = Reader::new(frame, Part::Protocol);
        let header = ResponseHeader::read(api, version, &mut reader).map_err(wrong)?;
        if header.correlation_id != correlation_id {
            return Err(ClientError::CorrelationId {
                address: self.address.clone(),
                found: header.correlation_id,
                expected: correlation_id,
            });
        }
        api.response.read(version, &mut reader).map_err(wrong)
    }

    /// Sends a request and waits for its response, which is read into `buffer`.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request), [`receive`](Self::receive) and [`response`](Self::response).
    pub fn request<'a>(
        &mut self,
        api: &'static Api,
        version: i16,
        body: &Struct<'_>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Struct<'a>, ClientError> {
        let correlation_id = self.send_request(api, version, body)?;
        self.receive(buffer)?;
        self.response(api, version, correlation_id, buffer)
    }

    fn start_waiting(&mut self) {
        self.stream.set_patience(self.options.request_timeout);
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ClientError> {
        self.start_waiting();
        let filled = self.stream.read_exact(bytes);
        filled.map_err(|error| self.broken(error))
    }

    /// The system's error in our terms.
    fn broken(&self, source: io::Error) -> ClientError {
        let address = self.address.clone();
        match source.kind() {
            io::ErrorKind::TimedOut => ClientError::TimedOut {
                address,
                after: self.options.request_timeout,
            },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => ClientError::Closed {
                address,
                question: (!self.has_answered).then(|| self.stream.question()),
            },
            _ => ClientError::Io { address, source },
        }
    }
}

/// A connection with or without encryption.
#[derive(Debug)]
enum Stream {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, Socket>>),
}

impl Stream {
    /// What to ask about a broker that closes a new connection: it says nothing itself, or the connection ends before that arrives.
    const fn question(&self) -> &'static str {
        match self {
            Self::Plain(_) => "is its listener encrypted (security.protocol)?",
            #[cfg(feature = "tls")]
            Self::Tls(_) => {
                "does it require a client certificate that it trusts (ssl.keystore.location)?"
            }
        }
    }

    fn set_patience(&mut self, patience: Duration) {
        match self {
            Self::Plain(socket) => socket.set_patience(patience),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.sock.set_patience(patience),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(parts),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.flush(),
        }
    }
}

#[cfg(feature = "tls")]
fn encrypted(host: &str, socket: Socket, options: &ClientOptions) -> io::Result<Stream> {
    let Some(tls) = &options.tls else {
        return Ok(Stream::Plain(socket));
    };
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let stream = tls.connect(host, socket)?;
    Ok(Stream::Tls(Box::new(stream)))
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "as with TLS")]
fn encrypted(_: &str, socket: Socket, _: &ClientOptions) -> io::Result<Stream> {
    Ok(Stream::Plain(socket))
}

/// Buffer for a response before any of it has arrived; it then doubles.
const FIRST_STEP: usize = 64 << 10;

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a frame of more than 4 GiB")
}

/// `host:port`, an IPv6 address in brackets.
pub(crate) fn shown(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn reach(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use offsetlog::format::protocol::apis::FIND_COORDINATOR;
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    /// Only stops a hang, on however slow a machine.
    const PATIENCE: Duration = Duration::from_secs(300);

    fn waits(request_timeout: Duration) -> ClientOptions {
        ClientOptions {
            connect_timeout: PATIENCE,
            request_timeout,
            ..ClientOptions::default()
        }
    }

    /// A server of one connection, and a client with this request timeout.
    fn serve<T: Send + 'static>(
        request_timeout: Duration,
        talk: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> (Connection, JoinHandle<T>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || talk(listener.accept().unwrap().0));
        let client = Connection::connect("127.0.0.1", port, &waits(request_timeout)).unwrap();
        (client, server)
    }

    /// How long a line may be silent in the tests of slow ones.
    const SILENCE: Duration = Duration::from_secs(1);

    /// The longest pause between two steps of a slow server.
    struct Pauses {
        last: Instant,
        longest: Duration,
    }

    impl Pauses {
        fn begin() -> Self {
            Self {
                last: Instant::now(),
                longest: Duration::ZERO,
            }
        }

        /// A step is done, and the next one comes after a pause.
        fn step(&mut self, pause: Duration) {
            thread::sleep(pause);
            let now = Instant::now();
            self.longest = self.longest.max(now.duration_since(self.last));
            self.last = now;
        }
    }

    /// Repeats the attempt if the machine itself was silent for too long to tell.
    fn with_short_pauses(mut attempt: impl FnMut() -> (Result<(), ClientError>, Duration)) {
        let begun = Instant::now();
        loop {
            match attempt() {
                (Ok(()), _) => return,
                (Err(error), longest) => assert!(
                    longest > SILENCE / 4 && begun.elapsed() < PATIENCE,
                    "{error} although no pause was longer than {longest:?}"
                ),
            }
        }
    }

    #[test]
    fn a_request_gets_its_response() {
        let (mut client, server) = serve(PATIENCE, |mut stream| {
            let mut request = [0; 26];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(request[..12], [0, 0, 0, 22, 0, 10, 0, 0, 0, 0, 0, 0]);
            let mut body = vec![0, 0, 0, 0];
            let answer = Struct::new().with("host", "h").with("port", 9);
            FIND_COORDINATOR
                .response
                .write(0, &answer, &mut body)
                .unwrap();
            stream
                .write_all(&(body.len() as u32).to_be_bytes())
                .unwrap();
            // Byte for byte: a frame need not arrive at once.
            for byte in body {
                stream.write_all(&[byte]).unwrap();
            }
        });
        let mut buffer = b"old".to_vec();
        let body = Struct::new().with("key", "g");
        let answer = client
            .request(&FIND_COORDINATOR, 0, &body, &mut buffer)
            .unwrap();
        assert_eq!(answer.get("host").unwrap().as_str(), Some("h"));
        server.join().unwrap();
    }

    #[test]
    fn what_the_broker_may_do_wrong_is_told() {
        let check = |bytes: &'static [u8], expected: &str| {
            let (mut client, server) = serve(PATIENCE, move |mut stream: TcpStream| {
                stream.write_all(bytes).unwrap();
            });
            let error = client.receive(&mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            server.join().unwrap();
        };
        check(
            &[],
            "closed the connection before it answered anything: is its listener encrypted",
        );
        check(&[0, 0], "closed the connection");
        check(&[0, 0, 0, 9, 1], "closed the connection");
        check(
            &[8, 0, 0, 1, 1],
            "announces a response of 134217729 bytes, at most",
        );
        check(b"HTTP/1.1", "is it a Kafka broker");
        check(&[255; 8], "of -1 bytes");
    }

    #[test]
    fn a_line_that_is_slow_and_never_silent_is_waited_for() {
        const PIECE: usize = 10 << 10;
        const LENGTH: usize = 60 * PIECE;
        let pause = Duration::from_millis(20);
        let talk = move |stream: &mut TcpStream, pauses: &mut Pauses| -> io::Result<()> {
            stream.write_all(&(LENGTH as u32).to_be_bytes())?;
            for _ in 0..LENGTH / PIECE {
                stream.write_all(&[7; PIECE])?;
                pauses.step(pause);
            }
            // As slowly the other way: more than the system keeps for a socket.
            let mut taken = vec![0; 256 << 10];
            let mut left = (16 << 20) + 4;
            while left > 0 {
                let step = left.min(taken.len());
                stream.read_exact(&mut taken[..step])?;
                left -= step;
                pauses.step(pause);
            }
            Ok(())
        };
        with_short_pauses(|| {
            let (mut client, server) = serve(SILENCE, move |mut stream| {
                let mut pauses = Pauses::begin();
                (talk(&mut stream, &mut pauses), pauses.longest)
            });
            let mut buffer = Vec::new();
            let outcome = client.receive(&mut buffer).and_then(|()| {
                assert_eq!(buffer.len(), LENGTH);
                client.send(&vec![0; 16 << 20])
            });
            drop(client);
            let (talked, longest) = server.join().unwrap();
            assert!(outcome.is_err() || talked.is_ok(), "{talked:?}");
            (outcome, longest)
        });
    }

    #[test]
    fn silence_ends_at_the_timeout() {
        let (mut client, server) = serve(Duration::from_millis(200), |mut stream| {
            stream.write_all(&[0, 0, 0, 4, 0]).unwrap();
            let _ = stream.read(&mut [0]);
        });
        let error = client.receive(&mut Vec::new()).unwrap_err();
        assert!(
            error.to_string().contains("did not answer for 200 ms"),
            "{error}"
        );
        drop(client);
        server.join().unwrap();
    }

    /// A response takes as long as it takes, while some of it comes.
    #[test]
    fn a_slow_line_gets_a_whole_answer() {
        const PARTS: usize = 30;
        const PART: usize = 128 << 10;
        let talk = |stream: &mut TcpStream, pauses: &mut Pauses| -> io::Result<()> {
            stream.write_all(&((PARTS * PART) as u32).to_be_bytes())?;
            for _ in 0..PARTS {
                stream.write_all(&vec![7; PART])?;
                pauses.step(Duration::from_millis(40));
            }
            Ok(())
        };
        with_short_pauses(|| {
            let (mut client, server) = serve(SILENCE, move |mut stream| {
                let mut pauses = Pauses::begin();
                (talk(&mut stream, &mut pauses), pauses.longest)
            });
            let mut buffer = Vec::new();
            let outcome = client.receive(&mut buffer);
            assert!(outcome.is_err() || buffer.len() == PARTS * PART);
            drop(client);
            let (talked, longest) = server.join().unwrap();
            assert!(outcome.is_err() || talked.is_ok(), "{talked:?}");
            (outcome, longest)
        });
    }

    #[test]
    fn a_port_without_a_listener_is_refused() {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let error = Connection::connect("127.0.0.1", port, &waits(PATIENCE)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot connect to 127.0.0.1:"),
            "{error}"
        );
    }
}
