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
        assert_eq!(outcome.code, if died { 3 } else { 0 }, "{name}");
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
            ("cluster-metadata-decoder", 7),
            ("deep", 29),
            ("deep-data", 29),
            ("offsets-decoder", 7),
            ("plain", 40),
            ("share-group-state-decoder", 7),
            ("transaction-log-decoder", 7),
        ]
    );
    assert_eq!(files.len(), 47);
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

#[test]
fn options_that_need_java_are_refused_in_words() {
    let file = data("kafka-4.3.0/clean/log-dir-1/g-plain-0/00000000000000000000.log");
    for options in [
        vec!["--remote-log-metadata-decoder".to_owned()],
        vec!["--key-decoder-class".to_owned(), "my.Decoder".to_owned()],
        vec!["--value-decoder-class=my.Decoder".to_owned()],
    ] {
        let told = dump(&file, &options);
        assert_eq!((told.code, told.out.len()), (2, 0));
        let error = told.err;
        assert!(error.contains("Kafka's own tool"), "{error}");
    }
    let text = ["--value-decoder-class=kafka.serializer.StringDecoder".to_owned()];
    assert_eq!(dump(&file, &text).code, 0);
}
