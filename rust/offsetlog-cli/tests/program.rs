//! The command as a process of its own: pipes, signals, exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{Place, arguments, wait_until};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const CLEAN: &str = "kafka-4.3.0/clean/log-dir-1";

fn program(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetlog"));
    command.args(arguments(line));
    command
}

/// The same, also where these tests run in the background of a shell, which has what it starts ignore Ctrl-C.
fn heeding_ctrl_c(line: &str) -> Command {
    if !cfg!(target_os = "linux") {
        return program(line);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_offsetlog")]);
    command.args(arguments(line));
    command
}

/// `offsetlog cat ... | head -1`: the reader goes while much more than a pipe holds is still to come.
#[test]
fn a_reader_that_has_seen_enough_ends_the_program_quietly() {
    let line = "cat kafka-4.3.0/clean/log-dir-2/g-big-0";
    let mut child = program(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// A full disk is not a reader that has seen enough.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return; // only Linux has it
    };
    let output = program(&format!("cat {CLEAN}/g-plain-0"))
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        err.starts_with("offsetlog: cannot write to standard output: "),
        "{err}"
    );
}

#[test]
fn the_program_prints_data_to_stdout_and_talk_to_stderr() {
    let output = program(&format!("cat {CLEAN}/g-plain-0 -o 3 -c 1 -f %k\\n"))
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), b"key-43\n".as_slice())
    );
    let output = program("cat nowhere-0").output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(2), b"".as_slice())
    );
    assert!(output.stderr.starts_with(b"offsetlog: "));
}

/// Nobody reads the summary: the records are in the log all the same, and a refused line is not hidden.
#[test]
fn a_closed_pipe_does_not_stop_an_append() {
    let place = Place::new();
    for (input, code) in [("a:1\n", 0), ("b:2\nbad\n", 4)] {
        let mut child = program(&format!(
            "append {} -K : --json --format lines",
            place.path()
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
        drop(child.stdout.take());
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
    }
    assert_eq!(place.values(), ["1", "2"]);
}

/// A signal, to a process: it ends at once though its input does not, and closes the log.
#[test]
fn ctrl_c_ends_an_append_with_130_and_keeps_what_was_read() {
    let place = Place::new();
    let mut child = heeding_ctrl_c(&format!("append {}", place.path()))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"one\ntwo\nunfini").unwrap();
    wait_until("two records", || {
        place.path.exists() && place.records().len() == 2
    });
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(output.status.code(), Some(130));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("interrupted: 2 records appended"), "{err}");
    assert_eq!(place.values(), ["one", "two"]);
    assert!(place.is_closed_cleanly());
}

/// A file that may not grow is an error with the place where the input was left, not the end of the process.
#[test]
fn a_limit_of_file_sizes_is_told_and_what_fits_is_kept() {
    let place = Place::new();
    let script = "ulimit -f 100 && yes | head -c 400000 | \"$0\" append \"$1\" --batch-bytes 1K";
    let settings = ["--config", "segment.index.bytes=4096"];
    let output = Command::new("bash")
        .args(["-c", &format!("{script} {}", settings.join(" "))])
        .args([env!("CARGO_BIN_EXE_offsetlog"), place.path()])
        // Counters of a coverage build would not fit either.
        .env("LLVM_PROFILE_FILE", "/dev/null")
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    let count = place.records().len();
    assert!(count > 1000, "{count}");
    let expected = format!(
        "{count} records appended at offsets 0 to {}, none from line {} on\n",
        count - 1,
        count + 1
    );
    assert!(err.contains("File too large"), "{err}");
    assert!(err.ends_with(&expected), "{err}");
}

/// Rust's runtime opens the null device in the place of a closed standard input. What somebody redirects from it is an empty input.
#[test]
fn a_closed_standard_input_is_refused_and_an_empty_one_is_not() {
    let place = Place::new();
    let append = |redirected: &str| {
        let line = format!("exec \"$0\" append \"$1\" {redirected}");
        let output = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_offsetlog"), place.path()])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let is_made = std::path::Path::new(place.path()).exists();
        (output.status.code(), said, is_made)
    };
    let (code, said, is_made) = append("<&-");
    assert_eq!((code, is_made), (Some(2), false), "{said}");
    assert!(said.contains("standard input is closed"), "{said}");
    let (code, said, is_made) = append("< /dev/null");
    assert_eq!((code, is_made), (Some(0), true), "{said}");
    assert!(said.contains("nothing appended"), "{said}");
}
