//! Which cluster and broker the server presents itself as: those whose log dirs it serves.

use offsetlog::LogDir;
use offsetlog::disk::read_whole;
use offsetlog::format::name::META_PROPERTIES;
use offsetlog::format::{MetaProperties, Uuid};

/// The cluster id and the broker id of the first log dir that has them. If none has, the cluster id is derived from the paths: clients
/// remember it.
pub(super) fn identity(log_dir: &LogDir, warnings: &mut Vec<String>) -> (String, i32) {
    let options = log_dir.options();
    let (mut cluster_id, mut node_id) = (None, None);
    for path in log_dir.paths() {
        let limit = options.limits.max_state_file_bytes;
        for folder in [Some(path.as_path()), path.parent()].into_iter().flatten() {
            let Ok(bytes) = read_whole(options.disk.as_ref(), &folder.join(META_PROPERTIES), limit)
            else {
                continue;
            };
            match MetaProperties::parse(&bytes) {
                Ok(found) => {
                    let id = found.cluster_id().map(str::to_owned);
                    if let (Some(one), Some(other)) = (&cluster_id, &id)
                        && one != other
                    {
                        warnings.push(format!(
                            "{} is of cluster {other}, and the log dirs before it are of {one}",
                            path.display()
                        ));
                    }
                    cluster_id = cluster_id.or(id);
                    node_id = node_id.or(found.node_id());
                }
                Err(error) => warnings.push(format!(
                    "ignored: {} of {}: {error}",
                    META_PROPERTIES,
                    folder.display()
                )),
            }
            break;
        }
    }
    let made_up = || {
        // FNV-1a of 128 bits.
        let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        for path in log_dir.paths() {
            for byte in path.as_os_str().as_encoded_bytes() {
                hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
            }
        }
        Uuid::from_bytes(hash.to_be_bytes()).to_string()
    };
    (
        cluster_id.unwrap_or_else(made_up),
        node_id.filter(|&id| id >= 0).unwrap_or(0),
    )
}
