//! Reads standard input in a thread of its own, so that neither appending nor stopping waits for it.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that may be read ahead.
const CHUNKS_AHEAD: usize = 16;

/// What came of waiting for input.
pub(super) enum Event {
    Bytes(Vec<u8>),
    /// Nothing for as long as was waited.
    Quiet,
    End,
    Failed(io::Error),
}

/// Input that can be waited for with a time limit. The thread ends with the input, or when nobody listens any more.
pub(super) struct Feed(Receiver<io::Result<Vec<u8>>>);

impl Feed {
    pub(super) fn start(input: Box<dyn Read + Send>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
        thread::Builder::new()
            .name("offsetlog-input".to_owned())
            .spawn(move || read(input, &sender))?;
        Ok(Self(receiver))
    }

    pub(super) fn wait(&self, patience: Duration) -> Event {
        match self.0.recv_timeout(patience) {
            Ok(Ok(bytes)) => Event::Bytes(bytes),
            Ok(Err(error)) => Event::Failed(error),
            Err(RecvTimeoutError::Timeout) => Event::Quiet,
            Err(RecvTimeoutError::Disconnected) => Event::End,
        }
    }
}

fn read(mut input: Box<dyn Read + Send>, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let outcome = match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                chunk.truncate(read);
                Ok(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = outcome.is_err();
        if sender.send(outcome).is_err() || failed {
            return;
        }
    }
}
