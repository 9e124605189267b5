//! ZooKeeper's snapshots and transaction logs, in which Kafka kept a cluster before KRaft (FORMAT.md «ZooKeeper's data»).
//!
//! Both are read piece by piece: a caller passes the bytes that it has of a file, and gets the length of the piece. `Truncated` asks for
//! more bytes.

use crate::checksum::Adler32;
use crate::cursor::Reader;
use crate::error::{Algorithm, Fault, FormatError, Part};
use alloc::vec::Vec;

const LOG: Part = Part::ZooKeeperLog;
const SNAPSHOT: Part = Part::ZooKeeperSnapshot;
/// Of both kinds of files.
const VERSION: i32 = 2;
/// Magic, version and database id.
const HEADER_BYTES: usize = 16;
/// Checksum and length before a transaction.
const FRAME_BYTES: usize = 12;
/// Ends a transaction.
const END_OF_RECORD: u8 = b'B';
/// Checksum, length and text of what closes a part of a snapshot.
const SEAL_BYTES: usize = 13;
/// Zxid, version and digest, that 3.6 put behind the tree.
const DIGEST_BYTES: usize = 20 + SEAL_BYTES;
/// The last zxid, that 3.9 put behind all.
const LAST_ZXID_BYTES: usize = 8 + SEAL_BYTES;

const BOTH: usize = DIGEST_BYTES + LAST_ZXID_BYTES;

/// How many bytes are summed up in search of a transaction.
const MOST_SUMMED: usize = 64 << 20;

/// A compressed form of a snapshot, that 3.6 and later write if configured to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As it is.
    None,
    /// `.gz`.
    Gzip,
    /// `.snappy`, as Java's library frames it.
    Snappy,
}

/// What the name of a file in a data directory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFile {
    /// A snapshot, which has at least all transactions up to this one.
    Snapshot {
        /// The transaction.
        zxid: i64,
        /// How it is compressed.
        packing: Packing,
    },
    /// A log.
    Log {
        /// Its first transaction.
        zxid: i64,
    },
}

impl DataFile {
    /// What a name says; `None` for other files.
    #[must_use]
    pub fn classify(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once('.')?;
        let (digits, packing) = match rest.split_once('.') {
            None => (rest, Packing::None),
            Some((digits, "gz")) => (digits, Packing::Gzip),
            Some((digits, "snappy")) => (digits, Packing::Snappy),
            Some(_) => return None,
        };
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let zxid = i64::from_str_radix(digits, 16).ok()?;
        match (kind, packing) {
            ("snapshot", packing) => Some(Self::Snapshot { zxid, packing }),
            ("log", Packing::None) => Some(Self::Log { zxid }),
            _ => None,
        }
    }
}

/// A node of a snapshot. Paths and data are bytes: ZooKeeper writes text as Java has it, and not always as UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its path; that of the root is empty.
    pub path: &'a [u8],
    /// Its data, if it has any.
    pub data: Option<&'a [u8]>,
    /// The transaction that made it.
    pub created_zxid: i64,
    /// Time of the transaction that wrote its data, in ms since 1970.
    pub modified: i64,
    /// Counts the writes of its data.
    pub version: i32,
    /// The session that it ends with; 0 for none, other values for containers and nodes that expire.
    pub owner: i64,
}

/// A piece of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotPiece<'a> {
    /// A node.
    Node(Node<'a>),
    /// Something of which no use is made.
    Other,
    /// The end; every checksum was right.
    End,
}

/// Reads a snapshot piece by piece.
#[derive(Debug, Clone)]
pub struct SnapshotReader {
    stage: Stage,
    sum: Adler32,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Header,
    /// How many are left; before the first, their count is read.
    Sessions(Option<i32>),
    Acls(Option<i32>),
    Nodes,
    /// Behind a seal.
    Sealed {
        has_tree_only: bool,
    },
}

impl Default for SnapshotReader {
    fn default() -> Self {
        Self {
            stage: Stage::Header,
            sum: Adler32::default(),
        }
    }
}

impl SnapshotReader {
    /// Reads a piece from the front of `bytes`, and says how many of them it was. `is_last`: the file ends with them.
    ///
    /// # Errors
    /// `Truncated` where `bytes` end in a piece; `Rule`, `Version`, `Length` and `Checksum` for damage.
    pub fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        is_last: bool,
    ) -> Result<(SnapshotPiece<'a>, usize), FormatError> {
        let mut reader = Reader::new(bytes, SNAPSHOT);
        let mut piece = SnapshotPiece::Other;
        let stage = match self.stage {
            Stage::Header => {
                header(&mut reader, *b"ZKSN", "no snapshot of ZooKeeper's")?;
                Stage::Sessions(None)
            }
            Stage::Sessions(None) => Stage::Sessions(Some(count(&mut reader)?)),
            Stage::Sessions(Some(0)) => Stage::Acls(None),
            Stage::Sessions(Some(left)) => {
                reader.bytes(12)?;
                Stage::Sessions(Some(left - 1))
            }
            Stage::Acls(None) => Stage::Acls(Some(count(&mut reader)?)),
            Stage::Acls(Some(0)) => Stage::Nodes,
            Stage::Acls(Some(left)) => {
                reader.read_i64()?;
                skip_acl(&mut reader)?;
                Stage::Acls(Some(left - 1))
            }
            Stage::Nodes => {
                let path = text(&mut reader)?;
                if path == b"/" {
                    self.seal(&mut reader, bytes)?;
                    Stage::Sealed {
                        has_tree_only: true,
                    }
                } else {
                    piece = SnapshotPiece::Node(node(&mut reader, path)?);
                    Stage::Nodes
                }
            }
            Stage::Sealed { has_tree_only } => {
                if bytes.is_empty() && is_last {
                    return Ok((SnapshotPiece::End, 0));
                }
                if !is_last && bytes.len() <= BOTH {
                    return Err(reader.error(Fault::Truncated {
                        needed: BOTH + 1,
                        available: bytes.len(),
                    }));
                }
                let covered = match bytes.len() {
                    DIGEST_BYTES | BOTH if has_tree_only => DIGEST_BYTES - SEAL_BYTES,
                    LAST_ZXID_BYTES => LAST_ZXID_BYTES - SEAL_BYTES,
                    _ => return Err(reader.error(Fault::Rule("no digest behind the tree"))),
                };
                reader.bytes(covered)?;
                self.seal(&mut reader, bytes)?;
                Stage::Sealed {
                    has_tree_only: false,
                }
            }
        };
        let used = reader.position();
        self.sum.update(bytes.get(..used).unwrap_or(&[]));
        self.stage = stage;
        Ok((piece, used))
    }

    /// Checksum of all that was before it, and a slash.
    fn seal(&self, reader: &mut Reader<'_>, bytes: &[u8]) -> Result<(), FormatError> {
        let at = reader.position();
        let mut sum = self.sum.clone();
        sum.update(bytes.get(..at).unwrap_or(&[]));
        let stored = reader.read_i64()?;
        let slash = text(reader)?;
        check_sum(SNAPSHOT, at, stored, sum.value())?;
        if slash != b"/" {
            return Err(reader.error(Fault::Rule("no slash behind a checksum")));
        }
        Ok(())
    }
}

fn check_sum(part: Part, at: usize, stored: i64, computed: u32) -> Result<(), FormatError> {
    if stored == i64::from(computed) {
        return Ok(());
    }
    let fault = Fault::Checksum {
        algorithm: Algorithm::Adler32,
        stored: stored as u32,
        computed,
    };
    Err(FormatError::new(part, at, fault))
}

fn header(reader: &mut Reader<'_>, magic: [u8; 4], rule: &'static str) -> Result<(), FormatError> {
    let start = *reader;
    if reader.array()? != magic {
        return Err(start.error(Fault::Rule(rule)));
    }
    let version = reader.read_i32()?;
    if version != VERSION {
        return Err(start.error(Fault::Version {
            found: i64::from(version),
            maximum: i64::from(VERSION),
        }));
    }
    reader.read_i64().map(drop)
}

fn count(reader: &mut Reader<'_>) -> Result<i32, FormatError> {
    let start = *reader;
    let found = reader.read_i32()?;
    if found < 0 {
        return Err(length(start, found));
    }
    Ok(found)
}

const fn length(reader: Reader<'_>, found: i32) -> FormatError {
    reader.error(Fault::Length {
        found: found as i64,
        minimum: 0,
        maximum: i32::MAX as i64,
    })
}

/// Bytes behind their length; -1 is none.
fn buffer<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, FormatError> {
    let start = *reader;
    let found = reader.read_i32()?;
    match usize::try_from(found) {
        Ok(length) => reader.bytes(length).map(Some),
        Err(_) if found == -1 => Ok(None),
        Err(_) => Err(length(start, found)),
    }
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], FormatError> {
    let start = *reader;
    buffer(reader)?.ok_or_else(|| start.error(Fault::Rule("a text that is null")))
}

/// A list of access rights, -1 or so many.
fn skip_acl(reader: &mut Reader<'_>) -> Result<(), FormatError> {
    for _ in 0..reader.read_i32()? {
        reader.read_i32()?;
        buffer(reader)?;
        buffer(reader)?;
    }
    Ok(())
}

fn node<'a>(reader: &mut Reader<'a>, path: &'a [u8]) -> Result<Node<'a>, FormatError> {
    let data = buffer(reader)?;
    let _acl = reader.read_i64()?;
    let created_zxid = reader.read_i64()?;
    let _modified_zxid = reader.read_i64()?;
    let _created = reader.read_i64()?;
    let modified = reader.read_i64()?;
    let version = reader.read_i32()?;
    let _children_version = reader.read_i32()?;
    let _acl_version = reader.read_i32()?;
    let owner = reader.read_i64()?;
    let _children_zxid = reader.read_i64()?;
    Ok(Node {
        path,
        data,
        created_zxid,
        modified,
        version,
        owner,
    })
}

/// Reads the front of a log; gives how many bytes it was.
///
/// # Errors
/// `Truncated`, `Rule`, `Version`.
pub fn read_log_header(bytes: &[u8]) -> Result<usize, FormatError> {
    let mut reader = Reader::new(bytes, LOG);
    header(&mut reader, *b"ZKLG", "no transaction log of ZooKeeper's")?;
    Ok(HEADER_BYTES)
}

/// A piece of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPiece<'a> {
    /// A transaction whose checksum is right.
    Transaction(Transaction<'a>),
    /// The end of the log: here is nothing, or a transaction that was not written whole. From here on everything has to be zero except
    /// `torn` bytes.
    End {
        /// How many bytes belong to what was not written whole.
        torn: usize,
    },
}

/// A transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction<'a> {
    /// The session that asked for it.
    pub session: i64,
    /// Its number: the leader's epoch in the upper four bytes, a count from 1 in the lower.
    pub zxid: i64,
    /// When, in ms since 1970.
    pub time: i64,
    kind: i32,
    body: &'a [u8],
}

/// What a transaction does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Makes it.
    Create {
        /// Its path.
        path: &'a [u8],
        /// Its data.
        data: Option<&'a [u8]>,
        /// As [`Node::owner`].
        owner: i64,
    },
    /// Removes it.
    Delete {
        /// Its path.
        path: &'a [u8],
    },
    /// Replaces its data.
    SetData {
        /// Its path.
        path: &'a [u8],
        /// The data.
        data: Option<&'a [u8]>,
        /// The node's version from then on.
        version: i32,
    },
    /// Removes all nodes of a session.
    CloseSession {
        /// The session.
        session: i64,
    },
}

/// Reads a piece from the front of `bytes`, behind a log's header, and says how many of them it was. `is_last`: the file ends with them.
///
/// # Errors
/// `Truncated` where `bytes` end in a piece; `Length` below 0 or above `most`; `Checksum`; `Rule` without an end mark.
pub fn read_log_piece(
    bytes: &[u8],
    is_last: bool,
    most: usize,
) -> Result<(LogPiece<'_>, usize), FormatError> {
    let mut reader = Reader::new(bytes, LOG);
    let end = |torn| {
        // A length that is wrong looks like a transaction that was not written whole, and takes others with it.
        if has_whole(bytes.get(1..torn).unwrap_or(&[])) {
            let rule = Fault::Rule("a transaction without its end, and others behind it");
            return Err(FormatError::new(LOG, 0, rule));
        }
        Ok((LogPiece::End { torn }, 0))
    };
    if is_last && bytes.len() < FRAME_BYTES {
        return end(bytes.len());
    }
    let stored = reader.read_i64()?;
    let start = reader;
    let length = reader.read_i32()?;
    if length == 0 {
        // A checksum may have come before a length did.
        return end(FRAME_BYTES);
    }
    let size = usize::try_from(length).ok().filter(|&size| size <= most);
    let size = size.ok_or_else(|| {
        start.error(Fault::Length {
            found: i64::from(length),
            minimum: 0,
            maximum: most as i64,
        })
    })?;
    let whole = FRAME_BYTES + size + 1;
    if is_last && bytes.len() < whole {
        return end(bytes.len());
    }
    let covered = reader.bytes(size)?;
    match reader.read_u8()? {
        END_OF_RECORD => {}
        0 => return end(whole),
        _ => {
            let rule = Fault::Rule("no end mark behind a transaction");
            return Err(FormatError::new(LOG, whole - 1, rule));
        }
    }
    let mut sum = Adler32::default();
    sum.update(covered);
    check_sum(LOG, 0, stored, sum.value())?;
    let mut reader = Reader::new(covered, LOG);
    let session = reader.read_i64()?;
    reader.read_i32()?;
    let (zxid, time) = (reader.read_i64()?, reader.read_i64()?);
    let kind = reader.read_i32()?;
    let transaction = Transaction {
        session,
        zxid,
        time,
        kind,
        body: reader.rest(),
    };
    Ok((LogPiece::Transaction(transaction), whole))
}

/// Whether a whole transaction begins anywhere in `bytes`.
fn has_whole(bytes: &[u8]) -> bool {
    let mut budget = MOST_SUMMED;
    (0..bytes.len()).any(|at| {
        let mut reader = Reader::new(bytes.get(at..).unwrap_or(&[]), LOG);
        let Ok(stored @ 1..=0xffff_ffff) = reader.read_i64() else {
            return false;
        };
        let Ok(Some(covered @ [_, ..])) = buffer(&mut reader) else {
            return false;
        };
        if reader.read_u8() != Ok(END_OF_RECORD) {
            return false;
        }
        let Some(left) = budget.checked_sub(covered.len()) else {
            // So much that looks like transactions is no chance.
            return true;
        };
        budget = left;
        let mut sum = Adler32::default();
        sum.update(covered);
        i64::from(sum.value()) == stored
    })
}

mod kind {
    pub(super) const CLOSE_SESSION: i32 = -11;
    pub(super) const CREATE_SESSION: i32 = -10;
    pub(super) const ERROR: i32 = -1;
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const SET_ACL: i32 = 7;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE_2: i32 = 15;
    pub(super) const RECONFIG: i32 = 16;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const DELETE_CONTAINER: i32 = 20;
    pub(super) const CREATE_TTL: i32 = 21;
}

/// [`Node::owner`] of a container.
const CONTAINER: i64 = i64::MIN;
/// What [`Node::owner`] begins with for a node that expires.
const EXPIRES: i64 = 0xff << 56;

impl<'a> Transaction<'a> {
    /// What it does, in order; nothing for one that failed.
    ///
    /// # Errors
    /// `Truncated`, `Length`, `Rule` for a type that is not known.
    pub fn changes(&self) -> Result<Vec<Change<'a>>, FormatError> {
        let mut reader = Reader::new(self.body, LOG);
        let mut changes = Vec::new();
        if self.kind != kind::MULTI {
            changes.extend(change(&mut reader, self.kind, self.session)?);
            return Ok(changes);
        }
        let mut has_failed = false;
        for _ in 0..count(&mut reader)? {
            let kind = reader.read_i32()?;
            let body = text(&mut reader)?;
            has_failed |= kind == kind::ERROR;
            changes.extend(change(&mut Reader::new(body, LOG), kind, self.session)?);
        }
        if has_failed {
            changes.clear();
        }
        Ok(changes)
    }
}

fn change<'a>(
    reader: &mut Reader<'a>,
    kind: i32,
    session: i64,
) -> Result<Option<Change<'a>>, FormatError> {
    Ok(match kind {
        kind::CREATE | kind::CREATE_2 => {
            let (path, data) = made(reader)?;
            let owner = if reader.read_u8()? == 0 { 0 } else { session };
            Some(Change::Create { path, data, owner })
        }
        kind::CREATE_CONTAINER => {
            let ((path, data), owner) = (made(reader)?, CONTAINER);
            Some(Change::Create { path, data, owner })
        }
        kind::CREATE_TTL => {
            let (path, data) = made(reader)?;
            reader.read_i32()?;
            let owner = EXPIRES | reader.read_i64()?;
            Some(Change::Create { path, data, owner })
        }
        kind::DELETE | kind::DELETE_CONTAINER => {
            let path = text(reader)?;
            Some(Change::Delete { path })
        }
        kind::SET_DATA | kind::RECONFIG => {
            let (path, data) = (text(reader)?, buffer(reader)?);
            let version = reader.read_i32()?;
            Some(Change::SetData {
                path,
                data,
                version,
            })
        }
        kind::CLOSE_SESSION => Some(Change::CloseSession { session }),
        kind::CREATE_SESSION | kind::ERROR | kind::SET_ACL | kind::CHECK => None,
        _ => return Err(reader.error(Fault::Rule("a transaction of a type that is not known"))),
    })
}

/// Path and data of a node that is made.
fn made<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), FormatError> {
    let (path, data) = (text(reader)?, buffer(reader)?);
    skip_acl(reader)?;
    Ok((path, data))
}

#[cfg(test)]
#[path = "zookeeper_tests.rs"]
mod tests;
