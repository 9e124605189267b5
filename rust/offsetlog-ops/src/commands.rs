//! A plan as commands of Kafka's own programs, a script for `sh`.

use crate::recreation::{Recreation, TopicToMake};
use crate::shell::{comment, is_printable, quoted};
use crate::topic_config::throttle;
use offsetlog::format::meta_properties::write_property;
use offsetlog::{AccessControlEntry, ClientQuota, MetadataImage, is_secret};

const HEAD: [&str; 4] = [
    "Makes the topics and settings of a cluster again, in a new one. Read it before you run it; Kafka's programs have to be on the path.",
    "Topic ids cannot be given to kafka-topics.sh: each topic gets a new one, and the directories of the old one are strays to it.",
    "",
    "Topics",
];

impl Recreation {
    /// The commands that make the topics, settings, quotas and access control again, those of Kafka's own programs, with a comment for
    /// all that is not known or left out. `replica_assignment` names the brokers of each partition in the place of their number.
    /// Passwords of SCRAM are not in it, and other secrets with `show_secrets` only.
    #[must_use]
    pub fn commands(
        &self,
        bootstrap_server: &str,
        replica_assignment: bool,
        show_secrets: bool,
    ) -> String {
        let mut script = Script {
            out: String::from("#!/bin/sh\n"),
            server: quoted(&printable(bootstrap_server)),
            replica_assignment,
            show_secrets,
        };
        for line in HEAD {
            script.say(line);
        }
        self.say_sources(&mut script);
        for topic in &self.topics {
            script.topic(topic);
        }
        for (name, why) in &self.left_out {
            script.say(&format!("left out: {name}: {why}"));
        }
        match &self.metadata {
            Some(metadata) if !self.is_of_some => script.rest(metadata),
            _ => {}
        }
        script.out
    }

    fn say_sources(&self, script: &mut Script) {
        for doubt in self.doubts() {
            script.say(&format!("WARNING: {doubt}"));
        }
    }
}

/// A server's address comes from a command line; nothing in it may end a line.
fn printable(text: &str) -> String {
    text.chars().filter(|each| is_printable(*each)).collect()
}

/// What a setting is for, in the words of kafka-configs.sh and of its file of properties.
struct Entity {
    /// Its options, quoted.
    options: String,
    /// Its name in comments.
    name: String,
}

struct Script {
    out: String,
    /// Quoted.
    server: String,
    replica_assignment: bool,
    show_secrets: bool,
}

impl Script {
    fn say(&mut self, text: &str) {
        if text.is_empty() {
            self.out.push('\n');
        } else {
            comment(&mut self.out, text);
        }
    }

    fn topic(&mut self, topic: &TopicToMake) {
        let topic = &topic.for_new_cluster(self.show_secrets);
        let name = &topic.name;
        let id = topic.topic_id.map_or_else(
            || "topic id unknown".to_owned(),
            |id| format!("had the topic id {id}"),
        );
        self.say("");
        self.say(&format!("{name}: {id}"));
        for note in &topic.notes {
            self.say(&format!("{name}: {note}"));
        }
        if topic.partitions < 1 {
            self.say(&format!("{name}: left out: no partition of it is known"));
            return;
        }
        let mut options = vec![format!("--create --topic {}", quoted(name))];
        let assignment = topic.assignment.as_ref();
        if let Some(assignment) = assignment.filter(|_| self.replica_assignment) {
            options.push(format!("--replica-assignment {}", assigned(assignment)));
        } else {
            if self.replica_assignment {
                self.say(&format!(
                    "{name}: the brokers of all its partitions are not known, or their number differs: given is the number of replicas"
                ));
            }
            options.push(format!("--partitions {}", topic.partitions));
            let factor = topic.replication_factor;
            options.extend(factor.map(|factor| format!("--replication-factor {factor}")));
        }
        let mut later = Vec::new();
        for (key, value) in &topic.configs {
            let (key, value) = (key.as_str(), value.as_str());
            if is_for_topics(key) && is_for_topics(value) {
                options.push(format!("--config {}", quoted(&format!("{key}={value}"))));
            } else {
                later.push((key, value));
            }
        }
        self.run("kafka-topics.sh", &options.join(" "));
        if !later.is_empty() {
            let entity = Entity {
                options: format!("--entity-type topics --entity-name {}", quoted(name)),
                name: name.clone(),
            };
            self.alter(&entity, &later);
        }
    }

    fn hidden(&mut self, name: &str, hidden: &[&str]) {
        if !hidden.is_empty() {
            self.say(&format!(
                "{name}: left out, as they are secrets or not known to be none (--show-secrets prints them): {}",
                hidden.join(", ")
            ));
        }
    }

    /// Everything but topics.
    fn rest(&mut self, metadata: &MetadataImage) {
        self.say("");
        self.dynamic_settings(metadata);
        self.quotas(&metadata.client_quotas);
        self.credentials(metadata);
        self.acls(&metadata.acls);
        if !metadata.features.is_empty() {
            let features = metadata.features.iter();
            let features: Vec<String> = features
                .map(|(name, level)| format!("{name}={level}"))
                .collect();
            self.say(&format!(
                "Left out: features, which kafka-storage.sh and kafka-features.sh set; they were {}",
                features.join(", ")
            ));
        }
    }

    fn dynamic_settings(&mut self, metadata: &MetadataImage) {
        for ((kind, name), configs) in &metadata.configs {
            let entity_type = match kind.as_str() {
                "topic" => continue,
                "broker" => "brokers",
                "broker-logger" => "broker-loggers",
                "client-metrics" => "client-metrics",
                "group" => "groups",
                _ => {
                    self.say(&format!(
                        "left out: settings of {kind} {name}, which no program of Kafka 4.3 sets"
                    ));
                    continue;
                }
            };
            let entity = Entity {
                options: if name.is_empty() {
                    format!("--entity-type {entity_type} --entity-default")
                } else {
                    format!("--entity-type {entity_type} --entity-name {}", quoted(name))
                },
                name: if name.is_empty() {
                    format!("all of {entity_type}")
                } else {
                    format!("{kind} {name}")
                },
            };
            if !name.chars().all(is_printable) {
                self.say(&format!(
                    "left out: settings of {kind} {name}, a name that no terminal shows"
                ));
                continue;
            }
            let is_throttle =
                |(key, value): &(&str, &str)| kind == "broker" && throttle(key, value).is_some();
            let pairs = configs
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()));
            let (throttles, pairs): (Vec<_>, Vec<_>) = pairs.partition(is_throttle);
            for each in throttles
                .iter()
                .filter_map(|(key, value)| throttle(key, value))
            {
                self.say(&format!(
                    "{}: left out: {}",
                    entity.name,
                    each.told(kind, self.show_secrets)
                ));
            }
            let (hidden, shown): (Vec<_>, Vec<_>) = pairs
                .into_iter()
                .partition(|(key, _)| !self.show_secrets && is_secret(kind, key));
            let hidden: Vec<&str> = hidden.into_iter().map(|(key, _)| key).collect();
            self.hidden(&entity.name, &hidden);
            if !shown.is_empty() {
                self.alter(&entity, &shown);
            }
        }
    }

    /// One change of settings: as an argument if kafka-configs.sh reads exactly this text from it, else as a file.
    fn alter(&mut self, entity: &Entity, pairs: &[(&str, &str)]) {
        let mut all = pairs.iter();
        if all.all(|(key, value)| is_for_configs(key) && is_for_configs(value)) {
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            self.add_config(&entity.options, &pairs);
            return;
        }
        let options = format!(
            "--alter {} --add-config-file /dev/stdin <<'EOF'",
            entity.options
        );
        self.run("kafka-configs.sh", &options);
        for (key, value) in pairs {
            write_property(&mut self.out, key, value);
        }
        self.out.push_str("EOF\n");
    }

    fn add_config(&mut self, entity: &str, pairs: &[String]) {
        let pairs = quoted(&pairs.join(","));
        self.run(
            "kafka-configs.sh",
            &format!("--alter {entity} --add-config {pairs}"),
        );
    }

    /// A line that runs a program of Kafka's.
    fn run(&mut self, program: &str, options: &str) {
        for part in [
            program,
            " --bootstrap-server ",
            &self.server,
            " ",
            options,
            "\n",
        ] {
            self.out.push_str(part);
        }
    }

    fn quotas(&mut self, quotas: &[ClientQuota]) {
        for each in quotas {
            let mut options = Vec::new();
            let mut is_known = !each.entity.is_empty();
            for (kind, name) in &each.entity {
                let entity_type = match kind.as_str() {
                    "user" => "users",
                    "client-id" => "clients",
                    "ip" => "ips",
                    _ => "",
                };
                is_known &= !entity_type.is_empty();
                let name = name.as_deref();
                is_known &= name.is_none_or(|name| name.chars().all(is_printable));
                let name = name.map_or_else(
                    || "--entity-default".to_owned(),
                    |name| format!("--entity-name {}", quoted(name)),
                );
                options.push(format!("--entity-type {entity_type} {name}"));
            }
            let pairs: Vec<String> = each
                .quotas
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            is_known &= each.quotas.iter().all(|(key, value)| {
                value.is_finite()
                    && key
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            });
            if is_known {
                self.add_config(&options.join(" "), &pairs);
            } else {
                self.say(&format!(
                    "left out: a quota that kafka-configs.sh does not take: {:?}: {}",
                    each.entity,
                    pairs.join(", ")
                ));
            }
        }
    }

    fn credentials(&mut self, metadata: &MetadataImage) {
        if metadata.scram_credentials.is_empty() {
            return;
        }
        self.say(
            "Left out: passwords of users for SCRAM, which the metadata does not have; these had one, and with the password they get it again:",
        );
        for each in &metadata.scram_credentials {
            let mechanism = match each.mechanism {
                1 => "SCRAM-SHA-256".to_owned(),
                2 => "SCRAM-SHA-512".to_owned(),
                other => format!("mechanism {other}"),
            };
            self.say(&format!(
                "kafka-configs.sh --bootstrap-server {} --alter --entity-type users --entity-name {} --add-config '{mechanism}=[iterations={},password=...]'",
                self.server,
                quoted(&each.user),
                each.iterations
            ));
        }
    }

    fn acls(&mut self, acls: &[AccessControlEntry]) {
        for acl in acls {
            if let Some(options) = acl_options(acl) {
                self.run("kafka-acls.sh", &format!("--add {options}"));
            } else {
                self.say(&format!(
                    "left out: an entry of access control that kafka-acls.sh does not take: {} from {}, operation {} on {} of resource type {}",
                    acl.principal, acl.host, acl.operation, acl.resource_name, acl.resource_type
                ));
            }
        }
    }
}

fn acl_options(acl: &AccessControlEntry) -> Option<String> {
    let texts = [&acl.principal, &acl.host, &acl.resource_name];
    if !texts.iter().all(|text| text.chars().all(is_printable)) {
        return None;
    }
    let verb = match acl.permission_type {
        2 => "deny",
        3 => "allow",
        _ => return None,
    };
    let operation = match acl.operation {
        2 => "All",
        3 => "Read",
        4 => "Write",
        5 => "Create",
        6 => "Delete",
        7 => "Alter",
        8 => "Describe",
        9 => "ClusterAction",
        10 => "DescribeConfigs",
        11 => "AlterConfigs",
        12 => "IdempotentWrite",
        13 => "CreateTokens",
        14 => "DescribeTokens",
        15 => "TwoPhaseCommit",
        _ => return None,
    };
    let pattern = match acl.pattern_type {
        3 => "literal",
        4 => "prefixed",
        _ => return None,
    };
    let name = quoted(&acl.resource_name);
    let resource = match acl.resource_type {
        2 => format!("--topic {name}"),
        3 => format!("--group {name}"),
        4 => "--cluster".to_owned(),
        5 => format!("--transactional-id {name}"),
        6 => format!("--delegation-token {name}"),
        7 => format!("--user-principal {name}"),
        _ => return None,
    };
    Some(format!(
        "--{verb}-principal {} --{verb}-host {} --operation {operation} {resource} --resource-pattern-type {pattern}",
        quoted(&acl.principal),
        quoted(&acl.host)
    ))
}

/// The brokers of each partition, as kafka-topics.sh reads them.
fn assigned(assignment: &[Vec<i32>]) -> String {
    let partitions = assignment.iter().map(|replicas| {
        let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
        replicas.join(":")
    });
    partitions.collect::<Vec<_>>().join(",")
}

/// Whether kafka-topics.sh reads exactly this out of `--config name=value`: it splits at each `=` and trims both.
fn is_for_topics(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !text.contains('=')
}

/// Whether kafka-configs.sh does out of `--add-config name=value,...`: it splits at commas too, and drops brackets.
fn is_for_configs(text: &str) -> bool {
    is_for_topics(text) && !text.contains([',', '[', ']'])
}
