//! Calls that wait for the disk, made by several threads.

use crate::error::{Error, ErrorKind, Result};

/// Up to this many calls are made one after the other.
const FEW: usize = 32;
/// Threads that make more than those.
const THREADS: usize = 8;

/// Calls `work` for each item, even after an error. Uses several threads for many items: they wait for the disk together, and a file
/// system's journal commits them at once.
///
/// # Errors
/// An error of `work`; `Poisoned` if it panicked.
pub(crate) fn with_each<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    with_each_above(FEW, items, work)
}

/// As [`with_each`], with `few` items at most one after the other: for calls that all wait for the disk.
///
/// # Errors
/// As those of [`with_each`].
pub(crate) fn with_each_above<T: Sync>(
    few: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let do_some = |some: &[T]| some.iter().map(&work).fold(Ok(()), Result::and);
    if items.len() <= few {
        return do_some(items);
    }
    std::thread::scope(|scope| {
        let do_some = &do_some;
        let mut done = Ok(());
        let mut threads = Vec::with_capacity(THREADS);
        for some in items.chunks(items.len().div_ceil(THREADS)) {
            let thread = std::thread::Builder::new().name("offsetlog-sync".to_owned());
            match thread.spawn_scoped(scope, move || do_some(some)) {
                Ok(started) => threads.push(started),
                // Without a thread the caller does it.
                Err(_) => done = done.and(do_some(some)),
            }
        }
        threads.into_iter().fold(done, |done, thread| {
            done.and(thread.join().unwrap_or_else(|_| {
                let first = "a thread that closed or synced files panicked".to_owned();
                Err(Error::new(ErrorKind::Poisoned { first }))
            }))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A file that cannot be synced keeps no other one unsynced.
    #[test]
    fn each_is_done_once_and_an_error_is_given() {
        for many in [1, FEW, FEW + 1, 10 * FEW + 3] {
            let items: Vec<AtomicUsize> = (0..many).map(|_| AtomicUsize::new(0)).collect();
            let bad = many / 2;
            let done = with_each(&items, |item| {
                item.fetch_add(1, Ordering::SeqCst);
                if std::ptr::eq(item, &raw const items[bad]) {
                    return Err(Error::new(ErrorKind::Closed));
                }
                Ok(())
            });
            assert!(matches!(done.unwrap_err().kind(), ErrorKind::Closed));
            assert!(items.iter().all(|item| item.load(Ordering::SeqCst) == 1));
            assert!(with_each(&items, |_| Ok(())).is_ok());
        }
    }
}
