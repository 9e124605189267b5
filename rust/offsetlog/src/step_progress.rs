//! How work over many partitions or directories tells which one it is at.

use crate::error::Result;
use crate::log_dir::TopicPartition;
use std::borrow::Borrow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The things are partitions.
pub type PartitionProgress = StepProgress<TopicPartition>;

/// The things are directories, or files.
pub type DirectoryProgress = StepProgress<Path>;

type Told<T> = dyn Fn(u64, u64, &T) -> Result<()> + Send + Sync;

/// Called before each thing that is read or changed with the number of those that are done, that of all that are known, and the thing; and
/// at the end once more. An error ends the work, and is returned by it.
pub struct StepProgress<T: ?Sized>(Option<Arc<Told<T>>>);

impl<T: ?Sized> StepProgress<T> {
    /// Calls this.
    #[must_use]
    pub fn new(told: impl Fn(u64, u64, &T) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Does something with each thing.
    ///
    /// # Errors
    /// Those of the progress and of the work.
    pub fn for_each(&self, things: Vec<T>, mut work: impl FnMut(T) -> Result<()>) -> Result<()>
    where
        T: ToOwned + Sized,
    {
        let mut steps = Steps::new(self);
        steps.add(things.len());
        for thing in things {
            steps.at(&thing)?;
            work(thing)?;
        }
        steps.end()
    }
}

/// Reports to nobody.
impl<T: ?Sized> Default for StepProgress<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: ?Sized> Clone for StepProgress<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> fmt::Debug for StepProgress<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StepProgress")
            .field(&self.0.is_some())
            .finish()
    }
}

/// Work whose extent becomes known as it proceeds.
pub struct Steps<'a, T: ToOwned + ?Sized> {
    progress: &'a StepProgress<T>,
    done: u64,
    total: u64,
    last: Option<T::Owned>,
}

impl<'a, T: ToOwned + ?Sized> Steps<'a, T> {
    /// No step yet.
    #[must_use]
    pub const fn new(progress: &'a StepProgress<T>) -> Self {
        Self {
            progress,
            done: 0,
            total: 0,
            last: None,
        }
    }

    /// Adds this many steps to the work.
    pub const fn add(&mut self, more: usize) {
        self.total += more as u64;
    }

    /// The next step begins.
    ///
    /// # Errors
    /// That of the progress.
    pub fn at(&mut self, thing: &T) -> Result<()> {
        let Some(told) = &self.progress.0 else {
            return Ok(());
        };
        told(self.done, self.total, thing)?;
        self.done += 1;
        self.last = Some(thing.to_owned());
        Ok(())
    }

    /// All steps are done. Reports nothing if there were none.
    ///
    /// # Errors
    /// That of the progress.
    pub fn end(self) -> Result<()> {
        match (&self.progress.0, self.last) {
            (Some(told), Some(last)) => told(self.done, self.total, last.borrow()),
            _ => Ok(()),
        }
    }
}
