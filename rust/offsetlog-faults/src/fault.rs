//! A disk in front of another one that fails, shortens or ends chosen calls.

use crate::sim::SimDisk;
use offsetlog::disk::{
    Access, Disk, DiskFile, Entry, FileStat, Lock, LockKind, Map, read_fully, write_fully,
};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the calls")]
pub enum Call {
    List,
    Open,
    Create,
    Stat,
    CreateDirectory,
    Rename,
    Unlink,
    SyncDirectory,
    Lock,
    Read,
    Write,
    SetLen,
    Sync,
}

impl Call {
    /// Whether it changes something.
    #[must_use]
    pub const fn is_change(self) -> bool {
        !matches!(self, Self::List | Self::Open | Self::Stat | Self::Read)
    }
}

/// How long calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// One call.
    Once,
    /// That call and all of its kinds that follow.
    FromThenOn,
    /// That call and all others that follow: the process is dead, or as good as.
    Killed,
}

/// Which calls fail, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The kinds that count, and fail, by what they are done to.
    pub kinds: fn(Call, &str) -> bool,
    /// The first one that fails, counted from 1; 0 for none.
    pub nth: u64,
    /// How long.
    pub lasting: Lasting,
    /// Linux's number of the error.
    pub error: i32,
    /// Whether a write that fails has written its first half, as a full disk does.
    pub half: bool,
    /// Nothing fails, but a read or write does only the first half of what was asked.
    pub short: bool,
    /// Nothing fails, but one bit of what is written is another one on the disk.
    pub flips: bool,
    /// Nothing fails, but a read gives other bytes than those of any batch, as of a file that is changed meanwhile.
    pub garbles: bool,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Its kind.
    pub call: Call,
    /// What it was done to.
    pub path: String,
}

/// A disk that fails. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct FaultDisk(Arc<Faults>);

/// When somebody else changes a directory that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before its names are read: the caller looked at other things before the change.
    BeforeNames,
    /// When they were read: they are from before the change.
    BehindNames,
}

/// What somebody else does meanwhile.
type Work = Box<dyn FnOnce() + Send>;

struct Faults {
    inner: Arc<dyn Disk>,
    sim: Option<SimDisk>,
    plan: Mutex<Plan>,
    seen: AtomicU64,
    failed: Mutex<Vec<Failed>>,
    meanwhile: Mutex<Option<(Moment, Work)>>,
    before: Mutex<Option<(u64, Work)>>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("inner", &self.inner)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Nothing fails.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            kinds: |_, _| true,
            nth: 0,
            lasting: Lasting::Once,
            error: 5,
            half: false,
            short: false,
            flips: false,
            garbles: false,
        }
    }
}

impl FaultDisk {
    /// In front of any disk.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, plan: Plan) -> Self {
        Self::build(inner, None, plan)
    }

    /// In front of a simulated disk, where a sync that fails loses what it should have synced.
    #[must_use]
    pub fn over(sim: &SimDisk, plan: Plan) -> Self {
        Self::build(Arc::new(sim.clone()), Some(sim.clone()), plan)
    }

    fn build(inner: Arc<dyn Disk>, sim: Option<SimDisk>, plan: Plan) -> Self {
        Self(Arc::new(Faults {
            inner,
            sim,
            plan: Mutex::new(plan),
            seen: AtomicU64::new(0),
            failed: Mutex::default(),
            meanwhile: Mutex::default(),
            before: Mutex::default(),
        }))
    }

    /// Has `work` done while the next directory is listed: a race that comes out the same each time.
    pub fn while_listing(&self, moment: Moment, work: impl FnOnce() + Send + 'static) {
        *self.0.meanwhile() = Some((moment, Box::new(work)));
    }

    /// Has `work` done just before the `nth` call of the plan's kinds.
    pub fn before(&self, nth: u64, work: impl FnOnce() + Send + 'static) {
        *self.0.before() = Some((nth, Box::new(work)));
    }

    /// Another plan; counting begins anew.
    pub fn set(&self, plan: Plan) {
        let mut current = self.0.plan();
        *current = plan;
        self.0.seen.store(0, Ordering::SeqCst);
    }

    /// Calls of the plan's kinds so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.0.seen.load(Ordering::SeqCst)
    }

    /// Calls that failed, or fell short.
    #[must_use]
    pub fn failed(&self) -> Vec<Failed> {
        self.0.failed().clone()
    }

    /// Forgets the calls that failed.
    pub fn forget(&self) {
        self.0.failed().clear();
    }

    fn pass<T>(
        &self,
        call: Call,
        path: &Path,
        run: impl FnOnce(&dyn Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.0.fault(call, path.to_str().unwrap_or_default()) {
            Some(plan) if !plan.short && !plan.flips && !plan.garbles => {
                Err(io::Error::from_raw_os_error(plan.error))
            }
            _ => run(self.0.inner.as_ref()),
        }
    }
}

impl Faults {
    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Vec<Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meanwhile(&self) -> std::sync::MutexGuard<'_, Option<(Moment, Work)>> {
        self.meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn before(&self) -> std::sync::MutexGuard<'_, Option<(u64, Work)>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is to be done at this moment. It may list directories itself.
    fn pass_moment(&self, moment: Moment) {
        let work = self.meanwhile().take_if(|(due, _)| *due == moment);
        if let Some((_, work)) = work {
            work();
        }
    }

    /// The plan, if this call fails.
    fn fault(&self, call: Call, path: &str) -> Option<Plan> {
        // Counted under the lock: a call of another thread counts for the plan that it meets, or for none.
        let current = self.plan();
        let plan = current.clone();
        let counts = (plan.kinds)(call, path);
        let number = if counts {
            self.seen.fetch_add(1, Ordering::SeqCst) + 1
        } else {
            self.seen.load(Ordering::SeqCst)
        };
        drop(current);
        let work = self.before().take_if(|(due, _)| counts && *due == number);
        if let Some((_, work)) = work {
            work();
        }
        let fails = plan.nth > 0
            && match plan.lasting {
                Lasting::Once => counts && number == plan.nth,
                Lasting::FromThenOn => counts && number >= plan.nth,
                Lasting::Killed => number >= plan.nth,
            };
        if fails {
            let path = path.to_owned();
            self.failed().push(Failed { call, path });
        }
        fails.then_some(plan)
    }
}

impl Disk for FaultDisk {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.0.pass_moment(Moment::BeforeNames);
        let names = self.pass(Call::List, directory, |disk| disk.list(directory));
        self.0.pass_moment(Moment::BehindNames);
        names
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let makes = match access {
            Access::Read | Access::Write => false,
            Access::Create | Access::Replace => true,
            Access::WriteOrCreate => self.0.inner.stat(path).is_err(),
        };
        let call = if makes { Call::Create } else { Call::Open };
        let inner = self.pass(call, path, |disk| disk.open(path, access))?;
        Ok(Arc::new(FaultFile {
            inner,
            path: path.to_str().unwrap_or_default().to_owned(),
            faults: Arc::clone(&self.0),
        }))
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let inner = self.pass(Call::Open, path, |disk| disk.open_uncached(path))?;
        Ok(inner.map(|inner| -> Arc<dyn DiskFile> {
            Arc::new(FaultFile {
                inner,
                path: path.to_str().unwrap_or_default().to_owned(),
                faults: Arc::clone(&self.0),
            })
        }))
    }

    fn boot_id(&self) -> Option<u128> {
        self.0.inner.boot_id()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.pass(Call::Stat, path, |disk| disk.stat(path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::CreateDirectory, path, |disk| {
            disk.create_directory(path)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(Call::Rename, to, |disk| disk.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::Unlink, path, |disk| disk.unlink(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::Unlink, path, |disk| disk.remove_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::SyncDirectory, path, |disk| disk.sync_directory(path))
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        self.pass(Call::Lock, path, |disk| disk.lock(path, kind))
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        self.pass(Call::Stat, path, |disk| disk.is_link(path))
    }

    fn real_path(&self, path: &Path) -> io::Result<std::path::PathBuf> {
        self.pass(Call::Stat, path, |disk| disk.real_path(path))
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        self.pass(Call::Lock, path, |disk| disk.lock_holder(path))
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn DiskFile>,
    path: String,
    faults: Arc<Faults>,
}

impl FaultFile {
    fn pass<T>(
        &self,
        call: Call,
        run: impl FnOnce(&dyn DiskFile) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.faults.fault(call, &self.path) {
            Some(plan) if !plan.short && !plan.flips && !plan.garbles => {
                Err(io::Error::from_raw_os_error(plan.error))
            }
            _ => run(self.inner.as_ref()),
        }
    }

    fn sync(&self, run: impl FnOnce(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        self.pass(Call::Sync, run).inspect_err(|_| {
            if let (Some(sim), Ok(stat)) = (&self.faults.sim, self.inner.stat()) {
                sim.fail_sync(stat);
            }
        })
    }
}

impl DiskFile for FaultFile {
    fn stat(&self) -> io::Result<FileStat> {
        self.pass(Call::Stat, |file| file.stat())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        read_fully(buffer, position, |rest, position| {
            match self.faults.fault(Call::Read, &self.path) {
                Some(plan) if plan.short => {
                    let half = rest.len().div_ceil(2);
                    self.inner.read_at(&mut rest[..half], position)
                }
                Some(plan) if plan.garbles => {
                    let count = self.inner.read_at(rest, position)?;
                    rest[..count].fill(0xff);
                    Ok(count)
                }
                Some(plan) => Err(io::Error::from_raw_os_error(plan.error)),
                None => self.inner.read_at(rest, position),
            }
        })
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        write_fully(bytes, position, |rest, position| {
            let half = &rest[..rest.len().div_ceil(2)];
            match self.faults.fault(Call::Write, &self.path) {
                Some(plan) if plan.short => {
                    self.inner.write_at(half, position)?;
                    Ok(half.len())
                }
                Some(plan) if plan.flips => {
                    let mut bytes = rest.to_vec();
                    if let Some(byte) = bytes.get_mut(rest.len() / 2) {
                        *byte ^= 1;
                    }
                    self.inner.write_at(&bytes, position)?;
                    Ok(bytes.len())
                }
                Some(plan) => {
                    if plan.half {
                        self.inner.write_at(half, position)?;
                    }
                    Err(io::Error::from_raw_os_error(plan.error))
                }
                None => {
                    self.inner.write_at(rest, position)?;
                    Ok(rest.len())
                }
            }
        })
    }

    fn write_parts_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        self.write_at(&parts.concat(), position)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.pass(Call::SetLen, |file| file.set_len(size))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(|file| file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(|file| file.sync_all())
    }

    fn map(&self, size: u64) -> Option<Map> {
        self.inner.map(size)
    }
}
