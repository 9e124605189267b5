//! The id of this process, without a system call each time: an append of one small record costs not much more than that.
//!
//! Each thread that asks has a page that the kernel empties in a forked child, however it was forked: hooks of libc or of Python
//! would miss some. Where there is no such page, the system is asked.

#[cfg(target_os = "linux")]
use super::map::ForkMark;
use rustix::process::{Resource, getrlimit};
#[cfg(target_os = "linux")]
use std::cell::RefCell;

/// What a thread knows of the id of its process.
#[cfg(target_os = "linux")]
enum Known {
    /// Nobody has asked.
    Nothing,
    /// The id that the system gave when `mark` was filled.
    Id { mark: ForkMark, id: u32 },
    /// The system has no such page: it is asked each time.
    NoMark,
}

#[cfg(target_os = "linux")]
thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known::Nothing) };
}

/// How many files this process may have open.
pub(crate) fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |files| files as usize)
}

/// Returns the id of this process, as [`std::process::id`]; that of the child after a fork.
#[must_use]
pub fn process_id() -> u32 {
    #[cfg(target_os = "linux")]
    {
        // A thread that is ending has no value any more.
        let known = KNOWN.try_with(|known| {
            let mut known = known.try_borrow_mut().ok()?;
            if matches!(*known, Known::Nothing) {
                *known = ForkMark::new().map_or(Known::NoMark, |mark| Known::Id { mark, id: 0 });
            }
            let Known::Id { mark, id } = &mut *known else {
                return None;
            };
            if !mark.is_full() {
                *id = std::process::id();
                mark.fill();
            }
            Some(*id)
        });
        if let Ok(Some(id)) = known {
            return id;
        }
    }
    std::process::id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_systems_answer_on_every_thread() {
        let expected = std::process::id();
        assert_eq!([process_id(), process_id()], [expected; 2]);
        let other = std::thread::spawn(|| [process_id(), process_id()]).join();
        assert_eq!(other.ok(), Some([expected; 2]));
    }
}
