//! `DescribeCluster`, `DescribeLogDirs` and `DescribeAcls`.

use super::broker::{Asked, Broker};
use super::metadata::CLUSTER_OPERATIONS;
use super::partition::code_of;
use super::request::{elements, int, is_set, structs, text};
use crate::error_code::ErrorCode;
use offsetlog::format::message::{Struct, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

/// Kafka's numbers for who is asked for.
const BROKERS: i32 = 1;
const CONTROLLERS: i32 = 2;

/// Partitions by topic.
type Topics<'t> = BTreeMap<&'t str, Vec<Struct<'static>>>;

impl Broker {
    pub(super) fn describe_cluster(
        &self,
        asked: &Asked<'_>,
        request: &Struct<'_>,
    ) -> Struct<'static> {
        let endpoint_type = int(request, "endpointType", BROKERS);
        let refused = |code: ErrorCode, words: &str| {
            Struct::new()
                .with("errorCode", code)
                .with("errorMessage", words.to_owned())
        };
        if endpoint_type == CONTROLLERS {
            let words = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
            return refused(ErrorCode::MismatchedEndpointType, words);
        }
        if endpoint_type != BROKERS {
            let words = format!("Unsupported endpoint type {endpoint_type}");
            return refused(ErrorCode::UnsupportedEndpointType, &words);
        }
        let node = Struct::new()
            .with("brokerId", self.node_id)
            .with("host", self.options.host.clone())
            .with("port", i32::from(self.options.port));
        let mut answer = Struct::new()
            .with("clusterId", self.cluster_id.clone())
            .with("controllerId", self.node_id)
            .with("brokers", vec![node]);
        if asked.version >= 1 {
            answer.set("endpointType", BROKERS);
        }
        if is_set(request, "includeClusterAuthorizedOperations") {
            answer.set("clusterAuthorizedOperations", CLUSTER_OPERATIONS);
        }
        answer
    }

    pub(super) fn describe_log_dirs(&self, request: &Struct<'_>) -> Struct<'static> {
        let wanted: Option<HashSet<(&str, i64)>> = request
            .get("topics")
            .filter(|topics| !topics.is_null())
            .map(|_| {
                structs(request, "topics")
                    .flat_map(|topic| {
                        let name = text(topic, "topic").unwrap_or_default();
                        elements(topic, "partitions")
                            .iter()
                            .filter_map(Value::as_int)
                            .map(move |number| (name, number))
                    })
                    .collect()
            });
        let catalog = self.catalog();
        let mut by_dir: HashMap<PathBuf, (ErrorCode, Topics<'_>)> = HashMap::new();
        for partition in catalog.partitions() {
            let key = (partition.topic.as_str(), i64::from(partition.number));
            if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&key)) {
                continue;
            }
            let parent = partition.log.path().parent();
            let place = parent.map(PathBuf::from).unwrap_or_default();
            let (code, topics) = by_dir
                .entry(place)
                .or_insert((ErrorCode::None, BTreeMap::new()));
            match partition.log.size_bytes() {
                Ok(bytes) => topics.entry(&partition.topic).or_default().push(
                    Struct::new()
                        .with("partitionIndex", partition.number)
                        .with("partitionSize", i64::try_from(bytes).unwrap_or(i64::MAX)),
                ),
                Err(error) => *code = code_of(&error),
            }
        }
        for path in self.log_dir.paths() {
            // A separate folder for the metadata log is not one of a broker's `log.dirs`.
            let is_metadata = path.join("__cluster_metadata-0").is_dir()
                && !path.join("replication-offset-checkpoint").is_file();
            let is_known = by_dir.keys().any(|known| path.starts_with(known));
            if path.is_dir() && !is_known && !is_metadata {
                by_dir.insert(path.clone(), (ErrorCode::None, BTreeMap::new()));
            }
        }
        let mut results: Vec<(PathBuf, Struct<'static>)> = by_dir
            .into_iter()
            .map(|(place, (code, topics))| {
                let topics: Vec<Struct<'static>> = topics
                    .into_iter()
                    .map(|(name, partitions)| {
                        Struct::new()
                            .with("name", name.to_owned())
                            .with("partitions", partitions)
                    })
                    .collect();
                let result = Struct::new()
                    .with("errorCode", code)
                    .with("logDir", place.to_string_lossy().into_owned())
                    .with("topics", topics);
                (place, result)
            })
            .collect();
        results.sort_by(|(one, _), (other, _)| one.cmp(other));
        let results: Vec<Struct<'static>> = results.into_iter().map(|(_, result)| result).collect();
        Struct::new().with("results", results)
    }

    pub(super) fn describe_acls() -> Struct<'static> {
        Struct::new()
            .with("errorCode", ErrorCode::SecurityDisabled)
            .with("errorMessage", "No Authorizer is configured on the broker")
    }
}
