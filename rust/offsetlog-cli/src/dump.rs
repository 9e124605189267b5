//! `offsetlog dump`: what is in the files, as JSON lines or in the words of Kafka's own tool.

mod java;
mod kafka;
mod kafka_batch;
mod kafka_decode;
mod kafka_index;
mod kafka_run;
mod kafka_state;
mod kafka_words;
mod lines;
mod lines_log;
mod lines_run;
mod lines_state;
mod log_file;

use crate::args::Dump;
use crate::console::Console;
use crate::failure::Failure;

pub(crate) fn run(args: &Dump, console: &mut Console<'_>) -> Result<i32, Failure> {
    if let Some(reason) = args.not_here() {
        return Err(Failure::Usage(reason));
    }
    if args.kafka {
        kafka::run(args, console)
    } else {
        lines::run(args, console)
    }
}
