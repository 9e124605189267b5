//! `offsetlog cat`: records, one partition behind the other, each in offset order.

use crate::args::{Cat, OffsetWord, Raw};
use crate::console::Console;
use crate::failure::Failure;
use crate::print::{Fields, Printer, Style};
use crate::progress::Progress;
use crate::select::Source;
use crate::template::Template;
use crate::{EXIT_FINE, EXIT_NOTHING};
use offsetlog::{Isolation, Log, ScanOptions};
use std::io::Write;

/// Steps of the progress bar for one partition.
const STEPS: u64 = 1000;

/// Offsets to print of one partition; `stop` is exclusive.
struct Range {
    start: i64,
    stop: i64,
}

/// Where to start and stop, in the user's words.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    start: OffsetWord,
    stop: Option<OffsetWord>,
}

pub(crate) fn run(args: &Cat, console: &mut Console<'_>) -> Result<i32, Failure> {
    let bounds = Bounds::of(&args.offsets)?;
    let source = Source::open(&args.selection, console)?;
    source.need_topic(&args.selection)?;
    let printer = printer(args, console)?;
    let isolation = args.isolation_level.into();
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut total = 0;
    let progress = Progress::new(console, source.chosen.len() as u64 * STEPS);
    for (done, chosen) in source.chosen.iter().enumerate() {
        if left == 0 {
            break;
        }
        progress.set(done as u64 * STEPS, &chosen.topic);
        let log = source.log(chosen, console)?;
        let range = bounds.resolve(&log, isolation, console)?;
        let mut reader = Reader {
            log: &log,
            range,
            isolation,
            unbuffered: args.unbuffered,
        };
        let look = |step| progress.set(done as u64 * STEPS + step, &chosen.topic);
        let count = match reader.print(left, &printer, console, look) {
            Err(Failure::Engine(error)) => return Err(behind_damage(&log, error)),
            outcome => outcome?,
        };
        left -= count;
        total += count;
    }
    drop(progress);
    Ok(if total == 0 { EXIT_NOTHING } else { EXIT_FINE })
}

fn printer(args: &Cat, console: &mut Console<'_>) -> Result<Printer, Failure> {
    let on_terminal = console.terminal.stdout_is_terminal;
    let raw = match args.raw {
        None => false,
        Some(Raw::Force) => true,
        Some(Raw::Pipe) => !on_terminal,
    };
    if args.raw.is_some() && !raw {
        console.warn("--raw is for files and pipes, so control characters stay escaped; --raw=force overrides");
    }
    let style = if args.json {
        Style::Json
    } else {
        Style::Text(args.format.clone().unwrap_or_else(|| {
            let key_delimiter = args
                .key_delimiter
                .as_ref()
                .map(|delimiter| delimiter.0.as_slice());
            Template::of_delimiters(key_delimiter, &args.delimiter.0)
        }))
    };
    if let Style::Text(template) = &style
        && template.frames_bytes()
        && !raw
    {
        return Err(Failure::Usage(
            "%R counts raw bytes and other output is escaped; add --raw and write to a file or pipe".into(),
        ));
    }
    Ok(Printer {
        style,
        key_format: args.key_format,
        value_format: args.value_format,
        show_null: args.null,
        raw,
    })
}

impl Bounds {
    /// kcat's rule: one word, or one `s@` and one `e@`.
    fn of(words: &[OffsetWord]) -> Result<Self, Failure> {
        let (mut start, mut stop) = (None, None);
        for word in words {
            let slot = match word {
                OffsetWord::StopTime(_) => &mut stop,
                _ => &mut start,
            };
            if slot.replace(*word).is_some() {
                return Err(Failure::Usage(
                    "-o is given twice; only one start and one e@TIME make sense".into(),
                ));
            }
        }
        Ok(Self {
            start: start.unwrap_or(OffsetWord::Beginning),
            stop,
        })
    }

    /// The offsets of one partition; what lies outside it is said and left out.
    fn resolve(
        &self,
        log: &Log,
        isolation: Isolation,
        console: &mut Console<'_>,
    ) -> Result<Range, Failure> {
        let first = log.log_start_offset()?;
        let end = match isolation {
            Isolation::ReadCommitted => log.last_stable_offset()?,
            Isolation::ReadUncommitted => log.log_end_offset()?,
        };
        let at_time = |when: i64| -> Result<i64, Failure> {
            Ok(log
                .offset_for_timestamp(when, isolation)?
                .map_or(end, |found| found.offset))
        };
        let stop = match self.stop {
            Some(OffsetWord::StopTime(when)) => at_time(when.0)?.min(end),
            _ => end,
        };
        let start = match self.start {
            OffsetWord::Beginning | OffsetWord::StopTime(_) => first,
            OffsetWord::End => end,
            OffsetWord::BeforeEnd(count) => end.saturating_sub(count).max(first),
            OffsetWord::StartTime(when) => at_time(when.0)?,
            OffsetWord::At(offset) if offset < first => {
                console.warn(&format!(
                    "{}-{}: offset {offset} is below the log start offset, reading from {first}",
                    log.topic(),
                    log.partition()
                ));
                first
            }
            OffsetWord::At(offset) => {
                if offset > end {
                    console.warn(&format!(
                        "{}-{}: offset {offset} is above the end of what can be read, {end}",
                        log.topic(),
                        log.partition()
                    ));
                }
                offset
            }
        };
        Ok(Range { start, stop })
    }
}

/// Finds the offset at which reading can go on behind a damaged batch whose header still makes sense.
fn behind_damage(log: &Log, error: offsetlog::Error) -> Failure {
    let batch = error
        .offset()
        .filter(|_| error.is_corruption())
        .and_then(|damaged| {
            let batch = log.batches(Some(damaged), None).ok()?.next()?.ok()?;
            (batch.base_offset == damaged).then_some(batch)
        });
    match batch.and_then(|batch| batch.last_offset.checked_add(1)) {
        Some(next) => Failure::Damage(error, next),
        None => Failure::Engine(error),
    }
}

/// Prints a range of one partition.
struct Reader<'a> {
    log: &'a Log,
    range: Range,
    isolation: Isolation,
    unbuffered: bool,
}

impl Reader<'_> {
    /// Prints up to `limit` records and returns how many. `look` is told now and then how far it is, of [`STEPS`].
    fn print(
        &mut self,
        limit: u64,
        printer: &Printer,
        console: &mut Console<'_>,
        look: impl Fn(u64),
    ) -> Result<u64, Failure> {
        let Range { start, stop } = self.range;
        if start >= stop {
            return Ok(0);
        }
        let length = stop.abs_diff(start);
        let mut scan = self.log.scan(&ScanOptions {
            start: Some(start),
            stop: Some(stop),
            isolation: self.isolation,
            limit: Some(limit),
            ..ScanOptions::default()
        })?;
        let mut count = 0;
        while let Some(mut batch) = scan.next_batch()? {
            let epoch = batch.header().leader_epoch;
            while let Some(record) = batch.next_record()? {
                let fields = Fields {
                    topic: self.log.topic(),
                    partition: self.log.partition(),
                    offset: record.offset,
                    timestamp: record.timestamp,
                    timestamp_type: record.timestamp_type,
                    leader_epoch: (epoch >= 0).then_some(epoch),
                    key: record.key,
                    value: record.value,
                    headers: record.headers.iter().collect(),
                };
                printer.print(&mut console.out, &fields)?;
                if self.unbuffered {
                    console.out.flush()?;
                }
                count += 1;
            }
            let done = u128::from(batch.header().last_offset.abs_diff(start)) * u128::from(STEPS);
            look(u64::try_from(done / u128::from(length)).unwrap_or(STEPS));
        }
        for torn in scan.torn_tails() {
            console.warn(&format!(
                "{}-{}: {torn}",
                self.log.topic(),
                self.log.partition()
            ));
        }
        Ok(count)
    }
}
