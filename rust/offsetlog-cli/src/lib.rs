//! The `offsetlog` command: look into Apache Kafka log directories without a broker, append to them, keep topics in them, recover them.
//!
//! One function, [`run`], takes the arguments and the output streams and returns the exit code. The stand-alone program and the console
//! script of the Python package both call it, so there is one parser and one behaviour.
//!
//! ```
//! use offsetlog_cli::{Terminal, run};
//!
//! let (mut out, mut err) = (Vec::new(), Vec::new());
//! let arguments = ["offsetlog", "time", "yesterday", "data"].map(Into::into);
//! assert_eq!(run(arguments, &mut out, &mut err, Terminal::default()), 2);
//! assert!(out.is_empty());
//! assert!(String::from_utf8_lossy(&err).starts_with("offsetlog: invalid value 'yesterday'"));
//! ```
//!
//! This crate uses the public names of `offsetlog` only. It decides how things look; what they are, the engine decides.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod adopt;
mod append;
mod args;
mod cat;
mod console;
mod convert;
mod dump;
mod end_transaction;
mod escape;
mod explain;
mod failure;
mod grep;
mod groups;
mod json;
mod ls;
mod maintain;
mod metadata;
mod mirror;
mod open_files;
mod print;
mod producers;
mod progress;
mod recover;
mod restore;
mod salvage;
mod select;
mod serve;
mod settings;
mod signals;
mod table;
mod template;
mod time;
mod topics;
mod transactions;
mod unread;
mod verify;
mod why;

use args::{Color, Verb};
use console::Console;
use failure::Failure;
use rustix::fs::{FileType, OFlags};
use select::of_one_cluster;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Exit code: done.
pub const EXIT_FINE: i32 = 0;
/// Exit code: nothing was found, or there is nothing to do.
pub const EXIT_NOTHING: i32 = 1;
/// Exit code: the command failed, or a part of it: wrong arguments, a file that cannot be read or written, damage that hides what was
/// asked for.
pub const EXIT_ERROR: i32 = 2;
/// Exit code of the verbs that look for damage (`verify`, `dump`, `recover --dry-run`, `salvage`, `restore`, `mirror`): they found some.
pub const EXIT_DAMAGED: i32 = 3;
/// Exit code of `append`: a line of the input was refused; those before it are appended.
pub const EXIT_REFUSED: i32 = 4;
/// Exit code: the user pressed Ctrl-C.
pub const EXIT_INTERRUPTED: i32 = 130;

/// Opens the input of `append`, which a thread of its own then reads.
pub type Input = Arc<dyn Fn() -> Box<dyn Read + Send> + Send + Sync>;

/// What the program knows about its streams.
///
/// The default is no input and two streams that are no terminals: no colour, no progress bar.
#[derive(Clone, Default)]
pub struct Terminal {
    /// The input of `append`; nothing if there is none.
    pub stdin: Option<Input>,
    /// Whether standard input was closed when the process began: a file that was opened since may have its number, as the null device has
    /// in a Rust program.
    pub stdin_is_closed: bool,
    /// The same of standard output: whatever is printed is an error then.
    pub stdout_is_closed: bool,
    /// Whether somebody types the input.
    pub stdin_is_terminal: bool,
    /// Whether data is written to a terminal: control characters in records are then never written, unless forced.
    pub stdout_is_terminal: bool,
    /// Whether messages are written to a terminal: long work then shows a progress bar.
    pub stderr_is_terminal: bool,
    /// Whether colour is unwanted (`NO_COLOR`, or a terminal that has none).
    pub no_color: bool,
    /// Asked now and then during long work; `true` stops it with exit code 130.
    pub interrupt: Option<offsetlog::Interrupt>,
    /// Whether the whole process is this program's, and so what Ctrl-C does in it: `append` then catches it to append what it has
    /// read. Where it is not, [`interrupt`](Self::interrupt) is the way.
    pub owns_signals: bool,
}

impl Terminal {
    /// Checks the process's own standard streams and environment. Rust's runtime opens the null device in place of a closed stream: for
    /// standard input this can be told from `< /dev/null`, for standard output it cannot.
    #[must_use]
    pub fn of_process() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            stdin: Some(Arc::new(|| Box::new(io::stdin()))),
            stdin_is_closed: is_replaced(&io::stdin()),
            stdout_is_closed: false,
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            no_color: dumb || set("NO_COLOR"),
            interrupt: None,
            owns_signals: true,
        }
    }
}

/// Whether an input is the null device, open for writing too: so runtimes and daemons open it in the place of an input that is closed or
/// that nobody gave. A shell's `< /dev/null` is open for reading only.
fn is_replaced(input: &impl AsFd) -> bool {
    let looked = || -> rustix::io::Result<bool> {
        let access = rustix::fs::fcntl_getfl(input)? & OFlags::RWMODE;
        let (input, null) = (rustix::fs::fstat(input)?, rustix::fs::stat("/dev/null")?);
        let is_device = FileType::from_raw_mode(input.st_mode) == FileType::CharacterDevice;
        Ok(access == OFlags::RDWR && is_device && input.st_rdev == null.st_rdev)
    };
    looked().unwrap_or(false)
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal")
            .field("stdin", &self.stdin.is_some())
            .field("stdin_is_closed", &self.stdin_is_closed)
            .field("stdout_is_closed", &self.stdout_is_closed)
            .field("stdin_is_terminal", &self.stdin_is_terminal)
            .field("stdout_is_terminal", &self.stdout_is_terminal)
            .field("stderr_is_terminal", &self.stderr_is_terminal)
            .field("no_color", &self.no_color)
            .field("interrupt", &self.interrupt.is_some())
            .field("owns_signals", &self.owns_signals)
            .finish()
    }
}

/// Runs one command line, the program's name first, and returns its exit code.
///
/// Data is written to `out`, everything else to `err`; an error is one line `offsetlog: ...`. A reader of `out` that has seen
/// enough (`offsetlog cat ... | head`) ends the command quietly with code 0.
pub fn run<I: IntoIterator<Item = OsString>>(
    args: I,
    out: &mut dyn Write,
    err: &mut dyn Write,
    terminal: Terminal,
) -> i32 {
    let cli = match args::parse(args) {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error, out, err, &terminal),
    };
    let colour = |is_terminal: bool| match cli.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && !terminal.no_color,
    };
    let mut nowhere = Closed;
    let out: &mut dyn Write = if terminal.stdout_is_closed {
        &mut nowhere
    } else {
        out
    };
    let mut console = Console::new(
        out,
        err,
        colour(terminal.stdout_is_terminal),
        colour(terminal.stderr_is_terminal),
        terminal,
    );
    if console.terminal.owns_signals {
        open_files::raise_limit();
    }
    let outcome = match &cli.verb {
        Verb::Ls(args) => ls::run(args, &mut console),
        Verb::Cat(args) => cat::run(args, &mut console),
        Verb::Grep(args) => grep::run(args, &mut console),
        Verb::Dump(args) => dump::run(args, &mut console),
        Verb::Groups(args) => groups::run(args, &mut console),
        Verb::Transactions(args) => {
            of_one_cluster(&args.paths).and_then(|()| transactions::run(args, &mut console))
        }
        Verb::Producers(args) => {
            of_one_cluster(&args.selection.paths).and_then(|()| producers::run(args, &mut console))
        }
        Verb::Why(args) => why::run(args, &mut console),
        Verb::Metadata(args) => metadata::run(args, &mut console),
        Verb::Time(args) => time::run(args, &mut console),
        Verb::Explain(args) => explain::run(args, &mut console),
        Verb::Append(args) => append::run(args, &mut console),
        Verb::Recover(args) => recover::run(args, &mut console),
        Verb::Salvage(args) => salvage::run(args, &mut console),
        Verb::Mirror(args) => mirror::run(args, &mut console),
        Verb::Restore(args) => restore::run(args, &mut console),
        Verb::EndTransaction(args) => {
            of_one_cluster(&args.paths).and_then(|()| end_transaction::run(args, &mut console))
        }
        Verb::Adopt(args) => adopt::run(args, &mut console),
        Verb::Verify(args) => verify::run(args, &mut console),
        Verb::Create(args) => topics::create(args, &mut console),
        Verb::Delete(args) => topics::delete(args, &mut console),
        Verb::Maintain(args) => maintain::run(args, &mut console),
        Verb::Settings(args) => settings::run(args, &mut console),
        Verb::Convert(args) => convert::run(args, &mut console),
        Verb::Serve(args) => serve::run(args, &mut console),
        Verb::Commits(args) => Err(commits(args)),
        Verb::Completions { shell } => completions(*shell, &mut console),
    };
    // What was printed before a failure is still true, so it is flushed first.
    let flushed = console.out.flush().map_err(Failure::Output);
    let outcome = outcome.and_then(|code| flushed.map(|()| code));
    outcome.unwrap_or_else(|failure| failure.report(&mut console))
}

/// The form of notes is known to who writes them, in one place: the Python package, whose command does this verb itself.
fn commits(args: &args::Commits) -> Failure {
    let forget = args.forget.as_deref().map_or(String::new(), |name| {
        let unfinished = if args.unfinished { " --unfinished" } else { "" };
        format!(" --forget {name}{unfinished}")
    });
    let json = if args.json { " --json" } else { "" };
    Failure::Usage(format!(
        "notes of commits are read by the Python package: python -m offsetlog commits{forget}{json} {}",
        args.path.display()
    ))
}

/// A standard output that was closed before the program began.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("it is closed"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn completions(shell: clap_complete::Shell, console: &mut Console<'_>) -> Result<i32, Failure> {
    let mut script = Vec::new();
    let mut command = <args::Cli as clap::CommandFactory>::command();
    clap_complete::generate(shell, &mut command, "offsetlog", &mut script);
    console.out.write_all(&script)?;
    Ok(EXIT_FINE)
}
