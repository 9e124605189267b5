//! `offsetlog cat`: records, one partition behind the other, each in offset order.

use crate::args::{Cat, OffsetWord, Raw};
use crate::console::Console;
use crate::failure::{Failure, with_advice};
use crate::print::{Fields, Printer, Style};
use crate::progress::Progress;
use crate::select::Source;
use crate::template::Template;
use crate::unread::write_line;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_NOTHING};
use offsetlog::format::counted;
use offsetlog::{
    ErrorKind, Follow, Isolation, Log, OnCorrupt, OneTopic, Scan, ScanOptions, ScanRange,
};
use offsetlog_ops::When;
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Steps of the progress bar for one partition.
const STEPS: u64 = 1000;
/// How often `--follow` looks where the system tells nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Offsets to print of one partition; `stop` is exclusive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: i64,
    pub(crate) stop: i64,
}

/// All that a scan returns.
const WHOLE: Range = Range {
    start: i64::MIN,
    stop: i64::MAX,
};

/// Where to start and stop, in the user's words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    start: OffsetWord,
    stop: Option<OffsetWord>,
}

pub(crate) fn run(args: &Cat, console: &mut Console<'_>) -> Result<i32, Failure> {
    let bounds = Bounds::of(&args.offsets)?;
    let source = Source::open(&args.selection, console)?;
    source.need_topic(&args.selection)?;
    let printer = printer(args, console)?;
    let isolation = args.isolation_level.into();
    let mut failed = false;
    let total = if args.follow {
        follow(args, bounds, &source, &printer, console)?
    } else {
        let mut left = args.count.unwrap_or(u64::MAX);
        let mut topics = OneTopic::default();
        let progress = Progress::new(console, source.chosen.len() as u64 * STEPS);
        for (done, chosen) in source.chosen.iter().enumerate() {
            if left == 0 {
                break;
            }
            progress.set(done as u64 * STEPS, &chosen.topic);
            let look = |step| progress.set(done as u64 * STEPS + step, &chosen.topic);
            let mut count = 0;
            let outcome = source.log(chosen, console).and_then(|log| {
                topics.check(&log)?;
                let range = bounds.resolve(&log, isolation, args.on_corrupt.into(), console)?;
                let limits = (left, &mut count);
                match print_range(args, &log, range, limits, &printer, console, look) {
                    Err(Failure::Engine(error)) => Err(behind_damage(&log, error)),
                    outcome => outcome,
                }
            });
            left -= count;
            let Err(failure) = outcome else { continue };
            match failure.of_one_partition() {
                // One damaged partition does not hide the others.
                Some((error, words)) if source.chosen.len() > 1 => {
                    write_line((&chosen.topic, chosen.partition), error, args.json, console)?;
                    console.error(&format!("{}: {words}", chosen.name()));
                    failed = true;
                }
                _ => return Err(failure),
            }
        }
        args.count.unwrap_or(u64::MAX) - left
    };
    Ok(match (failed, total) {
        (true, _) => EXIT_ERROR,
        (false, 0) => EXIT_NOTHING,
        (false, _) => EXIT_FINE,
    })
}

/// Records that were truncated or deleted before they were printed end a follow: it failed, which is more than finding nothing.
fn overtaken(failure: Failure) -> Failure {
    match failure {
        Failure::Engine(error) if matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. }) => {
            Failure::Stopped(with_advice(&error))
        }
        other => other,
    }
}

/// Prints existing and new records until it is stopped, or reaches `-c` or the end of the range; returns how many.
fn follow(
    args: &Cat,
    bounds: Bounds,
    source: &Source,
    printer: &Printer,
    console: &mut Console<'_>,
) -> Result<u64, Failure> {
    let options = ScanOptions {
        isolation: args.isolation_level.into(),
        on_corrupt: args.on_corrupt.into(),
        ..ScanOptions::default()
    };
    let mut ranges = Vec::with_capacity(source.chosen.len());
    let mut edges = HashMap::new();
    for chosen in &source.chosen {
        let log = source.log(chosen, console)?;
        let edge = Edge::of(bounds, &log, options.isolation)?;
        let range = bounds.resolve(&log, options.isolation, options.on_corrupt, console)?;
        ranges.push(ScanRange {
            start: Some(edge.start.offset().unwrap_or(range.start)),
            stop: edge.stop.offset(),
            log: log.clone(),
        });
        edges.insert(log.path().to_path_buf(), edge);
    }
    let wanted = args.count.unwrap_or(u64::MAX);
    let mut follow = Follow::over(ranges, &[], &options, LOOK_EVERY)?;
    let mut total = 0;
    let mut holes = 0;
    let mut scans = 0;
    while total < wanted {
        let left = bounds.stop_time().map(|time| {
            if edges.values().any(|edge| edge.stop.is_awaited()) {
                time_until(time)
            } else {
                Duration::ZERO
            }
        });
        let found = follow
            .next_scan(left.map(|left| left.min(LOOK_EVERY)))
            .map_err(|error| overtaken(error.into()))?;
        let is_last = match left {
            None => found.is_none(),
            // Once the time has passed or all stops are known, what is there is all: a scan may have been made before its stop was found.
            Some(left) => left.is_zero(),
        };
        if let Some(mut scan) = found {
            scans += 1;
            let mut part = |log: &Log| match edges.get_mut(log.path()) {
                Some(edge) => edge.look(log, options.isolation, scans),
                None => Ok(WHOLE),
            };
            let limits = (wanted, &mut total);
            let how = (args.unbuffered, printer);
            print(&mut scan, limits, how, console, &mut part, |_| ()).map_err(overtaken)?;
            for hole in follow.report().holes().iter().skip(holes) {
                console.warn(&hole.to_string());
                holes += 1;
            }
            // A reader of the output waits for it.
            console.out.flush()?;
        }
        if is_last {
            follow.check().map_err(|error| overtaken(error.into()))?;
            break;
        }
    }
    Ok(total)
}

/// How long it takes until the clock shows a time.
fn time_until(When(time): When) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let left = u128::try_from(time).unwrap_or(0).saturating_sub(now);
    Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX))
}

/// Where the range of a followed partition begins or ends.
#[derive(Debug, Clone, Copy)]
enum Mark {
    /// Not at a time.
    Open,
    /// At the first record at or after a time, which is not there yet.
    Awaited(When),
    /// At the offset of that record.
    Found(i64),
}

impl Mark {
    fn of(time: Option<When>, log: &Log, isolation: Isolation) -> Result<Self, Failure> {
        let mut mark = time.map_or(Self::Open, Self::Awaited);
        mark.look(log, isolation)?;
        Ok(mark)
    }

    fn look(&mut self, log: &Log, isolation: Isolation) -> Result<(), Failure> {
        if let Self::Awaited(When(time)) = *self
            && let Some(found) = log.offset_for_timestamp(time, isolation)?
        {
            *self = Self::Found(found.offset);
        }
        Ok(())
    }

    fn offset(self) -> Option<i64> {
        match self {
            Self::Found(offset) => Some(offset),
            _ => None,
        }
    }

    fn is_awaited(self) -> bool {
        matches!(self, Self::Awaited(_))
    }
}

/// The times that bound a followed partition.
#[derive(Debug)]
struct Edge {
    start: Mark,
    stop: Mark,
    /// Number of the scan in which they were looked up last.
    scan: u64,
}

impl Edge {
    fn of(bounds: Bounds, log: &Log, isolation: Isolation) -> Result<Self, Failure> {
        Ok(Self {
            start: Mark::of(bounds.start_time(), log, isolation)?,
            stop: Mark::of(bounds.stop_time(), log, isolation)?,
            scan: 0,
        })
    }

    /// The offsets to print of what a scan returns. The log is asked after the scan was made, so it knows every record in it.
    fn look(&mut self, log: &Log, isolation: Isolation, scan: u64) -> Result<Range, Failure> {
        if self.scan != scan {
            self.scan = scan;
            self.start.look(log, isolation)?;
            self.stop.look(log, isolation)?;
        }
        let start = match self.start {
            Mark::Open => i64::MIN,
            Mark::Awaited(_) => i64::MAX,
            Mark::Found(offset) => offset,
        };
        Ok(Range {
            start,
            stop: self.stop.offset().unwrap_or(i64::MAX),
        })
    }
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
    pub(crate) fn of(words: &[OffsetWord]) -> Result<Self, Failure> {
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

    fn start_time(&self) -> Option<When> {
        match self.start {
            OffsetWord::StartTime(when) => Some(when),
            _ => None,
        }
    }

    fn stop_time(&self) -> Option<When> {
        match self.stop {
            Some(OffsetWord::StopTime(when)) => Some(when),
            _ => None,
        }
    }

    /// The offsets of one partition; what lies outside it is said and left out.
    pub(crate) fn resolve(
        &self,
        log: &Log,
        isolation: Isolation,
        on_corrupt: OnCorrupt,
        console: &mut Console<'_>,
    ) -> Result<Range, Failure> {
        let first = log.log_start_offset()?;
        let end = match isolation {
            Isolation::ReadCommitted => log.last_stable_offset(),
            Isolation::ReadUncommitted => log.log_end_offset(),
        };
        let counts_from_end = matches!(self.start, OffsetWord::End | OffsetWord::BeforeEnd(_));
        let end = match end {
            // Damage hides the end: the scan finds it.
            Err(error)
                if on_corrupt != OnCorrupt::Raise && error.is_corruption() && !counts_from_end =>
            {
                i64::MAX
            }
            end => end?,
        };
        if first > end {
            // The log dir's checkpoint hides all records that are here: an error, as of a scan.
            log.batches(None, None)?;
        }
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

/// Finds the offset at which reading can continue behind a damaged batch whose header still makes sense.
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

/// Prints a range of one partition, and reports what was left out. Calls `look` now and then with the progress, of [`STEPS`].
fn print_range(
    args: &Cat,
    log: &Log,
    Range { start, stop }: Range,
    (limit, count): (u64, &mut u64),
    printer: &Printer,
    console: &mut Console<'_>,
    look: impl Fn(u64),
) -> Result<(), Failure> {
    if start >= stop {
        return Ok(());
    }
    let mut scan = log.scan(&ScanOptions {
        start: Some(start),
        stop: Some(stop),
        isolation: args.isolation_level.into(),
        limit: Some(limit),
        on_corrupt: args.on_corrupt.into(),
        ..ScanOptions::default()
    })?;
    let length = u128::from(stop.abs_diff(start));
    print(
        &mut scan,
        (limit, count),
        (args.unbuffered, printer),
        console,
        |_| Ok(WHOLE),
        |last| {
            let done = u128::from(last.abs_diff(start)) * u128::from(STEPS);
            look(u64::try_from(done / length).unwrap_or(STEPS));
        },
    )?;
    for warning in oddities(&scan, log) {
        console.warn(&warning);
    }
    Ok(())
}

/// Prints up to `limit` records and counts them, of each batch's log the `part`. Calls `look` with the last offset of each batch.
fn print(
    scan: &mut Scan,
    (limit, count): (u64, &mut u64),
    (unbuffered, printer): (bool, &Printer),
    console: &mut Console<'_>,
    mut part: impl FnMut(&Log) -> Result<Range, Failure>,
    look: impl Fn(i64),
) -> Result<(), Failure> {
    while *count < limit
        && let Some(mut batch) = scan.next_batch()?
    {
        let header = *batch.header();
        let log = batch.log().clone();
        let part = part(&log)?;
        let is_in_part = part.start <= header.last_offset
            && header.base_offset.is_none_or(|base| base < part.stop);
        while is_in_part
            && *count < limit
            && let Some(record) = batch.next_record()?
        {
            if !(part.start..part.stop).contains(&record.offset) {
                continue;
            }
            let fields = Fields::of(&log, &header, &record);
            printer.print(&mut console.out, &fields)?;
            if unbuffered {
                console.out.flush()?;
            }
            *count += 1;
        }
        look(batch.header().last_offset);
    }
    Ok(())
}

/// What a scan left out because of damage, and what it found unfinished.
pub(crate) fn oddities(scan: &Scan, log: &Log) -> Vec<String> {
    let report = scan.report();
    let mut warnings: Vec<String> = report.holes().iter().map(ToString::to_string).collect();
    let more = report.hole_count() - report.holes().len() as u64;
    if more > 0 {
        warnings.push(format!("and {} more", counted(more, "hole")));
    }
    let (topic, partition) = (log.topic(), log.partition());
    let torn = scan.torn_tails().iter();
    warnings.extend(torn.map(|torn| format!("{topic}-{partition}: {torn}")));
    warnings
}
