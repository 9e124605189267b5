//! The command line, run from the Python entry point.

use offsetlog_cli::{Terminal, run};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::io;

/// Runs the command and returns its exit code. `argv` begins with the program's name.
#[pyfunction]
pub(crate) fn run_cli(py: Python<'_>, argv: Vec<OsString>) -> i32 {
    py.detach(|| {
        run(
            argv,
            &mut io::stdout().lock(),
            &mut io::stderr().lock(),
            Terminal::of_process(),
        )
    })
}
