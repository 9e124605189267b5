//! The command line, run from the Python entry point.

use crate::interrupt::{interrupt, raised_if_any, watched};
use offsetlog_cli::{Terminal, run};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::io;

/// Runs the command and returns its exit code. `argv` begins with the program's name; `closed` are the standard streams that were closed
/// when the process began; `owns_signals` says that the process is the command's alone. Handlers of signals outlast a call, and in the
/// process of somebody else the second Ctrl-C behind it would end that process. There Ctrl-C is what Python makes of it.
#[pyfunction]
#[pyo3(signature = (argv, closed = vec![], owns_signals = false))]
pub(crate) fn run_cli(
    py: Python<'_>,
    argv: Vec<OsString>,
    closed: Vec<i32>,
    owns_signals: bool,
) -> PyResult<i32> {
    let terminal = Terminal {
        interrupt: (!owns_signals).then(interrupt),
        owns_signals,
        stdin_is_closed: closed.contains(&0),
        stdout_is_closed: closed.contains(&1),
        ..Terminal::of_process()
    };
    let code = py.detach(|| {
        watched(|| {
            run(
                argv,
                &mut io::stdout().lock(),
                &mut io::stderr().lock(),
                terminal,
            )
        })
    });
    raised_if_any().map_or(Ok(code), Err)
}
