//! `offsetlog append` that does not go to the end of its input: what is refused is named, and what was read before it is kept.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{Place, offsetlog_fed, offsetlog_on, wait_until};
use offsetlog::{LogWriter, OpenOptions, WriteOptions};
use offsetlog_cli::Terminal;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, mpsc};

#[test]
fn a_bad_line_is_named_and_those_before_it_are_appended() {
    for (input, options, reason) in [
        ("a:1\nb:2\nbad\nc:3\n", "-K :", "no \":\" behind the key"),
        (
            "61:1\n62:2\nxx:3\n",
            "-K : --key-format hex",
            "the key is not hexadecimal",
        ),
        (
            "MQ==\nMg==\nM\n",
            "--value-format base64",
            "the value is not base64",
        ),
        ("1\n2\n{\n", "--value-format json", "the value is not JSON"),
        (
            "{\"payload\":\"a\"}\n{\"payload\":\"b\"}\n{\"payload\":1}\n",
            "-J",
            "payload: a text",
        ),
        (
            "{\"payload\":\"a\"}\n{\"payload\":\"b\"}\nplain\n",
            "-J",
            "no JSON object",
        ),
        (
            "a=1\tx\n\ty\nz\n",
            r"--headers-separator \t",
            "no \"\\t\" behind the headers",
        ),
        (
            "a:1\nb:2\nc:3\n",
            "-K : --batch-bytes 1 -D : --timestamp 1",
            "no \":\" behind the key",
        ),
    ] {
        let place = Place::new();
        let outcome = place.append(input, options);
        assert_eq!(outcome.code, 4, "{options}: {}", outcome.err);
        if options.contains("-D") {
            assert!(outcome.err.contains("record 1: "), "{}", outcome.err);
            assert!(outcome.err.ends_with("; before it nothing appended\n"));
            continue;
        }
        assert!(
            outcome
                .err
                .starts_with(&format!("offsetlog: line 3: {reason}")),
            "{options}: {}",
            outcome.err
        );
        assert!(
            outcome
                .err
                .ends_with("; before it 2 records appended at offsets 0 to 1\n"),
            "{}",
            outcome.err
        );
        assert_eq!(outcome.err.matches('\n').count(), 1);
        assert_eq!(place.records().len(), 2, "{options}");
        assert!(place.is_closed_cleanly());
        if options == "-J" {
            assert_eq!(outcome.lines()[0]["appended"], 2);
        }
    }
}

/// The log refuses batches; the line is named all the same, and everything before it is in.
#[test]
fn a_record_that_the_log_refuses_is_named_too() {
    let far = "{\"payload\":\"x\",\"ts\":99999999999999}";
    let fine = "{\"payload\":\"x\",\"key\":\"k\"}";
    let compacted = "--config cleanup.policy=compact";
    let small = "--config max.message.bytes=300";
    let large = format!("{{\"payload\":\"{}\"}}", "x".repeat(400));
    for (bad, options, reason) in [
        (far, "", "timestamp 99999999999999 found"),
        ("{\"payload\":\"x\",\"ts\":-2}", "", "timestamp -2 found"),
        ("{\"payload\":\"x\"}", compacted, "the record has no key"),
        (large.as_str(), small, "record batch of "),
    ] {
        for (before, behind) in [(0, 0), (1, 1), (5, 3), (70, 200)] {
            for batch_bytes in [1, 100, 1 << 20] {
                let place = Place::new();
                let fine_lines = |count| format!("{fine}\n").repeat(count);
                let input = format!("{}{bad}\n{}", fine_lines(before), fine_lines(behind));
                let outcome =
                    place.append(input, &format!("-J {options} --batch-bytes {batch_bytes}"));
                let case = format!("{reason}, {before}, {batch_bytes}");
                assert_eq!(outcome.code, 4, "{case}");
                let line = format!("offsetlog: line {}: {reason}", before + 1);
                assert!(outcome.err.starts_with(&line), "{case}: {}", outcome.err);
                assert_eq!(outcome.lines()[0]["appended"], before, "{case}");
                assert_eq!(place.records().len(), before, "{case}");
            }
        }
    }
}

/// An input whose pieces the test hands over one by one, and which counts how often it was asked for more.
struct Fed {
    pieces: Receiver<Vec<u8>>,
    rest: Vec<u8>,
    asked: Arc<AtomicUsize>,
}

impl Read for Fed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.asked.fetch_add(1, Ordering::SeqCst);
            match self.pieces.recv() {
                Ok(piece) => self.rest = piece,
                Err(_) => return Ok(0),
            }
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

fn slow_terminal() -> (Sender<Vec<u8>>, Terminal, Arc<AtomicUsize>) {
    let (sender, pieces) = mpsc::channel();
    let asked = Arc::new(AtomicUsize::new(0));
    let fed = Mutex::new(Some(Fed {
        pieces,
        rest: Vec::new(),
        asked: Arc::clone(&asked),
    }));
    let terminal = Terminal {
        stdin: Some(Arc::new(move || {
            Box::new(fed.lock().unwrap().take().unwrap())
        })),
        ..Terminal::default()
    };
    (sender, terminal, asked)
}

/// `tail -F app.log | offsetlog append`: a record does not wait for its batch to be full, nor for the input to end.
#[test]
fn records_do_not_wait_for_the_end_of_the_input() {
    let place = Place::new();
    let (sender, terminal, _) = slow_terminal();
    let arguments = place.arguments("--linger 20");
    let running = std::thread::spawn(move || offsetlog_on(terminal, &arguments));
    sender.send(b"one\ntw".to_vec()).unwrap();
    wait_until("one record", || {
        place.path.exists() && place.records().len() == 1
    });
    sender.send(b"o\nthree".to_vec()).unwrap();
    wait_until("two records", || place.records().len() == 2);
    drop(sender);
    let outcome = running.join().unwrap();
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(place.values(), ["one", "two", "three"]);
}

#[test]
fn an_interrupt_keeps_what_was_read() {
    let place = Place::new();
    let (sender, mut terminal, asked) = slow_terminal();
    let heard = AtomicUsize::new(0);
    // The second time that input is asked for, the first piece waits to be taken: it is taken before the third question behind that.
    terminal.interrupt = Some(Arc::new(move || {
        asked.load(Ordering::SeqCst) >= 2 && heard.fetch_add(1, Ordering::SeqCst) >= 2
    }));
    let arguments = place.arguments("--linger 60000 --json --format lines");
    sender.send(b"one\ntwo\nunfini".to_vec()).unwrap();
    let running = std::thread::spawn(move || offsetlog_on(terminal, &arguments));
    let outcome = running.join().unwrap();
    drop(sender);
    assert_eq!(
        (outcome.code, outcome.err.as_str()),
        (
            130,
            "offsetlog: orders-0: interrupted: 2 records appended at offsets 0 to 1, 81 bytes\n"
        )
    );
    assert_eq!(outcome.lines()[0]["appended"], 2);
    assert_eq!(place.values(), ["one", "two"]);
    assert!(place.is_closed_cleanly());
}

/// Input that never pauses is interrupted between batches.
#[test]
fn an_interrupt_is_heard_while_input_comes() {
    let place = Place::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let terminal = Terminal {
        stdin: Some(Arc::new(|| Box::new(io::repeat(b'\n')))),
        interrupt: Some(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed) >= 40
        })),
        ..Terminal::default()
    };
    let outcome = offsetlog_on(terminal, &place.arguments("--batch-bytes 1K"));
    assert_eq!(outcome.code, 130, "{}", outcome.err);
    assert!(outcome.err.contains("interrupted: "), "{}", outcome.err);
    assert!(!place.batches().is_empty());
    assert!(place.is_closed_cleanly());
}

#[test]
fn input_that_cannot_be_read_ends_with_2_and_keeps_what_came() {
    struct Broken(bool);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("the tape is torn"));
            }
            buffer[..8].copy_from_slice(b"one\ntwo\n");
            Ok(8)
        }
    }
    let place = Place::new();
    let terminal = Terminal {
        stdin: Some(Arc::new(|| Box::new(Broken(false)))),
        ..Terminal::default()
    };
    let outcome = offsetlog_on(terminal, &place.arguments(""));
    assert_eq!(
        (outcome.code, outcome.err.as_str()),
        (
            2,
            "offsetlog: cannot read standard input: the tape is torn; before that 2 records appended at offsets 0 to 1\n"
        )
    );
    assert_eq!(place.values(), ["one", "two"]);
}

#[test]
fn mistakes_change_nothing_and_say_what_to_do() {
    let place = Place::new();
    for (options, expected) in [
        ("--config segmnt.bytes=1", "did you mean segment.bytes?"),
        ("--config segment.bytes=x", "segment.bytes: \"x\" found"),
        ("--config segment.bytes", "a setting is written NAME=VALUE"),
        ("--config a=1 --config a=2", "the setting a is given twice"),
        ("--topic-id short", "a topic id has 22 characters"),
        ("--timestamp soon", "not the word now, and neither"),
        ("--timestamp -5", "0 or more, or -1 for none"),
        ("--batch-bytes 0", "1 byte to 2 GiB"),
        ("--batch-bytes 16X", "a size is written"),
        ("--compression lzma", "invalid value 'lzma'"),
        ("-K : -k x", "cannot be used with"),
        ("-Z --null-value x", "cannot be used with"),
        ("--json -K :", "-K is for lines"),
        ("--format json -Z", "-Z is for lines"),
        ("--format json --null-value x", "--null-value is for lines"),
        ("--format csv", "invalid value 'csv'"),
        ("extra", "unexpected argument 'extra'"),
    ] {
        let outcome = place.append("a\n", options);
        assert_eq!(outcome.code, 2, "{options}");
        assert!(outcome.err.starts_with("offsetlog: "), "{}", outcome.err);
        assert!(outcome.err.contains(expected), "{options}: {}", outcome.err);
        assert_eq!(outcome.err.matches('\n').count(), 1, "{}", outcome.err);
        assert!(!place.path.exists(), "{options}");
    }
    for (path, expected) in [
        ("orders", "a name such as \"orders-0\" would do"),
        ("no topic-0", "topic name \"no topic\""),
    ] {
        let path = place.path.with_file_name(path);
        let outcome = offsetlog_fed("a\n", &["append", path.to_str().unwrap()]);
        assert_eq!(outcome.code, 2);
        assert!(outcome.err.contains(expected), "{}", outcome.err);
        assert!(!path.exists());
    }
}

#[test]
fn a_log_that_somebody_writes_is_left_to_them() {
    let place = Place::new();
    place.append("a\n", "");
    let write = WriteOptions::default();
    let log = LogWriter::open(&place.path, &OpenOptions::default(), &write).unwrap();
    let outcome = place.append("b\n", "");
    assert_eq!(outcome.code, 2);
    assert!(
        outcome
            .err
            .contains(&format!("process {} writes this log", std::process::id())),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains("; stop that first"), "{}", outcome.err);
    log.close().unwrap();
    assert_eq!(place.append("b\n", "").code, 0);
}

/// What a killed writer left is cut and kept, and said; whole batches behind damage are not cut unasked.
#[test]
fn an_unfinished_end_is_told_and_damage_is_refused() {
    let place = Place::new();
    place.append("one\ntwo\n", "--batch-bytes 1");
    let path = place.path.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.len();
    bytes.extend(b"unfinished");
    std::fs::write(&path, &bytes).unwrap();
    let outcome = place.append("three\n", "");
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(
        outcome.err.starts_with(&format!(
            "offsetlog: warning: orders-0: the last writer was stopped; cut: 00000000000000000000.log from position {whole}, 10 bytes: "
        )),
        "{}",
        outcome.err
    );
    assert!(
        outcome.err.contains(&format!(
            "kept in offsetlog-cut/00000000000000000000.log.{whole}\n"
        )),
        "{}",
        outcome.err
    );
    assert_eq!(place.values(), ["one", "two", "three"]);

    let mut bytes = std::fs::read(&path).unwrap();
    bytes[65] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let outcome = place.append("four\n", "");
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.err.contains("checksum mismatch") && outcome.err.contains("offsetlog recover"),
        "{}",
        outcome.err
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// Names of members come from the input and go to a terminal.
#[test]
fn messages_hold_no_control_characters_of_the_input() {
    let place = Place::new();
    for (input, options) in [
        ("{\"\\u001b[31m\":1}", "-J"),
        ("a\x1b[31m,b\tx", "--headers-separator \\t"),
        ("x", "-K \x1b[31m"),
        ("{\"\u{202e}\":1}", "-J"),
        ("{\x1b[31m", "--value-format json"),
    ] {
        let outcome = place.append(input, options);
        assert_eq!(outcome.code, 4, "{options}");
        let shown = outcome.err.trim_end();
        assert!(
            !shown.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{shown:?}"
        );
    }
}

#[test]
fn somebody_who_types_is_told_how_to_end() {
    let place = Place::new();
    let typed = |options: &str| {
        let terminal = Terminal {
            stdin: Some(Arc::new(|| Box::new(io::empty()))),
            stdin_is_terminal: true,
            ..Terminal::default()
        };
        offsetlog_on(terminal, &place.arguments(options)).err
    };
    assert!(typed("").contains("Ctrl-D ends the input\n"));
    assert_eq!(typed("-q"), "");
}
