//! A socket whose reads and writes end at a deadline: both ends of a connection use it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A TCP connection that does not block by itself: each call waits until it can proceed, and fails with `TimedOut` at the deadline.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    deadline: Instant,
    /// With it the deadline is that long after the last bytes that moved.
    patience: Option<Duration>,
}

impl Socket {
    /// Takes over a connection.
    pub(crate) fn new(stream: Arc<TcpStream>, deadline: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // A response goes out at once: clients wait for it, and nothing follows that it could wait for.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            deadline,
            patience: None,
        })
    }

    /// Says until when reads and writes may take from now on.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.patience = None;
    }

    /// Sets how long reads and writes may wait from now on, and again after any bytes have moved: a slow connection is not a silent one.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
        self.deadline = Instant::now() + patience;
    }

    fn moved(&mut self, bytes: usize) {
        if let Some(patience) = self.patience.filter(|_| bytes > 0) {
            self.deadline = Instant::now() + patience;
        }
    }

    /// The connection itself.
    pub(crate) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Waits until the socket has room again.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        self.wait(PollFlags::OUT)
    }

    /// Whether the other end has closed its side, or the connection is broken. Bytes that came before are still to be read.
    pub(crate) fn is_hung_up(&self) -> bool {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let asked = PollFlags::RDHUP;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let asked = PollFlags::empty();
        let mut waited = [PollFd::new(&self.stream, asked)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut waited, Some(&at_once)) {
            Ok(0) => self.is_at_end(),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// Whether a read would find the end now. Where the system tells a half-closed connection by itself this adds nothing.
    fn is_at_end(&self) -> bool {
        let mut byte = [0];
        matches!(self.stream.peek(&mut byte), Ok(0))
    }

    fn wait(&self, what: PollFlags) -> io::Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut waited = [PollFd::new(&self.stream, what)];
            match poll(&mut waited, Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Calls until the socket takes part in it.
    fn retried(
        &self,
        what: PollFlags,
        mut call: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match call(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(what)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.retried(PollFlags::IN, |mut stream| stream.read(buffer))?;
        self.moved(read);
        Ok(read)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.retried(PollFlags::OUT, |mut stream| stream.write(bytes))?;
        self.moved(written);
        Ok(written)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.retried(PollFlags::OUT, |mut stream| stream.write_vectored(parts))?;
        self.moved(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Writes all bytes of a few parts, in one call where the socket has room.
pub(crate) fn write_parts<const N: usize>(
    out: &mut impl Write,
    parts: [&[u8]; N],
) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match out.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
