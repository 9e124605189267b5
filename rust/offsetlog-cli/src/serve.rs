//! `offsetlog serve`: log dirs that real Kafka clients read.

use crate::args::{OpenTransactions as Open, Serve, Until as Where};
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::signals::{Stop, catch_stop};
use crate::table::{Align, Table};
use crate::{EXIT_FINE, EXIT_INTERRUPTED};
use offsetlog::disk::RealDisk;
use offsetlog::format::counted;
use offsetlog::{BrokerSettings, OpenOptions};
use offsetlog_net::server::{OpenTransactions, ServeReport, TopicReport, Until};
use offsetlog_net::serving::{Serving, ServingError, ServingOptions};
use offsetlog_net::transport::{Event, EventLevel, ServerLimits};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How often the end is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Events that wait to be printed; more are counted only. A flood of connections is not to fill the disk with lines.
const EVENTS_MAX: usize = 100;
/// How many topics the screen has room for.
const TOPICS_SHOWN: usize = 20;
/// How many warnings it has room for.
const WARNINGS_SHOWN: usize = 10;
/// How many replicas that are not served it has room for.
const REPLICAS_SHOWN: usize = 5;

/// What a connection's thread hands over to be printed.
struct Line {
    level: EventLevel,
    kind: String,
    peer: Option<String>,
    text: String,
}

#[derive(Serialize)]
struct EventLine<'a> {
    time_ms: i64,
    level: &'a str,
    event: &'a str,
    peer: Option<&'a str>,
    text: &'a str,
}

#[derive(Serialize)]
struct ServedLine<'a> {
    time_ms: i64,
    event: &'a str,
    bootstrap_servers: &'a str,
    listen: Vec<String>,
    metrics: Option<String>,
    cluster_id: &'a str,
    node_id: i32,
    encrypted: bool,
    sasl: bool,
    topics: Vec<TopicLine<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct TopicLine<'a> {
    topic: &'a str,
    topic_id: Option<String>,
    partitions: Vec<PartitionLine<'a>>,
}

#[derive(Serialize)]
struct PartitionLine<'a> {
    partition: i32,
    path: Option<Shown<'a>>,
    log_start_offset: Option<i64>,
    log_end_offset: Option<i64>,
    last_stable_offset: Option<i64>,
    problem: Option<&'a str>,
    others: Vec<OtherLine<'a>>,
}

#[derive(Serialize)]
struct OtherLine<'a> {
    path: Shown<'a>,
    reason: &'a str,
}

pub(crate) fn run(args: &Serve, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let (lines, events) = sync_channel(EVENTS_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let options = options(args, console, lines, &lost)?;
    // Asked for from here on: what is begun is stopped as it should be.
    let mut stop = catch_stop(&console.terminal);
    let serving = Serving::start(&options).map_err(|error| match error {
        ServingError::Engine(error) => Failure::Engine(error),
        other => Failure::Usage(other.to_string()),
    })?;
    let report = serving.report();
    if args.json {
        write_line(&serving, &report, console)?;
    } else {
        write_screen(&serving, &report, args, console)?;
    }
    console.out.flush()?;
    let ended = attend(&mut stop, &events, &lost, args, console);
    serving.stop();
    // The events of the last connections.
    while let Ok(line) = events.try_recv() {
        print(&line, args, console)?;
    }
    ended
}

/// Prints what happens until the end.
fn attend(
    stop: &mut dyn FnMut() -> Option<Stop>,
    events: &Receiver<Line>,
    lost: &AtomicU64,
    args: &Serve,
    console: &mut Console<'_>,
) -> Result<i32, Failure> {
    let mut printed = Instant::now();
    loop {
        match stop() {
            Some(Stop::Interrupted) => return Ok(EXIT_INTERRUPTED),
            Some(Stop::Terminated) => return Ok(EXIT_FINE),
            None => {}
        }
        match events.recv_timeout(LOOK_EVERY) {
            Ok(line) => print(&line, args, console)?,
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody is left who could tell anything; the server still runs.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
        if printed.elapsed() > Duration::from_secs(1) {
            printed = Instant::now();
            let count = lost.swap(0, Ordering::Relaxed);
            if count > 0 {
                let line = Line {
                    level: EventLevel::Warning,
                    kind: "not-logged".to_owned(),
                    peer: None,
                    text: format!("{} more are not logged", counted(count, "event")),
                };
                print(&line, args, console)?;
            }
        }
    }
}

fn print(line: &Line, args: &Serve, console: &mut Console<'_>) -> Result<(), Failure> {
    if args.json {
        let level = match line.level {
            EventLevel::Info => "info",
            EventLevel::Warning => "warning",
            EventLevel::Error => "error",
        };
        let line = EventLine {
            time_ms: offsetlog::disk::wall_clock(),
            level,
            event: &line.kind,
            peer: line.peer.as_deref(),
            text: &line.text,
        };
        write_json(&mut console.out, &line)?;
        console.out.write_all(b"\n")?;
        console.out.flush()?;
        return Ok(());
    }
    let text = match &line.peer {
        Some(peer) => format!("{peer}: {}", line.text),
        None => line.text.clone(),
    };
    match line.level {
        EventLevel::Info => console.note(&text),
        EventLevel::Warning => console.warn(&text),
        EventLevel::Error => console.error(&text),
    }
    Ok(())
}

fn options(
    args: &Serve,
    console: &Console<'_>,
    lines: SyncSender<Line>,
    lost: &Arc<AtomicU64>,
) -> Result<ServingOptions, Failure> {
    let lost = Arc::clone(lost);
    let broker_settings = args
        .broker
        .as_deref()
        .map(|path| BrokerSettings::read(&RealDisk, path))
        .transpose()?;
    let open_transactions = match (args.open_transactions, args.without_state) {
        (Open::Decide, without_state) => OpenTransactions::Decide { without_state },
        (Open::Wait, false) => OpenTransactions::Wait,
        (Open::Wait, true) => {
            return Err(Failure::Usage(
                "--without-state goes with --open-transactions decide".into(),
            ));
        }
    };
    Ok(ServingOptions {
        paths: args.paths.clone(),
        topics: args.topics.clone(),
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        until: match args.until {
            Where::LogEnd => Until::LogEnd,
            Where::HighWatermark => Until::HighWatermark,
        },
        open_transactions,
        groups: args.groups.clone(),
        without_offsets: args.without_offsets,
        broker_settings,
        metadata: args.metadata.clone(),
        tls_certificate: args.tls_cert.clone(),
        tls_key: args.tls_key.clone(),
        tls_client_ca: args.tls_client_ca.clone(),
        users: args.users.clone(),
        insecure: args.insecure,
        metrics: args.metrics.clone(),
        limits: ServerLimits {
            connections_max: args.max_connections as usize,
            request_bytes_max: args.max_request_bytes,
            requests_bytes_max: args.max_memory_bytes,
            idle_timeout: Duration::from_secs(args.idle_timeout.into()),
            ..ServerLimits::default()
        },
        open: OpenOptions {
            interrupt: console.terminal.interrupt.clone(),
            ..OpenOptions::default()
        },
        log: Some(Arc::new(move |event: &Event<'_>| {
            let line = Line {
                level: event.level,
                kind: event.kind.to_owned(),
                peer: event.peer.map(|peer| peer.to_string()),
                text: event.text.clone(),
            };
            if lines.try_send(line).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        })),
    })
}

fn write_line(
    serving: &Serving,
    report: &ServeReport,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let addresses = serving.addresses().iter();
    let line = ServedLine {
        time_ms: offsetlog::disk::wall_clock(),
        event: "serving",
        bootstrap_servers: &serving.bootstrap_servers(),
        listen: addresses.map(ToString::to_string).collect(),
        metrics: serving.metrics_address().map(|it| it.to_string()),
        cluster_id: &report.cluster_id,
        node_id: report.node_id,
        encrypted: serving.is_encrypted(),
        sasl: serving.has_users(),
        topics: report.topics.iter().map(topic_line).collect(),
        warnings: &report.warnings,
    };
    write_json(&mut console.out, &line)?;
    console.out.write_all(b"\n")?;
    Ok(())
}

fn topic_line(topic: &TopicReport) -> TopicLine<'_> {
    let partitions = topic.partitions.iter().map(|partition| PartitionLine {
        partition: partition.partition,
        path: partition.path.as_deref().map(Shown::path),
        log_start_offset: partition.log_start_offset,
        log_end_offset: partition.log_end_offset,
        last_stable_offset: partition.last_stable_offset,
        problem: partition.problem.as_deref(),
        others: partition
            .others
            .iter()
            .map(|other| OtherLine {
                path: Shown::path(&other.path),
                reason: &other.reason,
            })
            .collect(),
    });
    TopicLine {
        topic: &topic.name,
        topic_id: topic.topic_id.map(|id| id.to_string()),
        partitions: partitions.collect(),
    }
}

/// What is served, and how to read it, on one screen.
fn write_screen(
    serving: &Serving,
    report: &ServeReport,
    args: &Serve,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    for warning in report.warnings.iter().take(WARNINGS_SHOWN) {
        console.warn(warning);
    }
    let more = report.warnings.len().saturating_sub(WARNINGS_SHOWN);
    if more > 0 {
        console.warn(&format!("{more} more warnings; --json has all of them"));
    }
    let own = |topic: &&TopicReport| !topic.is_internal;
    let (mut table, mut problems) = (topics_table(), Vec::new());
    // Internal topics last: there is room for few.
    let topics = report.topics.iter().filter(own);
    let topics = topics.chain(report.topics.iter().filter(|topic| topic.is_internal));
    for topic in topics.clone().take(TOPICS_SHOWN) {
        table.push(row(topic));
    }
    for topic in topics.clone() {
        for partition in &topic.partitions {
            if let Some(problem) = &partition.problem {
                problems.push(format!("{}-{}: {problem}", topic.name, partition.partition));
            }
        }
    }
    let partitions: usize = report
        .topics
        .iter()
        .map(|topic| topic.partitions.len())
        .sum();
    writeln!(
        console.out,
        "Serving {} with {} at {}, as broker {} of cluster {}",
        counted(report.topics.len() as u64, "topic"),
        counted(partitions as u64, "partition"),
        escaped(&serving.bootstrap_servers()),
        report.node_id,
        escaped(&report.cluster_id)
    )?;
    if args.advertise.is_some() {
        // The advertised address differs from this one.
        let addresses = serving.addresses().iter().map(ToString::to_string);
        let addresses: Vec<_> = addresses.collect();
        writeln!(console.out, "Listening at {}", addresses.join(", "))?;
    }
    writeln!(console.out)?;
    table.write(console)?;
    let more = report.topics.len().saturating_sub(TOPICS_SHOWN);
    if more > 0 {
        writeln!(console.out, "and {}", counted(more as u64, "more topic"))?;
    }
    for problem in problems.iter().take(WARNINGS_SHOWN) {
        console.warn(problem);
    }
    let more = problems.len().saturating_sub(WARNINGS_SHOWN);
    if more > 0 {
        console.warn(&format!(
            "{more} more partitions have problems; --json has all of them"
        ));
    }
    write_replicas(report, console)?;
    let topic = topics
        .clone()
        .next()
        .map_or("TOPIC", |topic| topic.name.as_str());
    write_commands(serving, &escaped(topic), args, console)?;
    if let Some(metrics) = serving.metrics_address() {
        writeln!(console.out, "Prometheus: http://{metrics}/metrics")?;
    }
    writeln!(console.out, "Ctrl-C stops it.")?;
    Ok(())
}

/// Which of several replicas is served, and why no other.
fn write_replicas(report: &ServeReport, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for topic in &report.topics {
        for partition in &topic.partitions {
            let Some(served) = &partition.path else {
                continue;
            };
            for other in &partition.others {
                lines.push(format!(
                    "  {}-{}: {}, not {}: {}",
                    escaped(&topic.name),
                    partition.partition,
                    escaped(&served.to_string_lossy()),
                    escaped(&other.path.to_string_lossy()),
                    escaped(&other.reason)
                ));
            }
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(console.out, "\nOf several replicas the best:")?;
    for line in lines.iter().take(REPLICAS_SHOWN) {
        writeln!(console.out, "{line}")?;
    }
    let more = lines.len().saturating_sub(REPLICAS_SHOWN);
    if more > 0 {
        let more = counted(more as u64, "more replica");
        writeln!(
            console.out,
            "  and {more} not served; --json has all of them"
        )?;
    }
    Ok(())
}

fn topics_table() -> Table {
    Table::new(&[
        ("TOPIC", Align::Left),
        ("PARTITIONS", Align::Right),
        ("OFFSETS", Align::Right),
        ("", Align::Left),
    ])
}

fn row(topic: &TopicReport) -> [String; 4] {
    let offsets: i64 = topic
        .partitions
        .iter()
        .filter_map(|partition| Some(partition.log_end_offset? - partition.log_start_offset?))
        .fold(0, i64::saturating_add);
    let offline = topic
        .partitions
        .iter()
        .filter(|it| it.log_end_offset.is_none());
    let damaged = topic
        .partitions
        .iter()
        .filter(|it| it.log_end_offset.is_some() && it.problem.is_some());
    let open: usize = topic
        .partitions
        .iter()
        .map(|it| it.open_transactions.len())
        .sum();
    let mut notes = Vec::new();
    for (count, what) in [(offline.count(), "offline"), (damaged.count(), "damaged")] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    if open > 0 {
        notes.push(counted(open as u64, "open transaction").to_string());
    }
    [
        escaped(&topic.name),
        topic.partitions.len().to_string(),
        offsets.to_string(),
        notes.join(", "),
    ]
}

/// The lines that read it.
fn write_commands(
    serving: &Serving,
    topic: &str,
    args: &Serve,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let servers = escaped(&serving.bootstrap_servers());
    let protocol = match (serving.has_users(), serving.is_encrypted()) {
        (false, false) => None,
        (false, true) => Some("SSL"),
        (true, false) => Some("SASL_PLAINTEXT"),
        (true, true) => Some("SASL_SSL"),
    };
    let (mut kcat, mut java) = (String::new(), Vec::new());
    if let Some(protocol) = protocol {
        kcat = format!(" -X security.protocol={protocol}");
        java.push(format!("security.protocol={protocol}"));
    }
    if serving.is_encrypted() {
        kcat.push_str(" -X ssl.ca.location=CA.pem");
        java.push("ssl.truststore.type=PEM".to_owned());
        java.push("ssl.truststore.location=CA.pem".to_owned());
        if args.tls_client_ca.is_some() {
            kcat.push_str(
                " -X ssl.certificate.location=CLIENT.pem -X ssl.key.location=CLIENT-KEY.pem",
            );
            java.push("ssl.keystore.type=PEM".to_owned());
            java.push("ssl.keystore.location=CLIENT-WITH-KEY.pem".to_owned());
        }
    }
    if serving.has_users() {
        kcat.push_str(
            " -X sasl.mechanism=SCRAM-SHA-512 -X sasl.username=USER -X sasl.password=PASSWORD",
        );
        java.push("sasl.mechanism=SCRAM-SHA-512".to_owned());
        java.push("sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"USER\" password=\"PASSWORD\";".to_owned());
    }
    let config = if java.is_empty() {
        ""
    } else {
        " --consumer.config client.properties"
    };
    writeln!(console.out, "\nRead it:")?;
    writeln!(
        console.out,
        "  kcat -b {servers}{kcat} -C -t {topic} -o beginning -e"
    )?;
    writeln!(
        console.out,
        "  kafka-console-consumer.sh --bootstrap-server {servers}{config} --topic {topic} --from-beginning"
    )?;
    if !java.is_empty() {
        writeln!(console.out, "with client.properties:")?;
        for line in java {
            writeln!(console.out, "  {line}")?;
        }
    }
    writeln!(console.out)?;
    Ok(())
}
