//! Holds docs/FORMAT.md against the code and against files that real brokers wrote: field tables, names, annotated dumps,
//! section titles that source comments refer to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use offsetlog_format::batch::{
    BATCH_HEADER_V2_BYTES, FRAME_BYTES, LOG_OVERHEAD_BYTES, MINIMUM_LENGTH_V0, MINIMUM_LENGTH_V1,
};
use offsetlog_format::control::{CONTROL_KEY_BYTES, MARKER_VALUE_BYTES};
use offsetlog_format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES,
    aborted_transaction_count, offset_entry_count, time_entry_count,
};
use offsetlog_format::old_message::{OLD_HEADER_V0_BYTES, OLD_HEADER_V1_BYTES, OldMessages};
use offsetlog_format::snapshot::{
    SNAPSHOT_ENTRY_BYTES, SNAPSHOT_HEADER_BYTES, read_producer_snapshot,
};
use offsetlog_format::v2::RecordsV2;
use offsetlog_format::varint::{read_varint, read_varlong};
use offsetlog_format::{
    AbortedTransaction, BatchView, DirectoryName, FileName, OffsetIndexEntry, SegmentFile,
    TimeIndexEntry,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The tables of FORMAT.md and their sizes in the code. The key length and value length that end a message without key and
/// value are 4 bytes each.
const TABLES: [(&str, usize); 13] = [
    ("FRAME_BYTES", FRAME_BYTES),
    ("BATCH_HEADER_V2_BYTES", BATCH_HEADER_V2_BYTES),
    ("CONTROL_KEY_BYTES", CONTROL_KEY_BYTES),
    ("MARKER_VALUE_BYTES", MARKER_VALUE_BYTES),
    (
        "MESSAGE_HEADER_V0_BYTES",
        LOG_OVERHEAD_BYTES + MINIMUM_LENGTH_V0 - 8,
    ),
    (
        "MESSAGE_HEADER_V1_BYTES",
        LOG_OVERHEAD_BYTES + MINIMUM_LENGTH_V1 - 8,
    ),
    ("OLD_HEADER_V0_BYTES", OLD_HEADER_V0_BYTES),
    ("OLD_HEADER_V1_BYTES", OLD_HEADER_V1_BYTES),
    ("OFFSET_INDEX_ENTRY_BYTES", OFFSET_INDEX_ENTRY_BYTES),
    ("TIME_INDEX_ENTRY_BYTES", TIME_INDEX_ENTRY_BYTES),
    ("ABORTED_TRANSACTION_BYTES", ABORTED_TRANSACTION_BYTES),
    ("SNAPSHOT_HEADER_BYTES", SNAPSHOT_HEADER_BYTES),
    ("SNAPSHOT_ENTRY_BYTES", SNAPSHOT_ENTRY_BYTES),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/FORMAT.md")).unwrap()
}

/// The cells of each row of the table behind the comment `marker`, heads left out.
fn rows<'a>(page: &'a str, marker: &str) -> Vec<Vec<&'a str>> {
    let (_, table) = page
        .split_once(&format!("<!-- {marker} -->\n"))
        .unwrap_or_else(|| panic!("no table {marker}"));
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
    rows.skip(2).map(cells).collect()
}

#[derive(Debug, Clone)]
struct Field {
    at: usize,
    size: usize,
    kind: String,
    name: String,
}

impl Field {
    fn read(&self, bytes: &[u8]) -> i128 {
        let bytes = &bytes[self.at..self.at + self.size];
        let unsigned = bytes
            .iter()
            .fold(0_i128, |value, &byte| value << 8 | i128::from(byte));
        let is_negative = self.kind.starts_with('i') && bytes[0] >= 0x80;
        unsigned - if is_negative { 1 << (8 * self.size) } else { 0 }
    }
}

fn table(page: &str, name: &str) -> Vec<Field> {
    rows(page, &format!("fields: {name}"))
        .into_iter()
        .map(|cells| Field {
            at: cells[0].parse().unwrap(),
            size: cells[1].parse().unwrap(),
            kind: cells[2].to_string(),
            name: cells[3].to_string(),
        })
        .collect()
}

/// Decodes by the page alone.
fn decode(table: &[Field], bytes: &[u8]) -> BTreeMap<String, i128> {
    let fields = table.iter();
    fields
        .map(|field| (field.name.clone(), field.read(bytes)))
        .collect()
}

fn assert_fields(
    found: &BTreeMap<String, i128>,
    expected: &[(&str, i128)],
    context: &dyn std::fmt::Debug,
) {
    for (name, value) in expected {
        assert_eq!(found.get(*name), Some(value), "{name} {context:?}");
    }
}

#[test]
fn field_tables_are_contiguous_and_as_long_as_the_constants() {
    let page = page();
    let named: BTreeSet<&str> = page
        .split("<!-- fields: ")
        .skip(1)
        .map(|rest| rest.split_once(" -->").unwrap().0)
        .collect();
    let known = TABLES.iter().map(|(name, _)| *name).chain(["variable"]);
    assert_eq!(named, known.collect());
    for (name, size) in TABLES {
        let mut end = 0;
        for field in table(&page, name) {
            assert_eq!(field.at, end, "{name} {field:?}");
            let bits: usize = field.kind[1..].parse().unwrap();
            assert_eq!(field.size * 8, bits, "{name} {field:?}");
            end += field.size;
        }
        assert_eq!(end, size, "{name}");
    }
}

#[test]
fn names_are_classified_as_the_page_says() {
    let page = page();
    let files = rows(&page, "names: file");
    assert!(files.len() >= 17);
    for cells in files {
        let name = cells[0].trim_matches('`');
        let name = name
            .replace("-E-R.", "-0000000003-871635.")
            .replace("-E.", "-0000000003.")
            .replace("B.", "00000000000000368769.")
            .replace("P.", "00000000000000368769.")
            .replace("P-", "00000000000000368769-");
        let found = format!("{:?}", FileName::classify(&name));
        assert!(found.starts_with(cells[1]), "{name}: {found}");
    }
    let directories = rows(&page, "names: directory");
    assert_eq!(directories.len(), 4);
    for cells in directories {
        let name = cells[0]
            .trim_matches('`')
            .replace("T-N", "orders-3")
            .replace('U', "ee6b1ada270c403eb05a742f835b7ff6");
        let found = DirectoryName::parse(&name).unwrap();
        assert_eq!((found.topic, found.partition), ("orders", 3));
        assert_eq!(format!("{:?}", found.state), cells[1]);
    }
}

struct DumpLine {
    at: usize,
    bytes: Vec<u8>,
    name: String,
    value: String,
}

struct Dump {
    tables: Vec<String>,
    file: Option<String>,
    lines: Vec<DumpLine>,
}

impl Dump {
    fn bytes(&self) -> Vec<u8> {
        let lines = self.lines.iter();
        lines.flat_map(|line| line.bytes.clone()).collect()
    }
}

fn dumps(page: &str) -> Vec<Dump> {
    page.split("\n```hex ")
        .skip(1)
        .map(|rest| {
            let (body, _) = rest.split_once("\n```").unwrap();
            let (head, body) = body.split_once('\n').unwrap();
            let option = |key: &str| head.split(' ').find_map(|word| word.strip_prefix(key));
            Dump {
                tables: option("tables=")
                    .unwrap()
                    .split(',')
                    .map(String::from)
                    .collect(),
                file: option("file=").map(String::from),
                lines: body.lines().map(dump_line).collect(),
            }
        })
        .collect()
}

fn dump_line(line: &str) -> DumpLine {
    let (front, value) = line.split_once(" = ").unwrap();
    let (at, rest) = front.trim_start().split_once(' ').unwrap();
    let (hex, name) = rest.trim_start().split_once(' ').unwrap();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    DumpLine {
        at: at.parse().unwrap(),
        bytes: hex.as_bytes().chunks(2).map(byte).collect(),
        name: name.trim_start().to_string(),
        value: value.to_string(),
    }
}

fn number(text: &str) -> i128 {
    match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

/// Every line of a dump stands where the one before ended, and means what its table and its words say.
#[test]
fn dumps_are_walked_byte_by_byte() {
    let page = page();
    let dumps = dumps(&page);
    assert_eq!(dumps.len(), 8);
    for dump in dumps {
        let all = dump.bytes();
        let mut lines = dump.lines.iter().peekable();
        let mut tables = dump.tables.iter().peekable();
        let mut current = tables.next().unwrap();
        let mut end = 0;
        while lines.peek().is_some() {
            if current == "record" || current == "message" {
                // Names say the type; that the whole is right is shown by decoding it below.
                for line in lines.by_ref() {
                    assert_eq!(line.at, end);
                    end += line.bytes.len();
                    check_variable(line, current == "message");
                }
                break;
            }
            let start = end;
            for field in table(&page, current) {
                let line = lines.next().unwrap();
                assert_eq!((line.at, line.at - start), (end, field.at), "{}", line.name);
                assert_eq!(
                    (&line.name, line.bytes.len()),
                    (&field.name, field.size),
                    "{current}"
                );
                assert_eq!(
                    field.read(&all[start..]),
                    number(&line.value),
                    "{}",
                    line.name
                );
                end += field.size;
            }
            current = tables.next().unwrap_or(current);
        }
        assert_eq!(end, all.len());
        if let Some(file) = &dump.file {
            let file = root().join("tests/data").join(file);
            let real =
                fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(real.starts_with(&all), "{}", file.display());
        }
    }
}

fn check_variable(line: &DumpLine, fixed_lengths: bool) {
    if let Some(text) = line.value.strip_prefix('"') {
        assert_eq!(text.trim_end_matches('"').as_bytes(), line.bytes);
        return;
    }
    let mut position = 0;
    let found = match line.name.as_str() {
        "attributes" => {
            position = 1;
            i64::from(line.bytes[0])
        }
        "timestamp delta" => read_varlong(&line.bytes, &mut position).unwrap(),
        _ if fixed_lengths => {
            position = 4;
            i64::from(i32::from_be_bytes(line.bytes[..].try_into().unwrap()))
        }
        _ => i64::from(read_varint(&line.bytes, &mut position).unwrap()),
    };
    assert_eq!(position, line.bytes.len(), "{}", line.name);
    assert_eq!(i128::from(found), number(&line.value), "{}", line.name);
}

/// The names of a record's lines follow the table «Record», and the batch is whole, with a right checksum.
#[test]
fn dumped_batch_decodes_to_what_the_page_tells_of_it() {
    let page = page();
    let dumps = dumps(&page);
    let dump = dumps
        .iter()
        .find(|dump| dump.tables.iter().any(|table| table == "record"))
        .unwrap();
    let bytes = dump.bytes();
    let batch = BatchView::parse(&bytes).unwrap();
    batch.check_crc().unwrap();
    assert_eq!(batch.bytes().len(), bytes.len());
    let mut records = RecordsV2::new(&batch.header, batch.payload()).unwrap();
    let mut found = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        let headers: Vec<_> = record.headers.iter().collect();
        found.push((
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            headers,
        ));
    }
    let (key, none) = (b"h".as_slice(), None);
    assert_eq!(
        found,
        [
            (
                0,
                1000,
                Some(b"k".as_slice()),
                Some(b"v1".as_slice()),
                vec![(key, Some(b"x".as_slice())), (key, none)]
            ),
            (1, 1005, None, Some(b"".as_slice()), vec![]),
            (2, 999, Some(b"k2".as_slice()), None, vec![]),
        ]
    );
    let documented: Vec<_> = rows(&page, "fields: variable")
        .iter()
        .map(|cells| cells[3].to_string())
        .collect();
    let mut place = 0;
    for line in dump
        .lines
        .iter()
        .filter(|line| line.at >= BATCH_HEADER_V2_BYTES)
    {
        let next = documented
            .iter()
            .position(|name| *name == line.name)
            .unwrap();
        let is_next_header = line.name == "header key length";
        assert!(
            next > place || next == 0 || is_next_header,
            "{} out of order",
            line.name
        );
        place = next;
    }
    for dump in &dumps {
        let bytes = dump.bytes();
        if dump.tables.iter().any(|table| table.starts_with("OLD_")) {
            let message = OldMessages::new(&bytes).next_message().unwrap().unwrap();
            assert_eq!(message.size_bytes, bytes.len());
        } else if dump.tables.iter().any(|table| table == "message") {
            BatchView::parse(&bytes).unwrap().check_crc().unwrap();
        }
    }
}

/// Source comments lead readers to sections by title.
#[test]
fn sections_that_comments_name_exist() {
    let page = page();
    let titles: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    let mut sources = Vec::new();
    files_below(&root().join("rust"), &mut sources);
    let mut named = 0;
    for source in sources {
        if source.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&source).unwrap();
        for line in text.lines().filter(|line| line.contains("FORMAT.md «")) {
            let (_, list) = line.split_once("FORMAT.md «").unwrap();
            for title in list.split('«') {
                let Some((title, _)) = title.split_once('»') else {
                    continue;
                };
                assert!(titles.contains(title), "{}: «{title}»", source.display());
                named += 1;
            }
        }
    }
    assert!(named >= 15, "{named}");
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Decodes files of brokers that stopped in order by the tables alone and by the crate: both must agree on every field.
#[test]
fn tables_and_code_read_real_files_alike() {
    let page = page();
    let mut files = Vec::new();
    for set in ["kafka-4.3.0/clean", "kafka-2.8.2"] {
        files_below(&root().join("tests/data").join(set), &mut files);
    }
    let mut kinds: BTreeMap<SegmentFile, usize> = BTreeMap::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let FileName::Segment(name) = FileName::classify(name) else {
            continue;
        };
        let bytes = fs::read(&file).unwrap();
        let entries = check_segment_file(&page, name.file, name.offset, &bytes, &file);
        *kinds.entry(name.file).or_default() += entries;
    }
    for file in SegmentFile::ALL {
        assert!(
            kinds.get(&file).is_some_and(|&count| count >= 10),
            "{file:?}"
        );
    }
}

fn check_segment_file(
    page: &str,
    file: SegmentFile,
    base_offset: i64,
    bytes: &[u8],
    path: &Path,
) -> usize {
    let base = i128::from(base_offset);
    match file {
        SegmentFile::Log => check_batches(page, bytes, path),
        SegmentFile::OffsetIndex => {
            let table = table(page, "OFFSET_INDEX_ENTRY_BYTES");
            let count = offset_entry_count(bytes);
            for slot in 0..count {
                let entry = OffsetIndexEntry::read(bytes, slot, base_offset).unwrap();
                let found = decode(&table, &bytes[slot * OFFSET_INDEX_ENTRY_BYTES..]);
                let expected = [
                    ("relative offset", i128::from(entry.offset) - base),
                    ("position", i128::from(entry.position)),
                ];
                assert_fields(&found, &expected, &path);
            }
            count
        }
        SegmentFile::TimeIndex => {
            let table = table(page, "TIME_INDEX_ENTRY_BYTES");
            let count = time_entry_count(bytes);
            for slot in 0..count {
                let entry = TimeIndexEntry::read(bytes, slot, base_offset).unwrap();
                let found = decode(&table, &bytes[slot * TIME_INDEX_ENTRY_BYTES..]);
                let expected = [
                    ("timestamp", i128::from(entry.timestamp)),
                    ("relative offset", i128::from(entry.offset) - base),
                ];
                assert_fields(&found, &expected, &path);
            }
            count
        }
        SegmentFile::TransactionIndex => {
            let table = table(page, "ABORTED_TRANSACTION_BYTES");
            let count = aborted_transaction_count(bytes);
            for slot in 0..count {
                let entry = AbortedTransaction::read(bytes, slot).unwrap();
                let found = decode(&table, &bytes[slot * ABORTED_TRANSACTION_BYTES..]);
                let expected = [
                    ("version", 0),
                    ("producer id", entry.producer_id.into()),
                    ("first offset", entry.first_offset.into()),
                    ("last offset", entry.last_offset.into()),
                    ("last stable offset", entry.last_stable_offset.into()),
                ];
                assert_fields(&found, &expected, &path);
            }
            count
        }
        SegmentFile::ProducerSnapshot => check_snapshot(page, bytes, path),
    }
}

fn check_snapshot(page: &str, bytes: &[u8], path: &Path) -> usize {
    let entries = read_producer_snapshot(bytes).unwrap();
    let head = decode(&table(page, "SNAPSHOT_HEADER_BYTES"), bytes);
    let expected = [("version", 1), ("entry count", entries.len() as i128)];
    assert_fields(&head, &expected, &path);
    let table = table(page, "SNAPSHOT_ENTRY_BYTES");
    for (slot, entry) in entries.iter().enumerate() {
        let found = decode(
            &table,
            &bytes[SNAPSHOT_HEADER_BYTES + slot * SNAPSHOT_ENTRY_BYTES..],
        );
        let expected = [
            ("producer id", entry.producer_id.into()),
            ("producer epoch", entry.producer_epoch.into()),
            ("last sequence", entry.last_sequence.into()),
            ("last offset", entry.last_offset.into()),
            ("offset delta", entry.offset_delta.into()),
            ("timestamp", entry.timestamp.into()),
            ("coordinator epoch", entry.coordinator_epoch.into()),
            (
                "transaction first offset",
                entry.current_transaction_first_offset.into(),
            ),
        ];
        assert_fields(&found, &expected, &path);
    }
    entries.len()
}

fn check_batches(page: &str, bytes: &[u8], path: &Path) -> usize {
    let tables = [
        table(page, "MESSAGE_HEADER_V0_BYTES"),
        table(page, "MESSAGE_HEADER_V1_BYTES"),
        table(page, "BATCH_HEADER_V2_BYTES"),
    ];
    let (mut position, mut count) = (0, 0);
    while position < bytes.len() {
        let batch = BatchView::parse(&bytes[position..])
            .unwrap_or_else(|error| panic!("{}: {position}: {error}", path.display()));
        let header = batch.header;
        let found = decode(&tables[header.magic as usize], batch.bytes());
        let length = (header.size_bytes - LOG_OVERHEAD_BYTES) as i128;
        let common = [
            ("magic", header.magic.into()),
            ("crc", header.crc.into()),
            ("attributes", header.attributes.0.into()),
        ];
        assert_fields(&found, &common, &path);
        if header.magic == 2 {
            let base_offset = i128::from(header.base_offset.unwrap());
            let expected = [
                ("base offset", base_offset),
                ("length", length),
                ("leader epoch", header.leader_epoch.into()),
                (
                    "last offset delta",
                    i128::from(header.last_offset) - base_offset,
                ),
                ("base timestamp", header.base_timestamp.into()),
                ("max timestamp", header.max_timestamp.into()),
                ("producer id", header.producer_id.into()),
                ("producer epoch", header.producer_epoch.into()),
                ("base sequence", header.base_sequence.into()),
                ("record count", header.record_count.into()),
            ];
            assert_fields(&found, &expected, &path);
        } else {
            let expected = [("offset", header.last_offset.into()), ("size", length)];
            assert_fields(&found, &expected, &path);
            if header.magic == 1 {
                let timestamp = [("timestamp", header.max_timestamp.into())];
                assert_fields(&found, &timestamp, &path);
            }
        }
        batch.check_crc().unwrap();
        position += header.size_bytes;
        count += 1;
    }
    count
}
