//! `dump --kafka` beside the very texts that Kafka 4.3.0's tool printed, with what it said on standard error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Outcome, data, offsetlog};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

const MARK: &str = "--- stderr ---\n";

/// Options by the ending of a text's name; other endings are an option's name.
fn options(mode: &str) -> Vec<String> {
    match mode {
        "plain" => vec![],
        "deep" => vec!["--deep-iteration".into()],
        "deep-data" => vec!["--deep-iteration".into(), "--print-data-log".into()],
        decoder => vec![format!("--{decoder}")],
    }
}

/// The file below the data that a text is of: slashes are written as `__`, and topics may begin with two themselves.
fn source(stem: &str) -> String {
    stem.replace("____", "/\0")
        .replace("__", "/")
        .replace('\0', "__")
}

fn read(path: &PathBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

fn dump(file: &str, options: &[String]) -> Outcome {
    let mut arguments = vec!["dump".to_owned(), "--kafka".to_owned(), file.to_owned()];
    arguments.extend_from_slice(options);
    offsetlog(&arguments)
}

#[test]
fn every_text_of_kafkas_tool_is_printed_identically() {
    let root = data("");
    let mut compared = BTreeMap::new();
    let mut files = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(data("dump")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let stem = name.strip_suffix(".txt.gz").expect("only texts are here");
        let (stem, mode) = stem.rsplit_once('.').unwrap();
        let file = source(stem);
        let text = read(&entry.path());
        let at = text
            .windows(MARK.len())
            .position(|window| window == MARK.as_bytes());
        let (out, err) = match at {
            Some(at) => (&text[..at], &text[at + MARK.len()..]),
            None => (text.as_slice(), &[][..]),
        };
        let outcome = dump(&data(&file), &options(mode));
        // The tool was run beside the data, with relative paths.
        let printed = outcome.text().replacen(&root, "", 1);
        assert!(
            printed.as_bytes() == out,
            "{name}: {}",
            first_difference(&printed, out)
        );
        let said = outcome.err.replace(&root, "");
        assert_eq!(said, std::str::from_utf8(err).unwrap(), "{name}");
        let died = err.starts_with(b"Exception");
        assert_eq!(outcome.code, i32::from(died), "{name}");
        *compared.entry(mode.to_owned()).or_insert(0) += 1;
        files.insert(file);
    }
    let counts: Vec<(&str, i32)> = compared
        .iter()
        .map(|(mode, count)| (mode.as_str(), *count))
        .collect();
    assert_eq!(
        counts,
        [
            ("cluster-metadata-decoder", 1),
            ("deep", 24),
            ("deep-data", 24),
            ("offsets-decoder", 1),
            ("plain", 40),
            ("transaction-log-decoder", 1),
        ]
    );
    assert_eq!(files.len(), 40);
}

fn first_difference(printed: &str, expected: &[u8]) -> String {
    let expected = String::from_utf8_lossy(expected);
    let pair = printed
        .lines()
        .zip(expected.lines())
        .find(|(one, other)| one != other);
    pair.map_or_else(
        || "one is longer".into(),
        |(one, other)| format!("\n{one}\nexpected\n{other}"),
    )
}
