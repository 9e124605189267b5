//! A protocol logic whose requests say what to do with them.

use offsetlog::disk::{Access, Disk, DiskFile, FileStat, Map, RealDisk};
use offsetlog_net::transport::ServerLimits;
use offsetlog_net::{Changes, Peer, Piece, Reply, Room, Service, Step};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Only stops a hang, on however slow a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Limits with which tests end soon.
pub(crate) fn quick() -> ServerLimits {
    ServerLimits {
        request_bytes_max: 1 << 20,
        handshake_timeout: Duration::from_secs(300),
        ..ServerLimits::default()
    }
}

pub(crate) struct Echo {
    changes: Changes,
    file: Arc<Counting>,
    _folder: tempfile::TempDir,
    begun: AtomicUsize,
    ended: AtomicUsize,
    received: AtomicUsize,
    ticks: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct Session {
    seen: u64,
    until_ms: i64,
    panics: bool,
}

const FILE_BYTES: usize = 3_000_000;

fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}

impl Echo {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..FILE_BYTES as u64).map(byte_at).collect();
        std::fs::write(&path, bytes).unwrap();
        Self {
            changes: Changes::default(),
            file: Arc::new(Counting {
                file: RealDisk.open(&path, Access::Read).unwrap(),
                sent: AtomicUsize::new(0),
                read: AtomicUsize::new(0),
            }),
            _folder: folder,
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            ticks: AtomicUsize::new(0),
        }
    }

    pub(crate) fn file_size() -> u64 {
        FILE_BYTES as u64
    }

    pub(crate) fn file_bytes(position: u64, length: u64) -> Vec<u8> {
        (position..position + length).map(byte_at).collect()
    }

    /// Bytes of the file that the system sent by itself, and those that were read.
    pub(crate) fn sent_and_read(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.file.sent), of(&self.file.read))
    }

    pub(crate) fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn ticks(&self) -> usize {
        self.ticks.load(Ordering::Relaxed)
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn change(&self) {
        self.changes.announce();
    }
}

/// A file that counts how its bytes leave it.
#[derive(Debug)]
struct Counting {
    file: Arc<dyn DiskFile>,
    sent: AtomicUsize,
    read: AtomicUsize,
}

impl DiskFile for Counting {
    fn stat(&self) -> io::Result<FileStat> {
        self.file.stat()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, position)?;
        self.read.fetch_add(read, Ordering::Relaxed);
        Ok(read)
    }

    fn send_to(
        &self,
        to: BorrowedFd<'_>,
        position: u64,
        length: usize,
    ) -> io::Result<Option<usize>> {
        let sent = self.file.send_to(to, position, length)?;
        self.sent.fetch_add(sent.unwrap_or(0), Ordering::Relaxed);
        Ok(sent)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_at(bytes, position)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn map(&self, size: u64) -> Option<Map> {
        self.file.map(size)
    }
}

fn reply(bytes: &[u8]) -> Reply {
    Reply {
        pieces: vec![Piece::Bytes(bytes.to_vec())],
    }
}

impl Service for Echo {
    type Session = Session;

    fn begin(&self, _: Peer) -> Session {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Session::default()
    }

    fn receive(&self, session: &mut Session, frame: &[u8], now_ms: i64, _: &mut dyn Room) -> Step {
        self.received.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(frame).into_owned();
        let mut words = text.split(' ');
        let verb = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match verb {
            "silent" => Step::Silent,
            "panic" => panic!("as asked"),
            "panic-later" => {
                session.panics = true;
                Step::Wait { until_ms: now_ms }
            }
            "close" => Step::Close {
                reply: Some(reply(&frame[6..])),
                reason: "as asked".to_owned(),
            },
            "wait" => {
                session.seen = self.changes.count();
                session.until_ms = now_ms + number();
                Step::Wait {
                    until_ms: session.until_ms,
                }
            }
            "file" => Step::Reply(Reply {
                pieces: vec![
                    Piece::Bytes(b"file".to_vec()),
                    Piece::File {
                        file: Arc::clone(&self.file) as Arc<dyn DiskFile>,
                        position: number() as u64,
                        length: number() as u64,
                    },
                ],
            }),
            "long" => Step::Reply(reply(&vec![0; number() as usize])),
            _ => Step::Reply(reply(frame)),
        }
    }

    fn resume(&self, session: &mut Session, now_ms: i64) -> Step {
        assert!(!session.panics, "as asked");
        if self.changes.count() != session.seen {
            Step::Reply(reply(b"changed"))
        } else if now_ms >= session.until_ms {
            Step::Reply(reply(b"late"))
        } else {
            Step::Wait {
                until_ms: session.until_ms,
            }
        }
    }

    fn end(&self, _: Session, _: i64) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn tick(&self, now_ms: i64) -> i64 {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        now_ms + 10
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

pub(crate) fn read_frame(client: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    client.read_exact(&mut body)?;
    Ok(body)
}

pub(crate) fn ask(client: &mut (impl Read + Write), body: &[u8]) -> io::Result<Vec<u8>> {
    client.write_all(&frame(body))?;
    read_frame(client)
}

pub(crate) fn fds() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// KiB of memory that this process has.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok())
        .unwrap_or(0)
}
