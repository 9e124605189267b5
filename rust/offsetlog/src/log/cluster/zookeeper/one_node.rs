//! One node of ZooKeeper's data, as it is stored, but for secrets.

use super::Places;
use super::access::QUOTAS;
use super::nodes::{ENCRYPTED, Nodes};
use crate::error::{Error, Result};
use crate::local_path::local_path;
use crate::log::OpenOptions;
use crate::log::cluster::secrets::{HIDDEN, is_secret};
use crate::step_progress::{DirectoryProgress, Steps};
use offsetlog_format::json;
use std::path::Path;

/// The node at a path in ZooKeeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAnswer {
    /// The node's data, byte for byte, but for secrets; empty if it has none.
    Data(Vec<u8>),
    /// No such node.
    Missing {
        /// The nearest node above it.
        parent: String,
        /// The names below that, in order.
        children: Vec<String>,
    },
}

/// Reads one node from the data of a ZooKeeper server, running or not: from its newest snapshot and the transactions after it. Unless
/// `show_secrets`, [`HIDDEN`] replaces passwords and unknown settings; if settings cannot be read, it replaces all data. Holds all nodes in
/// memory. Calls `progress` before the snapshot and each file of transactions.
///
/// # Errors
/// Those of `progress`. `LogDir` where there is no such data, or transactions are missing; `MetadataFile` for damage; `Argument` for an invalid path; `Limit`,
/// `Io`, `Interrupted`.
pub fn zookeeper_node(
    folder: &Path,
    node: &str,
    show_secrets: bool,
    options: &OpenOptions,
    progress: &DirectoryProgress,
) -> Result<NodeAnswer> {
    let folder = local_path(folder)?;
    let Some(rest) = node.strip_prefix('/') else {
        let reason = format!("{node:?} found; a path begins with a slash, as /brokers/topics");
        return Err(Error::argument("node", reason));
    };
    let Some(places) = Places::find(options.disk.as_ref(), &folder)? else {
        let reason = "no data of ZooKeeper's found (version-2 with snapshot. and log. files)";
        return Err(Error::log_dir(&folder, reason));
    };
    let mut steps = Steps::new(progress);
    let nodes = places.nodes(options, true, &mut steps)?;
    steps.end()?;
    // The root is nothing, as in a snapshot.
    let mut path = match rest.trim_end_matches('/') {
        "" => String::new(),
        rest => format!("/{rest}"),
    };
    if path.is_empty() || nodes.node(path.as_bytes()).is_some() {
        let data = nodes
            .node(path.as_bytes())
            .and_then(|held| held.data.clone());
        let data = data.unwrap_or_default();
        return Ok(NodeAnswer::Data(if show_secrets {
            data
        } else {
            without_secrets(&path, data)
        }));
    }
    while let Some((parent, _)) = path.rsplit_once('/') {
        path.truncate(parent.len());
        if path.is_empty() || nodes.node(path.as_bytes()).is_some() {
            break;
        }
    }
    let children = children(&nodes, &path);
    let parent = if path.is_empty() {
        "/".to_owned()
    } else {
        path
    };
    Ok(NodeAnswer::Missing { parent, children })
}

fn children(nodes: &Nodes, path: &str) -> Vec<String> {
    nodes
        .below(&[], path.as_bytes())
        .map(|(name, _)| name)
        .collect()
}

/// The data without secrets; hidden as a whole if it is unclear what they are.
fn without_secrets(path: &str, data: Vec<u8>) -> Vec<u8> {
    // Below the path of a cluster, or at the root.
    let kinds = ["brokers", "clients", "ips", "topics", "users"];
    let kind = kinds
        .into_iter()
        .find(|kind| path.contains(&format!("/config/{kind}/")));
    let Some(kind) = kind else {
        return data;
    };
    match hidden(kind, &data) {
        Some(hidden) => hidden,
        None => HIDDEN.as_bytes().to_vec(),
    }
}

/// `None` for data that is not what brokers write.
fn hidden(kind: &str, data: &[u8]) -> Option<Vec<u8>> {
    if data.is_empty() {
        return Some(Vec::new());
    }
    let mut out = Vec::with_capacity(data.len());
    let mut copied = 0;
    for (name, config) in json::members(data).ok()? {
        // Nothing else has settings; of all others the text stays.
        if name != "config" || json::is_null(config) {
            continue;
        }
        for (name, value) in json::members(config).ok()? {
            let text = json::string(value).ok();
            if !is_hidden(kind, &name, text.as_deref()) {
                continue;
            }
            let start = value.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
            out.extend_from_slice(data.get(copied..start)?);
            out.extend_from_slice(format!("\"{HIDDEN}\"").as_bytes());
            copied = start + value.len();
        }
    }
    out.extend_from_slice(data.get(copied..)?);
    Some(out)
}

fn is_hidden(kind: &str, name: &str, value: Option<&str>) -> bool {
    let is_encrypted = value.is_none_or(|value| value.contains(ENCRYPTED));
    match kind {
        "topics" => is_encrypted || is_secret("topic", name),
        "brokers" => is_encrypted || is_secret("broker", name),
        _ => is_encrypted || !QUOTAS.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_all_else_stays() {
        let scram = r#"{"version":1,"config":{"SCRAM-SHA-256":"salt=a,stored_key=b","producer_byte_rate":"10"} }"#;
        let shown =
            r#"{"version":1,"config":{"SCRAM-SHA-256":"[hidden]","producer_byte_rate":"10"} }"#;
        for (path, data, expected) in [
            ("/config/users/alice", scram, shown),
            ("/chroot/config/users/alice", scram, shown),
            ("/config/users/alice/clients/x", scram, shown),
            ("/brokers/topics/config", scram, scram),
            (
                "/config/topics/t",
                r#"{"config":{"retention.ms":"1"}}"#,
                r#"{"config":{"retention.ms":"1"}}"#,
            ),
            (
                "/config/topics/t",
                r#"{"config":{"my.plugin":"1"}}"#,
                r#"{"config":{"my.plugin":"[hidden]"}}"#,
            ),
            (
                "/config/topics/t",
                r#"{"conf\u0069g":{"my.plugin":{"a":1}}}"#,
                r#"{"conf\u0069g":{"my.plugin":"[hidden]"}}"#,
            ),
            (
                "/config/brokers/1",
                r#"{"config":{"log.cleaner.threads":"x,initializationVector:y"}}"#,
                r#"{"config":{"log.cleaner.threads":"[hidden]"}}"#,
            ),
            ("/config/users/alice", "salt=a", "[hidden]"),
            (
                "/config/users/alice",
                r#"{"config":["salt=a"]}"#,
                "[hidden]",
            ),
            ("/config/users/alice", "", ""),
            (
                "/config/users/alice",
                r#"{"config":null}"#,
                r#"{"config":null}"#,
            ),
        ] {
            let found = without_secrets(path, data.as_bytes().to_vec());
            assert_eq!(String::from_utf8_lossy(&found), expected, "{path}");
        }
    }
}
