//! The bar on standard error while long work runs.

use crate::console::Console;
use crate::escape::escaped;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use offsetlog::{DirectoryProgress, PartitionProgress};
use std::fmt;
use std::sync::Arc;

const REDRAWS_PER_SECOND: u8 = 10;
const BAR: &str = "{bar:30} {percent:>3}%{left}  {msg}";

/// The callback of long work: the steps done, all steps, and the name of the current item.
pub(crate) type Told = Arc<dyn Fn(u64, u64, &str) + Send + Sync>;

/// A bar, or nothing where nobody would see it or where it would stand among the data.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar for work of `length` steps, if standard error is a terminal, standard output is not, and `-q` is absent.
    pub(crate) fn new(console: &Console<'_>, length: u64) -> Self {
        let terminal = &console.terminal;
        let wanted = terminal.stderr_is_terminal && !terminal.stdout_is_terminal && !console.quiet;
        if !wanted || length == 0 {
            return Self(None);
        }
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(Some(length), target);
        Self(Some(styled(bar, BAR)))
    }

    /// A bar for work of `length` steps whose output comes when it is done, if standard error is a terminal and `-q` is absent.
    /// Its copy may be told of steps from anywhere.
    pub(crate) fn before_output(console: &Console<'_>, length: u64) -> (Self, Option<ProgressBar>) {
        if !console.terminal.stderr_is_terminal || console.quiet || length == 0 {
            return (Self(None), None);
        }
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = styled(ProgressBar::with_draw_target(Some(length), target), BAR);
        (Self(Some(bar.clone())), Some(bar))
    }

    /// The same for work that tells by itself how far it is. Keep the bar until the work is done.
    pub(crate) fn told(console: &Console<'_>) -> (Self, Option<Told>) {
        let (progress, bar) = Self::before_output(console, 1);
        progress.set(0, "");
        let told = bar.map(|bar| {
            Arc::new(move |done, total, name: &str| {
                bar.set_length(total);
                bar.set_position(done);
                if bar.message() != name {
                    bar.set_message(escaped(name));
                }
            }) as Told
        });
        (progress, told)
    }

    /// The same for work that tells which partition it is at.
    pub(crate) fn of_partitions(console: &Console<'_>) -> (Self, PartitionProgress) {
        let (progress, told) = Self::told(console);
        let told = told.map(|told| {
            PartitionProgress::new(move |done, total, at| {
                told(done, total, &at.to_string());
                Ok(())
            })
        });
        (progress, told.unwrap_or_default())
    }

    /// The same for work that tells which directory it is at.
    pub(crate) fn of_directories(console: &Console<'_>) -> (Self, DirectoryProgress) {
        let (progress, told) = Self::told(console);
        let told = told.map(|told| {
            DirectoryProgress::new(move |done, total, at| {
                let name = at.file_name().unwrap_or(at.as_os_str());
                told(done, total, &name.to_string_lossy());
                Ok(())
            })
        });
        (progress, told.unwrap_or_default())
    }

    /// A counter for work that ends nobody knows when, if standard error is a terminal that nobody types into, and `-q` is absent.
    pub(crate) fn counter(console: &Console<'_>) -> Self {
        let terminal = &console.terminal;
        if !terminal.stderr_is_terminal || terminal.stdin_is_terminal || console.quiet {
            return Self(None);
        }
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(None, target);
        Self(Some(styled(bar, "{spinner} {msg}  {elapsed}")))
    }

    /// Whether anybody sees it: if not, its text need not be made.
    pub(crate) const fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// So many steps are done; the next ones concern `what`, a name that is safe to print.
    pub(crate) fn set(&self, position: u64, what: &str) {
        if let Some(bar) = &self.0 {
            if bar.message() != what {
                bar.set_message(what.to_owned());
            }
            bar.set_position(position);
        }
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.with_key("left", write_time_left))
}

/// How long the work still takes at its speed of the last seconds. Before any of it is done nobody knows.
fn write_time_left(state: &ProgressState, text: &mut dyn fmt::Write) {
    if state.pos() > 0 && !state.is_finished() {
        // The only error is that of the text, which is a string.
        let _ = write!(text, ", {:#} left", HumanDuration(state.eta()));
    }
}

impl Drop for Progress {
    /// Whatever ends the work, the line is free for what is said next.
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
