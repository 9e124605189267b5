//! Tells what ends the transactions that are open in what was restored: their coordinator, if its state says so, or nobody.

use super::remains::Remaining;
use super::{PartitionToRestore, RestorePlan, Target};
use crate::producers::{PartitionProducer, ProducersOptions, Standing, producers};
use crate::shell::quoted;
use offsetlog::{LogDir, Result, TransactionState};
use std::path::PathBuf;

const TRANSACTION_STATE: &str = "__transaction_state";

/// Adds it to what remains.
pub(super) fn add(plan: &mut RestorePlan) {
    let mut open = Vec::new();
    for each in &plan.partitions {
        // Of what was there already too: an earlier call may have ended before it told.
        if let Some(report) = each.state.report()
            && let Some(offset) = report.first_unstable_offset
        {
            open.push((each, offset));
        }
    }
    if open.is_empty() {
        return;
    }
    let name = |(each, offset): &(&PartitionToRestore, i64)| {
        format!("{}-{} from offset {offset} on", each.topic, each.partition)
    };
    let mut told = Vec::new();
    let is_whole = |each: &PartitionToRestore| each.topic == TRANSACTION_STATE && !each.is_cut;
    let is_judged = plan.target == Target::NewCluster && plan.partitions.iter().any(is_whole);
    // What cannot be read there says nothing of who ends it.
    let found = if is_judged {
        judge(plan, &open).unwrap_or_default()
    } else {
        Vec::new()
    };
    let (mut ended, mut left) = (Vec::new(), Vec::new());
    for each in &open {
        let of_it = |producer: &&PartitionProducer| {
            producer.partition.topic == each.0.topic
                && producer.partition.partition == each.0.partition
        };
        let here: Vec<&PartitionProducer> = found.iter().filter(of_it).collect();
        // Without a record of the coordinator nobody knows.
        if here.is_empty() || here.iter().any(|producer| producer.state.is_none()) {
            left.push(name(each));
            continue;
        }
        if here.iter().all(|producer| ends_itself(producer)) {
            ended.push(name(each));
            continue;
        }
        let nobodys = here.into_iter().filter(|producer| !ends_itself(producer));
        told.push(Remaining {
            about: name(each),
            reason: "a transaction is open, and read_committed consumers wait there: by its state the coordinator, which is restored too, does \
                     not end it any more. End it before the broker starts"
                .to_owned(),
            commands: nobodys.map(|producer| command(plan, producer)).collect(),
        });
    }
    if !ended.is_empty() {
        told.push(Remaining {
            about: ended.join(", "),
            reason: "a transaction is open; its coordinator, which is restored too, ends it when the cluster runs".to_owned(),
            commands: Vec::new(),
        });
    }
    if !left.is_empty() {
        told.push(Remaining {
            about: left.join(", "),
            reason: "a transaction is open, and read_committed consumers wait there: see what its coordinator decided, and end it before the \
                     broker starts"
                .to_owned(),
            commands: vec![
                "offsetlog producers LOGDIR SOURCE --open".to_owned(),
                "offsetlog end-transaction TOPIC-PARTITION PRODUCER-ID LOGDIR --dry-run".to_owned(),
            ],
        });
    }
    plan.remaining.extend(told);
}

/// The producers with a transaction there, by what was restored.
fn judge(
    plan: &RestorePlan,
    open: &[(&PartitionToRestore, i64)],
) -> Result<Vec<PartitionProducer>> {
    let log_dir = LogDir::open(&log_dirs(plan), &plan.options)?;
    let how = ProducersOptions {
        topics: open.iter().map(|(each, _)| each.topic.clone()).collect(),
        only_open: true,
        ..ProducersOptions::default()
    };
    Ok(producers(&log_dir, &how)?.producers)
}

/// Whether a coordinator that loads this state ends the transaction: it goes on with what it had begun, and aborts what lasts too long.
fn ends_itself(producer: &PartitionProducer) -> bool {
    let is_its = matches!(
        producer.standing,
        Standing::Ongoing | Standing::Committing | Standing::Aborting
    );
    is_its
        && matches!(
            producer.state,
            Some(
                TransactionState::Ongoing
                    | TransactionState::PrepareCommit
                    | TransactionState::PrepareAbort
                    | TransactionState::PrepareEpochFence
            )
        )
}

fn command(plan: &RestorePlan, producer: &PartitionProducer) -> String {
    let places: Vec<String> = log_dirs(plan)
        .iter()
        .map(|path| quoted(&path.to_string_lossy()))
        .collect();
    format!(
        "offsetlog end-transaction {} {} {} --dry-run",
        quoted(&producer.partition.to_string()),
        producer.producer.producer_id,
        places.join(" ")
    )
}

fn log_dirs(plan: &RestorePlan) -> Vec<PathBuf> {
    plan.log_dirs.iter().map(|(_, path)| path.clone()).collect()
}
