//! What is known of the settings of the brokers that directories are adopted for.

use super::target::known;
use super::{AdoptOptions, Plan};
use crate::places::{LogDirPlace, Places};
use crate::retention::BrokerRetention;
use offsetlog::{BrokerSettings, OpenOptions, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// For each plan what its broker's retention deletes. It has the settings of all topics, so plans of one broker share it.
///
/// # Errors
/// `Io` and those of a `server.properties` that cannot be read.
pub(super) fn retentions(
    plans: &[Plan],
    places: &Places,
    how: &AdoptOptions,
    open: &OpenOptions,
) -> Result<Vec<Arc<BrokerRetention>>> {
    let broker = how.broker.as_ref();
    let broker = broker.map(|path| BrokerSettings::read(open.disk.as_ref(), path));
    let broker = broker.transpose()?;
    let now = (open.clock)();
    let mut shared: BTreeMap<(bool, Option<i32>), Arc<BrokerRetention>> = BTreeMap::new();
    let each = plans.iter().map(|plan| {
        let mut log_dirs = places.log_dirs.iter();
        let place = log_dirs.find(|place| place.path == plan.log_dir);
        let metadata = place.and_then(|place| known(places, place).ok());
        let node = place.and_then(LogDirPlace::node_id);
        let of_broker = shared.entry((metadata.is_some(), node)).or_insert_with(|| {
            let nodes = [node].into();
            Arc::new(BrokerRetention::new(metadata, nodes, broker.as_ref(), now))
        });
        Arc::clone(of_broker)
    });
    Ok(each.collect())
}
