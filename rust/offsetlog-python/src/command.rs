//! The command line, run from the Python entry point.

use offsetlog_cli::{Terminal, run};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::io;

/// Runs the command and returns its exit code. `argv` begins with the program's name; `closed` are the standard streams that were closed
/// when the process began.
#[pyfunction]
#[pyo3(signature = (argv, closed = vec![]))]
pub(crate) fn run_cli(py: Python<'_>, argv: Vec<OsString>, closed: Vec<i32>) -> i32 {
    let terminal = Terminal {
        stdin_is_closed: closed.contains(&0),
        stdout_is_closed: closed.contains(&1),
        ..Terminal::of_process()
    };
    py.detach(|| {
        run(
            argv,
            &mut io::stdout().lock(),
            &mut io::stderr().lock(),
            terminal,
        )
    })
}
