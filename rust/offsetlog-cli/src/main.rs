//! The stand-alone program; everything is in the library.
//!
//! Ctrl-C ends it as the system's default does, but `append`, which ends with 130 itself: shells report 130 for both.

use offsetlog_cli::{Terminal, run};
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let code = run(
        std::env::args_os(),
        &mut io::stdout().lock(),
        &mut io::stderr().lock(),
        Terminal::of_process(),
    );
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
