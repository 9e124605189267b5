//! `grep` beside what a real consumer saw: each answer is worked out from the expected records alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{
    Outcome, SETS, arguments, copy, data, lookups, offsetlog, offsetlog_on, paths, records,
};
use offsetlog_cli::Terminal;
use serde_json::Value;
use std::path::Path;

fn run(line: &str) -> Outcome {
    offsetlog(&arguments(line))
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| STANDARD.decode(text).unwrap())
}

fn holds(bytes: Option<Vec<u8>>, wanted: &[u8]) -> bool {
    bytes.is_some_and(|bytes| bytes.windows(wanted.len()).any(|window| window == wanted))
}

/// The offsets of the expected records of which a part holds the bytes.
fn expected(records: &[Value], places: &[&str], wanted: &[u8]) -> Vec<i64> {
    let matches = |record: &&Value| {
        let headers = record["headers"].as_array().unwrap().iter().any(|header| {
            let name = header[0].as_str().unwrap().as_bytes().to_vec();
            holds(Some(name), wanted) || holds(bytes(&header[1]), wanted)
        });
        places.contains(&"key") && holds(bytes(&record["key"]), wanted)
            || places.contains(&"value") && holds(bytes(&record["value"]), wanted)
            || places.contains(&"headers") && headers
    };
    let found = records.iter().filter(matches);
    found
        .map(|record| record["offset"].as_i64().unwrap())
        .collect()
}

/// Text, bytes and expressions, in each part and in all, over every partition of both clusters in one run each.
#[test]
fn every_partition_gives_the_records_that_a_consumer_saw_there() {
    let searches: [(&[&str], &[&str], &[u8]); 6] = [
        (&["alpha"], &["key", "value", "headers"], b"alpha"),
        (
            &["-F", "\"id\":1", "--in", "value"],
            &["value"],
            b"\"id\":1",
        ),
        (&["key-1[0-9]|ключ", "--in", "key"], &[], b""),
        (&["dup", "--in", "headers"], &["headers"], b"dup"),
        (
            &["--hex", "00FF", "--in", "key,value"],
            &["key", "value"],
            b"\x00\xff",
        ),
        (
            &["-F", "ключ", "--in", "headers", "--in", "key"],
            &["key", "headers"],
            "ключ".as_bytes(),
        ),
    ];
    let mut compared = 0;
    for (dirs, folder) in SETS {
        for (words, places, wanted) in &searches {
            let mut line = vec!["grep".to_owned()];
            line.extend(words.iter().map(ToString::to_string));
            line.extend(paths(dirs));
            line.extend([
                "--json".to_owned(),
                "--threads".to_owned(),
                "3".to_owned(),
                "-q".to_owned(),
            ]);
            let outcome = offsetlog(&line);
            let lines = outcome.lines();
            let mut total = 0;
            for name in lookups(folder).keys() {
                let records = records(folder, name);
                let wanted = if places.is_empty() {
                    let mut both = expected(&records, &["key"], "ключ".as_bytes());
                    for digit in 0..10 {
                        both.extend(expected(
                            &records,
                            &["key"],
                            format!("key-1{digit}").as_bytes(),
                        ));
                    }
                    both.sort_unstable();
                    both
                } else {
                    expected(&records, places, wanted)
                };
                let (topic, partition) = name.rsplit_once('-').unwrap();
                let partition: i64 = partition.parse().unwrap();
                let found: Vec<i64> = lines
                    .iter()
                    .filter(|line| line["topic"] == topic && line["partition"] == partition)
                    .map(|line| line["offset"].as_i64().unwrap())
                    .collect();
                assert_eq!(found, wanted, "{name} {words:?}");
                total += wanted.len();
                compared += 1;
            }
            assert_eq!(lines.len(), total, "{words:?}");
            assert_eq!(
                outcome.code,
                i32::from(total == 0),
                "{words:?} {}",
                outcome.err
            );
        }
    }
    println!("{compared} partitions compared");
    assert!(compared >= 6 * 60, "{compared}");
}

const PLAIN: &str = "kafka-4.3.0/clean/log-dir-1/g-plain-0";

#[test]
fn ranges_counts_and_limits_hold() {
    let all = records("expected/kafka-4.3.0-clean", "g-plain-0");
    let offsets = expected(&all, &["key", "value", "headers"], b"alpha");
    let text = |line: &str| run(line).text().to_owned();
    let shown = |line: &str| -> Vec<i64> {
        let text = text(&format!("grep alpha {PLAIN} -f %o\\n {line}"));
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let within = |low: i64, high: i64| -> Vec<i64> {
        let inside = offsets.iter().filter(|offset| (low..high).contains(offset));
        inside.copied().collect()
    };
    assert_eq!(shown("-o 50"), within(50, i64::MAX));
    assert_eq!(shown("-o -20"), within(180, 200));
    assert_eq!(shown("-m 3"), offsets[..3]);
    let time = all[offsets[4] as usize]["timestamp"].as_i64().unwrap();
    // Times go back and forth: the first record at or after one decides.
    let first_at = all
        .iter()
        .position(|record| record["timestamp"].as_i64().unwrap() >= time);
    let first_at = i64::try_from(first_at.unwrap()).unwrap();
    assert_eq!(shown(&format!("-o s@{time}")), within(first_at, i64::MAX));
    assert_eq!(shown(&format!("-o e@{time}")), within(0, first_at));
    let others = all.len() - offsets.len();
    assert_eq!(
        text(&format!("grep -v --count alpha {PLAIN}")),
        format!("g-plain-0:{others}\n")
    );
    assert_eq!(
        text(&format!("grep --count --json alpha {PLAIN}")),
        format!(
            "{{\"topic\":\"g-plain\",\"partition\":0,\"count\":{}}}\n",
            offsets.len()
        )
    );
    assert_eq!(
        offsets.len(),
        run(&format!("grep -i ALPHA {PLAIN}"))
            .text()
            .lines()
            .count()
    );
    let first = text(&format!("grep alpha {PLAIN} -m 1"));
    assert!(
        first.starts_with(&format!("g-plain-0:{}:", offsets[0])),
        "{first}"
    );
}

#[test]
fn codes_are_those_of_grep() {
    assert_eq!(run(&format!("grep nowhere-to-be-found {PLAIN}")).code, 1);
    assert_eq!(run(&format!("grep alpha {PLAIN}")).code, 0);
    let bad = run(&format!("grep a( {PLAIN}"));
    assert_eq!((bad.code, bad.text()), (2, ""));
    assert_eq!(
        bad.err,
        "offsetlog: the pattern is no regular expression: unclosed group; -F takes it as text\n"
    );
    assert_eq!(run(&format!("grep --hex abc {PLAIN}")).code, 2);
    assert_eq!(run("grep x no-such-directory").code, 2);
    assert_eq!(run(&format!("grep a {PLAIN} -f %R")).code, 2);
}

/// What stands before damage is found and printed, the place is named, other partitions go on.
#[test]
fn damage_is_named_and_hides_nothing_else() {
    let outcome =
        run("grep . kafka-4.3.0/torn/log-dir-1 -t g-torn-flip-old -t g-torn-none -f %t:%o\\n");
    assert_eq!(outcome.code, 2);
    let count = |topic: &str| {
        let lines = outcome.text().lines();
        lines
            .filter(|line| line.split(':').next() == Some(topic))
            .count()
    };
    assert_eq!((count("g-torn-flip-old"), count("g-torn-none")), (36, 96));
    assert!(
        outcome
            .err
            .contains("g-torn-flip-old-0: record batch checksum mismatch"),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains("position 294"), "{}", outcome.err);
}

/// Skipping finds what stands behind damage, and says what it left out.
#[test]
fn damage_can_be_skipped() {
    let outcome =
        run("grep . kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0 --on-corrupt skip -f %o\\n");
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    let found: Vec<i64> = outcome
        .text()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(found, (0..36).chain(40..96).collect::<Vec<_>>());
    assert!(
        outcome.err.contains("00000000000000000032.log"),
        "{}",
        outcome.err
    );
    let stopped =
        run("grep . kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0 --on-corrupt stop --count");
    assert_eq!(
        (stopped.code, stopped.text()),
        (0, "g-torn-flip-old-0:36\n")
    );
}

/// Many blocks of output, more partitions than threads: the order is that of one thread.
#[test]
fn threads_change_nothing_but_time() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..12 {
        copy(
            Path::new(&data(PLAIN)),
            &root.path().join(format!("copied-{number}")),
        );
    }
    let dir = root.path().to_str().unwrap();
    let run = |threads: &str| {
        offsetlog(&[
            "grep",
            "a",
            dir,
            "--threads",
            threads,
            "-f",
            "%t-%p:%o:%s%s%s%s%s%s%s%s\n",
        ])
    };
    let one = run("1");
    assert!(one.out.len() > 12 * (64 << 10), "{}", one.out.len());
    for threads in ["2", "5", "40"] {
        assert!(run(threads).out == one.out, "{threads} threads");
    }
}

/// A reader that has seen enough ends the search, whatever waits in channels.
#[test]
fn a_closed_pipe_ends_the_search() {
    struct Closed(usize);
    impl std::io::Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(std::io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut err = Vec::new();
    let line = format!(
        "offsetlog grep . {} {} --threads 4",
        data("kafka-4.3.0/clean/log-dir-1"),
        data("kafka-4.3.0/clean/log-dir-2")
    );
    let code = offsetlog_cli::run(
        line.split(' ').map(Into::into),
        &mut Closed(70_000),
        &mut err,
        Terminal::default(),
    );
    assert_eq!((code, String::from_utf8(err).unwrap().as_str()), (0, ""));
}

#[test]
fn a_terminal_gets_no_control_characters() {
    let terminal = Terminal {
        stdout_is_terminal: true,
        ..Terminal::default()
    };
    let line = format!("grep (?s). {PLAIN} -f %k:%s:%h\\n");
    let outcome = offsetlog_on(terminal, &arguments(&line));
    assert!(outcome.text().chars().all(|c| !c.is_control() || c == '\n'));
    assert_eq!(
        outcome.text().lines().count(),
        run(&line).text().lines().count()
    );
}
