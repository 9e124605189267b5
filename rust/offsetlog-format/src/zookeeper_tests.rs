//! ZooKeeper's files as its servers write them, put together by hand; real ones are read in the engine's tests.

use super::*;
use proptest::prelude::*;
use std::vec;

fn buffer_of(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes()[..], bytes].concat()
}

fn adler(bytes: &[u8]) -> Vec<u8> {
    let mut sum = Adler32::default();
    sum.update(bytes);
    i64::from(sum.value()).to_be_bytes().to_vec()
}

/// Adds a checksum of all that is there, and the slash.
fn seal(bytes: &mut Vec<u8>) {
    let sum = adler(bytes);
    bytes.extend(sum);
    bytes.extend(buffer_of(b"/"));
}

fn snapshot_node(path: &[u8], data: Option<&[u8]>, owner: i64) -> Vec<u8> {
    let mut bytes = buffer_of(path);
    bytes.extend(data.map_or_else(|| (-1_i32).to_be_bytes().to_vec(), buffer_of));
    // Access list, zxids of creation and change, times of both.
    for number in [1_i64, 7, 8, 100, 200] {
        bytes.extend(number.to_be_bytes());
    }
    for number in [3_i32, 0, 0] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(owner.to_be_bytes());
    bytes.extend(9_i64.to_be_bytes());
    bytes
}

/// A snapshot up to the tree's seal.
fn snapshot() -> Vec<u8> {
    let mut bytes = b"ZKSN".to_vec();
    bytes.extend(2_i32.to_be_bytes());
    bytes.extend((-1_i64).to_be_bytes());
    bytes.extend(1_i32.to_be_bytes());
    bytes.extend(0x77_i64.to_be_bytes());
    bytes.extend(6000_i32.to_be_bytes());
    bytes.extend(1_i32.to_be_bytes());
    bytes.extend(1_i64.to_be_bytes());
    bytes.extend(1_i32.to_be_bytes());
    bytes.extend(31_i32.to_be_bytes());
    bytes.extend(buffer_of(b"world"));
    bytes.extend(buffer_of(b"anyone"));
    bytes.extend(snapshot_node(b"", None, 0));
    bytes.extend(snapshot_node(b"/a", Some(b"x"), 0x77));
    bytes.extend(buffer_of(b"/"));
    let sum = adler(&bytes);
    bytes.extend(sum);
    bytes.extend(buffer_of(b"/"));
    bytes
}

/// Behind the tree: what 3.6 added, and what 3.9 did.
fn with_tails(digest: bool, last_zxid: bool) -> Vec<u8> {
    let mut bytes = snapshot();
    if digest {
        bytes.extend([0_u8; 20]);
        seal(&mut bytes);
    }
    if last_zxid {
        bytes.extend(9_i64.to_be_bytes());
        seal(&mut bytes);
    }
    bytes
}

/// Path and data; the transaction that made it, time, version and owner.
type Read = Vec<(Vec<u8>, Option<Vec<u8>>, [i64; 4])>;

/// All nodes, with as few bytes at once as will do.
fn nodes_of(bytes: &[u8]) -> Result<Read, FormatError> {
    let mut reader = SnapshotReader::default();
    let (mut at, mut have, mut found) = (0, 0, vec![]);
    loop {
        let part = bytes.get(at..at + have).unwrap_or(&[]);
        let is_last = at + have == bytes.len();
        match reader.next(part, is_last) {
            Err(error) if matches!(error.fault, Fault::Truncated { .. }) && !is_last => have += 1,
            Err(error) => return Err(error),
            Ok((SnapshotPiece::End, _)) => return Ok(found),
            Ok((piece, used)) => {
                if let SnapshotPiece::Node(node) = piece {
                    let numbers = [
                        node.created_zxid,
                        node.modified,
                        i64::from(node.version),
                        node.owner,
                    ];
                    found.push((node.path.to_vec(), node.data.map(<[u8]>::to_vec), numbers));
                }
                at += used;
                have -= used;
            }
        }
    }
}

#[test]
fn snapshots_of_all_versions_are_read() {
    let expected = vec![
        (vec![], None, [7, 200, 3, 0]),
        (b"/a".to_vec(), Some(b"x".to_vec()), [7, 200, 3, 0x77]),
    ];
    for (digest, last_zxid) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(
            nodes_of(&with_tails(digest, last_zxid)).as_ref(),
            Ok(&expected)
        );
    }
}

/// Whatever is not there or is another byte than was written is noticed, but for the trust in what a later part seals.
#[test]
fn every_cut_and_every_flipped_bit_of_a_snapshot_is_noticed() {
    let bytes = with_tails(true, true);
    let whole = [snapshot().len(), with_tails(true, false).len(), bytes.len()];
    for cut in 0..bytes.len() {
        assert_eq!(
            nodes_of(&bytes[..cut]).is_ok(),
            whole.contains(&cut),
            "{cut}"
        );
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(nodes_of(&flipped).is_err(), "{at}");
    }
}

fn transaction(zxid: i64, kind: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = 0x77_i64.to_be_bytes().to_vec();
    bytes.extend(1_i32.to_be_bytes());
    bytes.extend(zxid.to_be_bytes());
    bytes.extend(500_i64.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(body);
    let mut entry = adler(&bytes);
    entry.extend(buffer_of(&bytes));
    entry.push(b'B');
    entry
}

fn create(path: &[u8], behind: &[u8]) -> Vec<u8> {
    let mut body = buffer_of(path);
    body.extend(buffer_of(b"d"));
    body.extend(0_i32.to_be_bytes());
    body.extend(behind);
    body
}

fn changes(kind: i32, body: &[u8]) -> Result<Vec<Change<'static>>, FormatError> {
    let entry = transaction(5, kind, body).leak();
    match read_log_piece(entry, true, 1000)? {
        (LogPiece::Transaction(found), used) => {
            assert_eq!(
                (found.session, found.zxid, found.time, used),
                (0x77, 5, 500, entry.len())
            );
            found.changes()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_type_of_transaction_does_what_it_does() {
    let made = |owner| Change::Create {
        path: b"/a",
        data: Some(b"d"),
        owner,
    };
    let none = vec![];
    // Behind all, what 3.6 adds: a digest.
    let digest = [0_u8; 12];
    for kind in [1, 15] {
        for (flag, owner) in [(0, 0), (1, 0x77)] {
            let body = create(b"/a", &[&[flag, 0, 0, 0, 1], &digest[..]].concat());
            assert_eq!(changes(kind, &body), Ok(vec![made(owner)]));
        }
    }
    assert_eq!(
        changes(19, &create(b"/a", &[0, 0, 0, 1])),
        Ok(vec![made(i64::MIN)])
    );
    let ttl = create(b"/a", &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(
        changes(21, &ttl),
        Ok(vec![made(0xff00_0000_0000_0009_u64 as i64)])
    );
    let path = buffer_of(b"/a");
    for kind in [2, 20] {
        assert_eq!(
            changes(kind, &path),
            Ok(vec![Change::Delete { path: b"/a" }])
        );
    }
    let set = [&path[..], &[0xff; 4], &[0, 0, 0, 4]].concat();
    let expected = Change::SetData {
        path: b"/a",
        data: None,
        version: 4,
    };
    for kind in [5, 16] {
        assert_eq!(changes(kind, &set), Ok(vec![expected]));
    }
    assert_eq!(
        changes(-11, &[]),
        Ok(vec![Change::CloseSession { session: 0x77 }])
    );
    for kind in [-10, -1, 7, 13] {
        assert_eq!(changes(kind, &[]), Ok(none.clone()));
    }
    assert!(changes(99, &[]).is_err());
}

#[test]
fn a_multi_is_done_whole_or_not_at_all() {
    let part = |kind: i32, body: &[u8]| [&kind.to_be_bytes()[..], &buffer_of(body)].concat();
    let delete = part(2, &buffer_of(b"/a"));
    let both = [&2_i32.to_be_bytes()[..], &delete, &delete].concat();
    let one = Change::Delete { path: b"/a" };
    assert_eq!(changes(14, &both), Ok(vec![one, one]));
    let failed = [&2_i32.to_be_bytes()[..], &delete, &part(-1, &[0; 4])].concat();
    assert_eq!(changes(14, &failed), Ok(vec![]));
    assert!(changes(14, &[0x7f, 0xff, 0xff, 0xff]).is_err());
    assert!(changes(14, &[0xff; 4]).is_err());
    // No multi in a multi.
    assert!(changes(14, &[&1_i32.to_be_bytes()[..], &part(14, &both)].concat()).is_err());
}

fn end(bytes: &[u8], is_last: bool) -> Result<LogPiece<'_>, FormatError> {
    read_log_piece(bytes, is_last, 1000).map(|(piece, _)| piece)
}

#[test]
fn a_log_ends_where_nothing_was_written_whole() {
    let entry = transaction(5, -10, &[0; 4]);
    assert_eq!(end(&[0; 40], false), Ok(LogPiece::End { torn: 12 }));
    assert_eq!(end(&[], true), Ok(LogPiece::End { torn: 0 }));
    for cut in 1..entry.len() {
        let part = &entry[..cut];
        let torn = LogPiece::End { torn: cut };
        assert_eq!(end(part, true), Ok(torn), "{cut}");
        let error = read_log_piece(part, false, 1000).unwrap_err();
        assert!(matches!(error.fault, Fault::Truncated { .. }), "{cut}");
        // In a file that was made longer in zeros.
        let mut longer = part.to_vec();
        longer.resize(500, 0);
        assert!(
            matches!(end(&longer, true), Ok(LogPiece::End { .. })),
            "{cut}"
        );
    }
}

#[test]
fn a_damaged_transaction_is_no_end() {
    let entry = transaction(5, -10, &[0; 4]);
    for at in (0..8).chain(12..entry.len()) {
        let mut flipped = entry.clone();
        flipped[at] ^= 1;
        assert!(read_log_piece(&flipped, true, 1000).is_err(), "{at}");
    }
    // A length that leads into what follows, or behind the end.
    for length in [100_u8, 250] {
        let mut two = [&entry[..], &entry, &entry].concat();
        two.resize(300, 0);
        two[11] = length;
        let error = read_log_piece(&two, true, 1000).unwrap_err();
        assert!(matches!(error.fault, Fault::Rule(_)), "{length}");
        assert!(read_log_piece(&two[..200], true, 1000).is_err());
    }
    let mut long = entry.clone();
    long[8..12].copy_from_slice(&1001_i32.to_be_bytes());
    let error = read_log_piece(&long, false, 1000).unwrap_err();
    assert!(matches!(
        error.fault,
        Fault::Length {
            found: 1001,
            maximum: 1000,
            ..
        }
    ));
    long[8] = 0xff;
    assert!(read_log_piece(&long, false, 1000).is_err());
}

#[test]
fn names_say_what_files_are() {
    let snapshot = |zxid, packing| Some(DataFile::Snapshot { zxid, packing });
    for (name, expected) in [
        ("snapshot.0", snapshot(0, Packing::None)),
        ("snapshot.100000a1f", snapshot(0x1_0000_0a1f, Packing::None)),
        ("snapshot.1f.gz", snapshot(0x1f, Packing::Gzip)),
        ("snapshot.1f.snappy", snapshot(0x1f, Packing::Snappy)),
        ("log.1", Some(DataFile::Log { zxid: 1 })),
        ("log.1.gz", None),
        ("log.+1", None),
        ("log.", None),
        ("log.ffffffffffffffff", None),
        ("snapshot.1.zip", None),
        ("acceptedEpoch", None),
        ("00000000000000000000.log", None),
    ] {
        assert_eq!(DataFile::classify(name), expected, "{name}");
    }
}

#[test]
fn the_header_of_a_log_is_looked_at() {
    let mut bytes = b"ZKLG\0\0\0\x02".to_vec();
    bytes.extend([0; 8]);
    assert_eq!(read_log_header(&bytes), Ok(16));
    assert!(matches!(
        read_log_header(&bytes[..15]).unwrap_err().fault,
        Fault::Truncated { .. }
    ));
    bytes[7] = 3;
    assert!(matches!(
        read_log_header(&bytes).unwrap_err().fault,
        Fault::Version { found: 3, .. }
    ));
    bytes[0] = b'X';
    assert!(matches!(
        read_log_header(&bytes).unwrap_err().fault,
        Fault::Rule(_)
    ));
}

proptest! {
    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..300, kind in -12..25_i32) {
        let _ = nodes_of(&bytes);
        let mut longer = with_tails(true, true);
        let at = at.min(longer.len());
        longer.splice(at.., bytes.iter().copied());
        let _ = nodes_of(&longer);
        for is_last in [false, true] {
            let _ = read_log_piece(&bytes, is_last, 150);
        }
        let entry = transaction(1, kind, &bytes);
        if let Ok((LogPiece::Transaction(found), _)) = read_log_piece(&entry, true, 1000)
            && let Ok(changes) = found.changes()
        {
            prop_assert!(changes.len() <= bytes.len() / 8 + 1);
        }
    }
}
