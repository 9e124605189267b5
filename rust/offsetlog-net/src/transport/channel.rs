//! What a connection is made of: a plain socket, one with TLS, or bytes in memory for tests.

use crate::socket::Socket;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// How long the last words may take to be taken.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much of a client's remaining input is read after the last words: if bytes stay unread, the system discards the words.
const DRAINED_BYTES_MAX: u64 = 1 << 20;

/// Both directions of a connection.
pub(crate) trait Channel: Read + Write {
    /// Says until when reads and writes may take from now on.
    fn set_deadline(&mut self, deadline: Instant);

    /// The socket, if it carries the bytes unchanged: a file can then be sent without a copy.
    fn plain(&self) -> Option<&Socket>;

    /// Whether the client has gone.
    fn is_hung_up(&self) -> bool;

    /// Ends an orderly connection so that the client gets the last words.
    fn finish(&mut self);
}

impl Channel for Socket {
    fn set_deadline(&mut self, deadline: Instant) {
        Self::set_deadline(self, deadline);
    }

    fn plain(&self) -> Option<&Socket> {
        Some(self)
    }

    fn is_hung_up(&self) -> bool {
        Self::is_hung_up(self)
    }

    fn finish(&mut self) {
        let _ = self.stream().shutdown(Shutdown::Write);
        Self::set_deadline(self, Instant::now() + LAST_WORDS);
        let _ = io::copy(&mut self.take(DRAINED_BYTES_MAX), &mut io::sink());
    }
}

#[cfg(feature = "tls")]
impl Channel for rustls::StreamOwned<rustls::ServerConnection, Socket> {
    fn set_deadline(&mut self, deadline: Instant) {
        self.sock.set_deadline(deadline);
    }

    fn plain(&self) -> Option<&Socket> {
        None
    }

    fn is_hung_up(&self) -> bool {
        self.sock.is_hung_up()
    }

    fn finish(&mut self) {
        self.sock.set_deadline(Instant::now() + LAST_WORDS);
        self.conn.send_close_notify();
        let _ = self.flush();
        Channel::finish(&mut self.sock);
    }
}

/// A client that has sent all it sends, and takes everything.
#[derive(Debug, Default)]
pub(crate) struct Memory<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) output: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel for Memory<'_> {
    fn set_deadline(&mut self, _: Instant) {}

    fn plain(&self) -> Option<&Socket> {
        None
    }

    fn is_hung_up(&self) -> bool {
        true
    }

    fn finish(&mut self) {}
}
