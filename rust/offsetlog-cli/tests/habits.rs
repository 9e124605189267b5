//! How the command behaves: where to start, what it says and where, exit codes, what may reach a terminal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{Outcome, arguments, data, lookups, offsetlog, offsetlog_on, records};
use offsetlog_cli::Terminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CLEAN: &str = "kafka-4.3.0/clean/log-dir-1";
const EXPECTED: &str = "expected/kafka-4.3.0-clean";

fn run(line: &str) -> Outcome {
    offsetlog(&arguments(line))
}

fn offsets(line: &str) -> Vec<i64> {
    run(&format!("cat -f %o\\n {line}"))
        .text()
        .lines()
        .map(|offset| offset.parse().unwrap())
        .collect()
}

/// Offsets of a partition's records that a real consumer saw, from `start` on and below `stop`.
fn seen(partition: &str, start: i64, stop: i64) -> Vec<i64> {
    let offsets = records(EXPECTED, partition)
        .into_iter()
        .map(|record| record["offset"].as_i64().unwrap());
    offsets
        .filter(|offset| (start..stop).contains(offset))
        .collect()
}

#[test]
fn offset_words_start_where_kcat_starts() {
    let path = format!("{CLEAN}/g-deleted-prefix-0");
    let all = seen("g-deleted-prefix-0", 74, 150);
    assert_eq!(offsets(&path), all);
    assert_eq!(offsets(&format!("-o beginning {path}")), all);
    assert_eq!(
        offsets(&format!("-o 100 {path}")),
        seen("g-deleted-prefix-0", 100, 150)
    );
    assert_eq!(
        offsets(&format!("-o -10 {path}")),
        seen("g-deleted-prefix-0", 140, 150)
    );
    assert_eq!(offsets(&format!("-o-500 {path}")), all);
    assert_eq!(offsets(&format!("-o end {path}")), Vec::<i64>::new());
    assert_eq!(offsets(&format!("-o 149 -e {path}")), [149]);
    assert_eq!(
        offsets(&format!("-o 100 -c 3 {path}")),
        seen("g-deleted-prefix-0", 100, 103)
    );
}

/// What lies outside the log is said, and left out.
#[test]
fn offsets_outside_the_log_are_reported() {
    let below = run(&format!("cat -o 5 -c 1 -f %o {CLEAN}/g-deleted-prefix-0"));
    assert_eq!((below.code, below.text()), (0, "74"));
    assert_eq!(
        below.err,
        "offsetlog: warning: g-deleted-prefix-0: offset 5 is below the log start offset, reading from 74\n"
    );
    let above = run(&format!("cat -o 151 {CLEAN}/g-deleted-prefix-0"));
    assert_eq!((above.code, above.text()), (1, ""));
    assert!(
        above
            .err
            .contains("offset 151 is above the end of what can be read, 150"),
        "{}",
        above.err
    );
    let quiet = run(&format!("cat -q -o 151 {CLEAN}/g-deleted-prefix-0"));
    assert_eq!((quiet.code, quiet.err.as_str()), (1, ""));
}

/// `s@` and `e@` are the broker's own answers to the same times.
#[test]
fn times_start_and_stop_at_the_offsets_that_the_broker_gives() {
    let lookups = lookups(EXPECTED);
    let lookup = &lookups["g-many-entries-0"];
    let end = lookup["endOffset"].as_i64().unwrap();
    for query in lookup["offsetsForTimes"].as_array().unwrap() {
        let when = &query["query"];
        let offset = query["uncommitted"]["offset"].as_i64().unwrap_or(end);
        let path = format!("{CLEAN}/g-many-entries-0");
        assert_eq!(
            offsets(&format!("-o s@{when} {path}")),
            seen("g-many-entries-0", offset, end),
            "{when}"
        );
        assert_eq!(
            offsets(&format!("-o e@{when} {path}")),
            seen("g-many-entries-0", 0, offset),
            "{when}"
        );
    }
    let both =
        format!("-o s@2023-11-14T22:13:21Z -o e@2023-11-14T22:13:22Z {CLEAN}/g-many-entries-0");
    let expected: Vec<i64> = records(EXPECTED, "g-many-entries-0")
        .iter()
        .filter(|record| {
            (1_700_000_001_000..1_700_000_002_000).contains(&record["timestamp"].as_i64().unwrap())
        })
        .map(|record| record["offset"].as_i64().unwrap())
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(offsets(&both), expected, "timestamps of this topic ascend");
}

#[test]
fn several_partitions_come_one_behind_the_other_and_share_the_count() {
    let dirs = format!("{CLEAN} kafka-4.3.0/clean/log-dir-2");
    let all = run(&format!("cat -t g-plain -f %p:%o\\n {dirs}"));
    let expected: Vec<String> = (0..3)
        .flat_map(|partition| {
            let offsets = seen(&format!("g-plain-{partition}"), 0, i64::MAX);
            offsets
                .into_iter()
                .map(move |offset| format!("{partition}:{offset}"))
        })
        .collect();
    assert_eq!(all.text().lines().collect::<Vec<_>>(), expected);
    let some = run(&format!("cat -t g-plain -p 1,2 -c 5 -o -3 -f %p {dirs}"));
    assert_eq!(some.text(), "11122");
}

#[test]
fn mistakes_are_one_line_and_say_what_to_do() {
    let cases = [
        (
            "cat kafka-4.3.0/clean/log-dir-1 -t g-plian",
            "no topic 'g-plian' here; did you mean 'g-plain'?",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1 -t g-plain -p 1",
            "topic 'g-plain' has no partition 1 here; there are 0, 2",
        ),
        (
            "ls kafka-4.3.0/clean/log-dir-1 -p 77",
            "no topic here has a partition 77; ",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1",
            "several topics are here: __consumer_offsets, __transaction_state, ",
        ),
        (
            "explain 3 kafka-4.3.0/clean/log-dir-1 -t g-plain",
            "one partition is needed, several are chosen: g-plain-0, g-plain-2; choose with -t TOPIC -p N",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1 -t g-plain -o 1 -o 2",
            "-o is given twice",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1 -t g-plain -f %y",
            "invalid value '%y' for '--format <FORMAT>': %y is no letter of a format",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1 -t g-plain -f %R%s",
            "%R counts raw bytes",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1 -t g-plain -J -K :",
            "the argument '--json' cannot be used with '--key-delimiter <TEXT>'",
        ),
        (
            "time noon kafka-4.3.0/clean/log-dir-1",
            "invalid value 'noon' for '<WHEN>': neither milliseconds",
        ),
        (
            "ls kafka-4.3.0/clean/log-dir-1 -p 0,77",
            "no topic here has a partition 77; ",
        ),
        (
            "cat kafka-4.3.0/clean/log-dir-1/g-plain-0/00000000000000000000.log",
            "cannot list: Not a directory (os error 20); g-plain-0/00000000000000000000.log; give the directory that holds it",
        ),
        ("ls kafka-nowhere", "cannot list: No such file or directory"),
        (
            "ls",
            "the following required arguments were not provided: <PATH>...",
        ),
        (
            "append",
            "the following required arguments were not provided: <PATH>; see 'offsetlog append --help'",
        ),
        (
            "append a-0 b-0",
            "unexpected argument 'b-0' found; see 'offsetlog append --help'",
        ),
        (
            "recover",
            "the following required arguments were not provided: <PATH>...; see 'offsetlog recover --help'",
        ),
        ("sl kafka-4.3.0", "unrecognized subcommand 'sl'"),
    ];
    for (line, expected) in cases {
        let outcome = run(line);
        assert_eq!(outcome.code, 2, "{line}");
        assert_eq!(outcome.text(), "", "{line}");
        assert!(
            outcome.err.starts_with(&format!("offsetlog: {expected}")),
            "{line}: {}",
            outcome.err
        );
        assert_eq!(
            outcome.err.matches('\n').count(),
            1,
            "{line}: {}",
            outcome.err
        );
    }
}

#[test]
fn nothing_found_is_exit_code_1() {
    let checks = [
        ("cat kafka-4.3.0/clean/log-dir-1/g-empty-0", ""),
        (
            "time 99999999999999 kafka-4.3.0/clean/log-dir-1/g-plain-0",
            "offsetlog: warning: nothing is at or after 5138-11-16T09:46:39.999Z\n",
        ),
        (
            "explain 999999 kafka-4.3.0/clean/log-dir-1/g-many-entries-0",
            "offsetlog: offset 999999 is out of range: readable offsets are 0 to 1499; clean/log-dir-1\n",
        ),
    ];
    for (line, expected) in checks {
        let outcome = run(line);
        assert_eq!(outcome.code, 1, "{line}");
        let err = outcome
            .err
            .replace("; log-dir-1/g-many-entries-0", "; clean/log-dir-1");
        assert_eq!(err, expected, "{line}");
    }
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(
        empty.path().join("meta.properties"),
        "version=1\ncluster.id=x\nnode.id=1\n",
    )
    .unwrap();
    let outcome = offsetlog(&["ls", empty.path().to_str().unwrap()]);
    assert_eq!(outcome.code, 1, "{}", outcome.err);
    assert_eq!(outcome.text(), "");
    assert!(
        outcome.err.contains("no partitions here"),
        "{}",
        outcome.err
    );
}

/// A copy under another name is the most likely slip; the engine knows which name would do.
#[test]
fn a_partition_directory_with_another_name_is_refused_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let copy = root.path().join("backup");
    std::fs::create_dir(&copy).unwrap();
    let segment = "00000000000000000000.log";
    std::fs::copy(data(CLEAN) + "/g-plain-0/" + segment, copy.join(segment)).unwrap();
    let outcome = offsetlog(&["ls", copy.to_str().unwrap()]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.err.starts_with("offsetlog: "), "{}", outcome.err);
    assert!(
        !outcome.err.contains("no partitions here"),
        "{}",
        outcome.err
    );
}

/// Records before damage are printed, the damage is named, and the advice leads on.
#[test]
fn damage_ends_cat_with_the_place_and_the_way_on() {
    let path = "kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0";
    let outcome = run(&format!("cat -f %o\\n {path}"));
    assert_eq!(outcome.code, 2);
    assert_eq!(outcome.text().lines().count(), 36);
    assert!(outcome.err.contains("checksum mismatch"), "{}", outcome.err);
    assert!(
        outcome
            .err
            .contains("g-torn-flip-old-0/00000000000000000032.log position "),
        "{}",
        outcome.err
    );
    assert!(
        outcome.err.ends_with("; go on behind it with -o 40\n"),
        "{}",
        outcome.err
    );
    assert_eq!(
        offsets(&format!("-o 40 {path}")),
        (40..96).collect::<Vec<_>>()
    );
}

/// A crash's unfinished last write is no damage, and is not hidden either.
#[test]
fn a_torn_tail_is_reported_and_is_no_error() {
    let path = "kafka-4.3.0/torn/log-dir-1/g-torn-cut-batch-0";
    for verb in ["cat", "ls"] {
        let outcome = run(&format!("{verb} {path}"));
        assert_eq!(outcome.code, 0, "{verb}");
        assert!(
            outcome
                .err
                .contains("g-torn-cut-batch-0: torn tail of 289 bytes"),
            "{verb}: {}",
            outcome.err
        );
    }
}

/// One directory that cannot be read does not hide the others.
#[test]
fn ls_lists_what_it_can_and_ends_with_2() {
    let root = tempfile::tempdir().unwrap();
    for partition in ["g-plain-0", "g-epochs-0"] {
        let copy = root.path().join(partition);
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(data(CLEAN) + "/" + partition)
            .unwrap()
            .map(Result::unwrap)
        {
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    std::fs::write(
        root.path().join("g-plain-0/leader-epoch-checkpoint"),
        "not a checkpoint",
    )
    .unwrap();
    let outcome = offsetlog(&["ls", root.path().to_str().unwrap()]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.text().contains("\ng-epochs "), "{}", outcome.text());
    assert!(
        outcome.err.starts_with("offsetlog: g-plain-0: "),
        "{}",
        outcome.err
    );
}

fn on_terminal() -> Terminal {
    Terminal {
        stdout_is_terminal: true,
        ..Terminal::default()
    }
}

/// `g-plain` holds a key of all 256 byte values: whatever a record holds, a terminal gets printable text.
#[test]
fn a_terminal_never_gets_control_characters_unless_forced() {
    let line = format!("cat -K : -Z {CLEAN} -t g-plain");
    let is_control = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    for (options, raw) in [("", false), (" --raw", false), (" --raw=force", true)] {
        let outcome = offsetlog_on(on_terminal(), &arguments(&(line.clone() + options)));
        let text = std::str::from_utf8(&outcome.out);
        assert_eq!(
            text.is_err() || text.is_ok_and(is_control),
            raw,
            "{options}"
        );
        assert_eq!(
            outcome.err.contains("--raw=force overrides"),
            options == " --raw",
            "{options}"
        );
    }
    let piped = run(&(line.clone() + " --raw"));
    assert!(piped.out.contains(&0x1b) && piped.err.is_empty());
    assert!(
        !is_control(run(&line).text()),
        "escaped in a pipe too unless --raw asks otherwise"
    );
    assert!(!is_control(
        run(&(line.replace(" -K :", "") + " -J")).text()
    ));
}

/// `%R` and `--raw` give back the very bytes.
#[test]
fn framed_raw_values_are_the_bytes_of_the_records() {
    use base64::Engine as _;
    let mut framed = Vec::new();
    for record in records(EXPECTED, "g-plain-0") {
        let value = record["value"].as_str().map(|text| {
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .unwrap()
        });
        let size = value
            .as_ref()
            .map_or(-1, |value| i32::try_from(value.len()).unwrap());
        framed.extend(size.to_be_bytes());
        framed.extend(value.unwrap_or_default());
    }
    assert_eq!(
        run(&format!("cat --raw -f %R%s {CLEAN}/g-plain-0")).out,
        framed
    );
}

#[test]
fn colour_is_for_terminals_and_can_be_had_or_refused() {
    let has_colour = |terminal: Terminal, options: &str| {
        let outcome = offsetlog_on(terminal, &arguments(&format!("ls {CLEAN}{options}")));
        outcome.text().contains("\x1b[1m")
    };
    let without_colour = Terminal {
        no_color: true,
        ..on_terminal()
    };
    assert!(has_colour(on_terminal(), ""));
    assert!(!has_colour(on_terminal(), " --color=never"));
    assert!(!has_colour(without_colour.clone(), ""));
    assert!(has_colour(without_colour, " --color always"));
    assert!(!has_colour(Terminal::default(), ""));
}

#[test]
fn ls_adds_up_topics_and_shows_sizes_as_asked() {
    let topics = run(&format!("ls --by-topic --json {CLEAN}"));
    let line = topics
        .lines()
        .into_iter()
        .find(|line| line["topic"] == "g-plain")
        .unwrap();
    assert_eq!(line["partitions"], serde_json::json!([0, 2]));
    let exact = run(&format!("ls --human --bytes -t g-codec-gzip {CLEAN}"));
    let people = run(&format!("ls --bytes --human -t g-codec-gzip {CLEAN}"));
    let column = |outcome: &Outcome| {
        outcome
            .text()
            .lines()
            .nth(1)
            .unwrap()
            .split_whitespace()
            .nth(3)
            .unwrap()
            .to_owned()
    };
    let bytes: u64 = column(&exact).parse().unwrap();
    assert!(bytes > 10_240, "{bytes}");
    assert_eq!(column(&people), format!("{}K", bytes.div_ceil(1024)));
}

#[test]
fn a_caller_can_interrupt_with_130() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let terminal = Terminal {
        interrupt: Some(Arc::new(move || count.fetch_add(1, Ordering::Relaxed) >= 1)),
        ..Terminal::default()
    };
    let line = format!(
        "time 1700086402259 {CLEAN} kafka-4.3.0/clean/log-dir-2 -t g-plain -t g-codec-gzip -t g-idem"
    );
    let outcome = offsetlog_on(terminal, &arguments(&line));
    assert!(asked.load(Ordering::Relaxed) > 0);
    assert_eq!((outcome.code, outcome.err.as_str()), (130, ""));
}

#[test]
fn help_version_and_completions_go_to_stdout() {
    for line in [
        "--help",
        "help cat",
        "ls --help",
        "cat -h",
        "append --help",
        "recover -h",
        "help recover",
        "--version",
        "completions bash",
        "completions zsh",
        "completions fish",
    ] {
        let outcome = run(line);
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{line}");
        assert!(outcome.text().contains("offsetlog"), "{line}");
    }
    for (line, expected) in [
        (
            "--help",
            ["  append  ", "  recover  ", "Exit codes: 0 done; 1 "],
        ),
        (
            "append --help",
            [
                "Examples:\n  printf",
                "--json | offsetlog append",
                "Exit codes: 0 ",
            ],
        ),
        (
            "recover --help",
            ["Examples:\n", "recover --dry-run", "Exit codes: 0 "],
        ),
        (
            "completions bash",
            ["--key-separator", "--dry-run", "--from-offset"],
        ),
    ] {
        let outcome = run(line);
        assert!(
            expected.iter().all(|text| outcome.text().contains(text)),
            "{line}"
        );
    }
    let bare = offsetlog::<&str>(&[]);
    assert_eq!((bare.code, bare.text()), (2, ""));
    assert!(bare.err.contains("Usage: offsetlog"));
}
