//! The id of this process, without a system call each time: an append of one small record costs not much more than that.
//!
//! Each thread that asks has a page that the kernel empties in a forked child, however it was forked: hooks of libc or of Python
//! would miss some. Where there is no such page, the system is asked.

#[cfg(target_os = "linux")]
use super::map::ForkMark;
#[cfg(target_os = "linux")]
use std::cell::RefCell;

/// The id that the system gave when `mark` was filled.
#[cfg(target_os = "linux")]
struct Known {
    mark: ForkMark,
    id: u32,
}

#[cfg(target_os = "linux")]
thread_local! {
    /// `None` before the first question, `Some(None)` if the system has no such page.
    static KNOWN: RefCell<Option<Option<Known>>> = const { RefCell::new(None) };
}

/// Returns the id of this process, as [`std::process::id`]; that of the child after a fork.
#[must_use]
pub fn process_id() -> u32 {
    #[cfg(target_os = "linux")]
    {
        // A thread that is ending has no value any more.
        let known = KNOWN.try_with(|known| {
            let mut known = known.try_borrow_mut().ok()?;
            let known = known.get_or_insert_with(|| {
                let mark = ForkMark::new()?;
                Some(Known { mark, id: 0 })
            });
            let known = known.as_mut()?;
            if !known.mark.is_full() {
                known.id = std::process::id();
                known.mark.fill();
            }
            Some(known.id)
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
