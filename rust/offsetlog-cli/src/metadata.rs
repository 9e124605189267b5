//! `offsetlog metadata`: topics, partitions, settings, brokers and features of a cluster, out of its metadata log or ZooKeeper's data.

mod directories;
mod node;
mod recreate;

use crate::args::Metadata;
use crate::console::Console;
use crate::escape::{escaped, shown};
use crate::failure::Failure;
use crate::json::write_json;
use crate::progress::Progress;
use crate::table::{Align, Table, or_dash};
use crate::{EXIT_FINE, EXIT_NOTHING};
use offsetlog::format::internal_topic::METADATA_TOPIC;
use offsetlog::{BrokerRegistration, LogDir, MetadataImage, OpenOptions, Steps, TopicImage};
use offsetlog_ops::which_metadata;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// One topic, as a JSON line.
#[derive(Serialize)]
struct TopicLine<'a> {
    topic: &'a str,
    topic_id: Option<String>,
    partitions: Vec<PartitionLine<'a>>,
    configs: Option<&'a BTreeMap<String, String>>,
}

#[derive(Serialize)]
struct PartitionLine<'a> {
    partition: i32,
    leader: Option<i32>,
    leader_epoch: i32,
    partition_epoch: i32,
    replicas: &'a [i32],
    isr: &'a [i32],
    adding_replicas: &'a [i32],
    removing_replicas: &'a [i32],
    elr: &'a [i32],
    last_known_elr: &'a [i32],
    directories: Vec<String>,
}

/// The settings of one topic, broker or group, as a JSON line.
#[derive(Serialize)]
struct ConfigLine<'a> {
    r#type: &'a str,
    name: &'a str,
    configs: &'a BTreeMap<String, String>,
}

/// One broker, as a JSON line.
#[derive(Serialize)]
struct BrokerLine<'a> {
    broker: i32,
    epoch: i64,
    rack: Option<&'a str>,
    fenced: bool,
    in_controlled_shutdown: bool,
    endpoints: Vec<EndpointLine<'a>>,
    log_dirs: Vec<String>,
}

#[derive(Serialize)]
struct EndpointLine<'a> {
    listener: &'a str,
    host: &'a str,
    port: i32,
}

#[derive(Serialize)]
struct FeatureLine<'a> {
    feature: &'a str,
    level: i32,
}

pub(crate) fn run(args: &Metadata, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    if let Some(node) = &args.get {
        return node::run(args, node, &options, console);
    }
    if args.directories {
        return directories::run(args, &options, console);
    }
    if args.as_commands || args.as_yaml {
        return recreate::run(args, &options, console);
    }
    let log_dir = LogDir::open(&args.paths, &options)?;
    let (bar, progress) = Progress::of_directories(console);
    let mut steps = Steps::new(&progress);
    let found = log_dir.metadata_told(&mut steps)?;
    steps.end()?;
    drop(bar);
    let image = found.as_ref();
    let left_out = image.map_or(&[][..], |image| &image.warnings);
    for warning in log_dir.warnings().iter().chain(left_out) {
        console.warn(warning);
    }
    let Some(mut image) = found else {
        console.warn(
            "no __cluster_metadata-0 here; it is in metadata.log.dir, without that in the first of log.dirs; of a cluster with ZooKeeper give \
             the data of that too (dataDir)",
        );
        return Ok(EXIT_NOTHING);
    };
    if !image.is_of_zookeeper {
        let taken = log_dir.log(METADATA_TOPIC, 0)?.path().to_path_buf();
        if let Some(which) = which_metadata(&log_dir, &BTreeSet::from([taken])) {
            console.warn(&which);
        }
    }
    if !args.show_secrets {
        image.hide_secrets();
    }
    if !args.topics.is_empty() {
        for name in &args.topics {
            if !image.topics.iter().any(|topic| topic.name == *name) {
                console.warn(&format!("no topic {} in the metadata", escaped(name)));
            }
        }
        let is_chosen = |name: &String| args.topics.contains(name);
        image.topics.retain(|topic| is_chosen(&topic.name));
        image
            .configs
            .retain(|(kind, name), _| kind == "topic" && is_chosen(name));
    }
    let json = args.json;
    if args.configs {
        let lines: Vec<_> = image.configs.iter().map(config_line).collect();
        print(&lines, config_table, json, console)
    } else if args.brokers {
        let lines: Vec<_> = image.brokers.iter().map(broker_line).collect();
        print(&lines, broker_table, json, console)
    } else if args.features {
        let features = image.features.iter();
        let lines: Vec<_> = features
            .map(|(feature, &level)| FeatureLine { feature, level })
            .collect();
        print(&lines, feature_table, json, console)
    } else {
        let topics = image.topics.iter();
        let lines: Vec<_> = topics.map(|topic| topic_line(&image, topic)).collect();
        print(&lines, topic_table, json, console)
    }
}

fn print<T: Serialize>(
    lines: &[T],
    table: impl Fn(&[T]) -> Table,
    json: bool,
    console: &mut Console<'_>,
) -> Result<i32, Failure> {
    if json {
        for line in lines {
            write_json(&mut console.out, line)?;
            console.out.write_all(b"\n")?;
        }
    } else {
        table(lines).write(console)?;
    }
    Ok(if lines.is_empty() {
        EXIT_NOTHING
    } else {
        EXIT_FINE
    })
}

fn topic_line<'a>(image: &'a MetadataImage, topic: &'a TopicImage) -> TopicLine<'a> {
    let partitions = topic
        .partitions
        .iter()
        .map(|(number, found)| PartitionLine {
            partition: *number,
            leader: found.leader,
            leader_epoch: found.leader_epoch,
            partition_epoch: found.partition_epoch,
            replicas: &found.replicas,
            isr: &found.isr,
            adding_replicas: &found.adding_replicas,
            removing_replicas: &found.removing_replicas,
            elr: &found.elr,
            last_known_elr: &found.last_known_elr,
            directories: found.directories.iter().map(ToString::to_string).collect(),
        });
    TopicLine {
        topic: &topic.name,
        // Brokers with ZooKeeper gave none before 2.8.
        topic_id: (!topic.topic_id.is_zero()).then(|| topic.topic_id.to_string()),
        partitions: partitions.collect(),
        configs: image.configs.get(&("topic".to_owned(), topic.name.clone())),
    }
}

fn topic_table(topics: &[TopicLine<'_>]) -> Table {
    let mut table = Table::new(&[
        ("TOPIC", Align::Left),
        ("TOPIC-ID", Align::Left),
        ("PARTITION", Align::Right),
        ("LEADER", Align::Right),
        ("LEADER-EPOCH", Align::Right),
        ("REPLICAS", Align::Left),
        ("ISR", Align::Left),
        ("ELR", Align::Left),
    ]);
    for topic in topics {
        for each in &topic.partitions {
            table.push([
                escaped(topic.topic),
                or_dash(topic.topic_id.as_deref()),
                each.partition.to_string(),
                or_dash(each.leader),
                each.leader_epoch.to_string(),
                or_dash(shown(&joined(each.replicas))),
                or_dash(shown(&joined(each.isr))),
                or_dash(shown(&joined(each.elr))),
            ]);
        }
    }
    table
}

type Configs<'a> = (&'a (String, String), &'a BTreeMap<String, String>);

fn config_line(((kind, name), configs): Configs<'_>) -> ConfigLine<'_> {
    ConfigLine {
        r#type: kind,
        name,
        configs,
    }
}

fn config_table(lines: &[ConfigLine<'_>]) -> Table {
    let mut table = Table::new(&[
        ("TYPE", Align::Left),
        ("NAME", Align::Left),
        ("SETTING", Align::Left),
        ("VALUE", Align::Left),
    ]);
    for line in lines {
        for (name, value) in line.configs {
            table.push([
                line.r#type.to_owned(),
                or_dash(shown(line.name)),
                escaped(name),
                escaped(value),
            ]);
        }
    }
    table
}

fn broker_line(broker: &BrokerRegistration) -> BrokerLine<'_> {
    let endpoints = broker.endpoints.iter();
    let endpoints = endpoints.map(|(listener, host, port)| EndpointLine {
        listener,
        host,
        port: *port,
    });
    BrokerLine {
        broker: broker.id,
        epoch: broker.epoch,
        rack: broker.rack.as_deref(),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        endpoints: endpoints.collect(),
        log_dirs: broker.log_dirs.iter().map(ToString::to_string).collect(),
    }
}

fn broker_table(lines: &[BrokerLine<'_>]) -> Table {
    let mut table = Table::new(&[
        ("BROKER", Align::Right),
        ("EPOCH", Align::Right),
        ("RACK", Align::Left),
        ("FENCED", Align::Left),
        ("ENDPOINTS", Align::Left),
        ("LOG-DIRS", Align::Left),
    ]);
    for line in lines {
        let endpoints = line.endpoints.iter();
        let endpoints: Vec<String> = endpoints
            .map(|each| format!("{}://{}:{}", each.listener, each.host, each.port))
            .collect();
        table.push([
            line.broker.to_string(),
            line.epoch.to_string(),
            or_dash(line.rack.and_then(shown)),
            line.fenced.to_string(),
            or_dash(shown(&endpoints.join(","))),
            or_dash(shown(&line.log_dirs.join(","))),
        ]);
    }
    table
}

fn feature_table(lines: &[FeatureLine<'_>]) -> Table {
    let mut table = Table::new(&[("FEATURE", Align::Left), ("LEVEL", Align::Right)]);
    for line in lines {
        table.push([escaped(line.feature), line.level.to_string()]);
    }
    table
}

fn joined(numbers: &[i32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}
