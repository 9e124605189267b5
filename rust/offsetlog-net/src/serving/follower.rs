//! Reads the cluster's metadata again while its log dirs are served, in a thread of its own: no group and no long poll waits for it.

use crate::server::Broker;
use offsetlog::Clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// The files of the metadata are looked at this often.
const EVERY: Duration = Duration::from_secs(1);

/// The thread that reads the cluster's metadata again. Dropping it ends the thread, which waits for nobody.
pub(super) struct Follower {
    /// Dropped, it ends the thread.
    ends: Mutex<Option<mpsc::Sender<()>>>,
    /// Disconnected once the thread is over.
    over: Mutex<mpsc::Receiver<()>>,
}

impl Follower {
    pub(super) fn start(broker: Arc<Broker>, clock: Clock) -> std::io::Result<Self> {
        let (ends, ending) = mpsc::channel();
        let (held, over) = mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("offsetlog-metadata".to_owned())
            .spawn(move || {
                let _held = held;
                while ending.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                    // A look that panics must not be the last one.
                    let _ = catch_unwind(AssertUnwindSafe(|| broker.follow_metadata(clock())));
                }
            })?;
        Ok(Self {
            ends: Mutex::new(Some(ends)),
            over: Mutex::new(over),
        })
    }

    /// Lets the thread finish the read under way, and no more.
    pub(super) fn end(&self) {
        self.ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// Returns once the thread is over, or after this time: a disk that hangs holds the thread, and nobody else.
    pub(super) fn wait(&self, time: Duration) {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = over.recv_timeout(time);
    }
}
