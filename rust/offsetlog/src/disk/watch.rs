//! Watches directories for changes with Linux's inotify.

use super::Watch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

pub(super) fn watch(directories: &[&Path]) -> io::Result<Option<Box<dyn Watch>>> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let events = AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR;
    for directory in directories {
        inotify.add_watch(*directory, events)?;
    }
    Ok(Some(Box::new(Watched(inotify))))
}

struct Watched(Inotify);

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl Watch for Watched {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut asked, timeout) {
            Ok(0) | Err(Errno::EINTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        // Drains the queue. The caller looks at the files, so the events themselves do not matter.
        loop {
            match self.0.read_events() {
                Ok(_) => {}
                Err(Errno::EAGAIN) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
