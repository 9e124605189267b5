//! `offsetlog metadata --get`: one node of ZooKeeper's, as it is stored.

use crate::EXIT_FINE;
use crate::args::Metadata;
use crate::console::Console;
use crate::escape::{escaped, is_unsafe};
use crate::failure::Failure;
use crate::progress::Progress;
use offsetlog::{FolderKind, NodeAnswer, OpenOptions, folder_kind, zookeeper_node};
use std::io::Write;
use std::path::Path;

/// Names that are told where a node is missing.
const MOST_TOLD: usize = 20;

pub(super) fn run(
    args: &Metadata,
    node: &str,
    options: &OpenOptions,
    console: &mut Console<'_>,
) -> Result<i32, Failure> {
    let folder = folder_of(args)?;
    let (bar, progress) = Progress::of_directories(console);
    let answer = zookeeper_node(folder, node, args.show_secrets, options, &progress)?;
    drop(bar);
    let data = match answer {
        NodeAnswer::Data(data) => data,
        NodeAnswer::Missing { parent, children } => return Err(missing(node, &parent, &children)),
    };
    let text = String::from_utf8_lossy(&data);
    // On a terminal nothing in it may steer the terminal.
    if console.terminal.stdout_is_terminal && text.contains(is_unsafe) {
        writeln!(console.out, "{}", escaped(&text))?;
    } else {
        console.out.write_all(&data)?;
    }
    Ok(EXIT_FINE)
}

/// The only one of the paths that is ZooKeeper's data; log dirs may stand beside it.
fn folder_of(args: &Metadata) -> Result<&Path, Failure> {
    if let [only] = args.paths.as_slice() {
        return Ok(only);
    }
    let is_zookeepers =
        |path: &&std::path::PathBuf| matches!(folder_kind(path), Ok(FolderKind::ZooKeeper));
    let mut found = args.paths.iter().filter(is_zookeepers);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Failure::Usage(
            "none of the paths is ZooKeeper's data, which --get reads".to_owned(),
        )),
        (Some(_), Some(_)) => Err(Failure::Usage(
            "several of the paths are ZooKeeper's data: give that of one server".to_owned(),
        )),
    }
}

fn missing(node: &str, parent: &str, children: &[String]) -> Failure {
    let told: Vec<&str> = children
        .iter()
        .take(MOST_TOLD)
        .map(String::as_str)
        .collect();
    let below = match children.len() {
        0 => "nothing is below it".to_owned(),
        count if count > MOST_TOLD => {
            format!("below it are {count}: {}, ...", told.join(", "))
        }
        _ => format!("below it: {}", told.join(", ")),
    };
    Failure::Usage(format!(
        "no node {node} in ZooKeeper's data; the nearest above it is {parent}, and {below}"
    ))
}
