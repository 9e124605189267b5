//! The topics' own settings: asked for, compared with what was stored last.

use super::answers::{error_name, int, structs, text};
use super::{Asked, Core, Node, Request, Settings, TopicState, Versions, version_of};
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::Work;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::DESCRIBE_CONFIGS;
use std::collections::BTreeMap;

/// The type of a topic among the resources that have settings.
const TOPIC: i8 = 2;
/// A setting of the topic itself.
const SOURCE_TOPIC: i64 = 1;
/// Topics whose settings are asked for at once.
const CONFIGS_AT_ONCE: usize = 100;

impl Core {
    pub(super) fn configs_request(&mut self, versions: &Versions, now: i64) -> Option<Request> {
        let is_due = now >= self.configs_due;
        let wanted = self.topics.iter().filter(|(_, topic)| {
            topic.state == TopicState::Settings || (is_due && topic.state == TopicState::Ready)
        });
        let mut names: Vec<String> = wanted.map(|(name, _)| name.clone()).collect();
        if names.is_empty() || !self.is_identified {
            return None;
        }
        let interval = self.options.metadata_interval_ms;
        let version = version_of(&DESCRIBE_CONFIGS, versions, i16::MAX);
        if is_due {
            self.configs_due = now.saturating_add(interval);
        }
        let Some(version) = version else {
            // Brokers before Kafka 1.1 do not report which settings are the topic's own.
            for name in names {
                self.tell_no_settings(&name, "the source is older than Kafka 1.1");
                if let Some(topic) = self.topics.get_mut(&name)
                    && topic.state == TopicState::Settings
                {
                    topic.state = TopicState::Making;
                    topic.config = Settings::Untold;
                    self.unasked.push(Work::Topic {
                        id: topic.id,
                        partitions: topic.partitions,
                        config: None,
                        name,
                    });
                }
            }
            return None;
        };
        // Of many topics the new ones come first, the others in turns.
        names.sort_by_key(|name| {
            let is_new = self
                .topics
                .get(name)
                .is_some_and(|topic| topic.state == TopicState::Settings);
            !is_new
        });
        let turn = self.nodes.entry(Node::Any).or_default();
        if is_due && names.len() > CONFIGS_AT_ONCE {
            turn.turn = turn.turn.wrapping_add(CONFIGS_AT_ONCE) % names.len();
            names.rotate_left(turn.turn);
        }
        names.truncate(CONFIGS_AT_ONCE);
        let resources: Vec<Struct<'static>> = names
            .iter()
            .map(|name| {
                Struct::new()
                    .with("resourceType", TOPIC)
                    .with("resourceName", name.clone())
                    .with("configurationKeys", Value::Null)
            })
            .collect();
        for name in &names {
            if let Some(topic) = self.topics.get_mut(name)
                && topic.state == TopicState::Settings
            {
                topic.state = TopicState::Making;
            }
        }
        Some(Request {
            api: &DESCRIBE_CONFIGS,
            version,
            body: Struct::new().with("resources", resources),
            asked: Asked::Configs(names),
        })
    }

    pub(super) fn take_configs(
        &mut self,
        names: &[String],
        answer: &Struct<'_>,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let mut configs: BTreeMap<String, Result<Vec<(String, String)>, String>> = BTreeMap::new();
        for result in structs(answer, "results") {
            let Some(name) = text(result, "resourceName") else {
                continue;
            };
            let error = int(result, "errorCode");
            let config = if error == 0 {
                let own = structs(result, "configs")
                    .filter(|each| int(each, "configSource") == SOURCE_TOPIC);
                let pairs =
                    own.filter_map(|each| Some((text(each, "name")?, text(each, "value")?)));
                Ok(pairs.collect())
            } else {
                Err(error_name(error))
            };
            configs.insert(name, config);
        }
        for name in names {
            let config = match configs.remove(name) {
                Some(Ok(config)) => Some(config),
                other => {
                    let reason = match other {
                        Some(Err(reason)) => reason,
                        _ => "no answer about it".to_owned(),
                    };
                    self.tell_no_settings(name, &format!("the source answers {reason}"));
                    None
                }
            };
            let Some(topic) = self.topics.get_mut(name) else {
                continue;
            };
            match topic.state {
                TopicState::Making if topic.config == Settings::Unasked => {
                    topic.config = config.clone().map_or(Settings::Untold, Settings::Stored);
                    works.push(Work::Topic {
                        name: name.clone(),
                        id: topic.id,
                        partitions: topic.partitions,
                        config,
                    });
                }
                TopicState::Ready => {
                    if let Some(config) = config
                        && topic.config != Settings::Stored(config.clone())
                    {
                        topic.config = Settings::Stored(config.clone());
                        works.push(Work::Settings {
                            name: name.clone(),
                            config,
                        });
                    }
                }
                _ => {}
            }
        }
        let _ = now;
    }

    fn tell_no_settings(&mut self, name: &str, reason: &str) {
        let is_first = self
            .topics
            .get(name)
            .is_some_and(|topic| topic.config == Settings::Unasked);
        if is_first {
            let message = format!("the settings of topic {name} are not copied: {reason}");
            self.tell(MirrorEvent::topic(EventKind::Warning, name, message));
        }
    }
}
