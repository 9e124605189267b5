//! Rows: values of several fields, which Python has as named tuples. Their fields cross by name.
//!
//! A row is declared twice, here and in the class, which documents it. The first row of a class compares the names of both. From
//! then on a row costs what a tuple costs, so that even batch headers, of which a log has millions, cross as rows.
//!
//! over 600 lines: one list, of every row that there is.

use crate::row_class::{RowClass, named_rows, names};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use std::ffi::OsString;

pub(crate) use crate::row_class::{Dict, Interned, Tuple};

named_rows! {
    "offsetlog._values" {
        TopicPartition {
            topic: String,
            partition: i32,
        }
        RecordMetadata {
            topic: Py<PyString>,
            partition: i32,
            offset: i64,
        }
        OffsetAndTimestamp {
            offset: i64,
            timestamp: i64,
            leader_epoch: Option<i32>,
        }
        Segment {
            base_offset: i64,
            path: OsString,
            size_bytes: u64,
            index_entries: usize,
            is_active: bool,
        }
        OldRecord {
            offset: i64,
            next_offset: i64,
            value: Py<PyBytes>,
        }
        Split {
            path: OsString,
            topic: String,
            partition: i32,
            start: i64,
            stop: i64,
            size_bytes: u64,
        }
        AbortedTransaction {
            producer_id: i64,
            first_offset: i64,
        }
        FetchResult {
            records: Py<PyBytes>,
            high_watermark: i64,
            last_stable_offset: i64,
            log_start_offset: i64,
            aborted: Tuple<AbortedTransaction>,
        }
        BatchInfo {
            base_offset: i64,
            last_offset: i64,
            position: u64,
            size_bytes: u64,
            magic: i8,
            codec: Interned,
            timestamp_type: i8,
            base_timestamp: i64,
            max_timestamp: i64,
            leader_epoch: i32,
            producer_id: i64,
            producer_epoch: i16,
            base_sequence: i32,
            record_count: Option<i32>,
            is_transactional: bool,
            is_control: bool,
            segment: i64,
        }
        IndexEntry {
            slot: usize,
            offset: i64,
            position: u64,
        }
        Location {
            topic: String,
            partition: i32,
            offset: i64,
            segment: i64,
            segment_path: OsString,
            segment_slot: usize,
            segment_count: usize,
            index_state: &'static str,
            entry: Option<IndexEntry>,
            index_entries: usize,
            scanned_batches: u64,
            scanned_bytes: u64,
            batch: Option<BatchInfo>,
            text: String,
        }
        AppendInfo {
            base_offset: i64,
            last_offset: i64,
            max_timestamp: i64,
            log_append_time: i64,
            duplicate: bool,
            left_out_bytes: u64,
        }
        Cut {
            path: OsString,
            position: u64,
            bytes: u64,
            reason: String,
            had_batches: bool,
            kept: Option<OsString>,
            records: u64,
            offsets: Option<(i64, i64)>,
        }
        RecoveryReport {
            cut: Tuple<Cut>,
            kept: Tuple<OsString>,
            rebuilt: Tuple<(OsString, String)>,
            log_end_offset: i64,
            log_start_offset: i64,
            clean: bool,
            dry_run: bool,
            tidied: Tuple<String>,
            warnings: Tuple<String>,
            segments_read: usize,
            bytes_read: u64,
        }
        RemovedSegment {
            base_offset: i64,
            end_offset: i64,
            size_bytes: u64,
            reason: &'static str,
        }
        Compaction {
            first_dirty_offset: i64,
            end_offset: i64,
            first_uncleanable_offset: i64,
            dirty_ratio: f64,
            keys: usize,
            segments_before: usize,
            segments_after: usize,
            bytes_before: u64,
            bytes_after: u64,
            records_before: u64,
            records_after: u64,
        }
        LogDirMaintainReport {
            partitions: Dict<TopicPartition, MaintainReport>,
            failed: Dict<TopicPartition, String>,
            busy: Tuple<TopicPartition>,
            removed: Tuple<OsString>,
            looked_at: usize,
            dry_run: bool,
            internal: Tuple<TopicPartition>,
            metadata_timestamp: Option<i64>,
        }
        MaintainReport {
            removed: Tuple<RemovedSegment>,
            compactions: Tuple<Compaction>,
            deleted: Tuple<OsString>,
            log_start_offset: i64,
            log_end_offset: i64,
            dry_run: bool,
        }
        ConvertReport {
            path: OsString,
            records: u64,
            batches: u64,
            batches_kept: u64,
            bytes_read: u64,
            bytes_written: u64,
            dropped_bytes: u64,
            dropped_reason: Option<String>,
            log_start_offset: i64,
            log_end_offset: i64,
            missing_offsets: Tuple<(i64, i64)>,
            warnings: Tuple<String>,
        }
    }
    "offsetlog._salvage" {
        Loss {
            path: OsString,
            position: u64,
            bytes: u64,
            start: i64,
            stop: Option<i64>,
            reason: String,
            taken_back: u64,
            records_max: Option<u64>,
            time_before: Option<i64>,
            time_after: Option<i64>,
        }
        TakenBack {
            path: OsString,
            batches: u64,
            records: u64,
            first_offset: i64,
            last_offset: i64,
        }
        LeftOut {
            path: OsString,
            batches: u64,
            first_offset: i64,
            last_offset: Option<i64>,
            reason: String,
        }
        SalvageReport {
            topic: String,
            partition: i32,
            source: OsString,
            path: OsString,
            dry_run: bool,
            records: u64,
            batches: u64,
            bytes_written: u64,
            log_start_offset: i64,
            log_end_offset: i64,
            losses: Tuple<Loss>,
            loss_count: u64,
            torn_tail_bytes: u64,
            taken_back: Tuple<TakenBack>,
            left_out: Tuple<LeftOut>,
            first_unstable_offset: Option<i64>,
            warnings: Tuple<String>,
        }
    }
    "offsetlog._restore" {
        OtherReplica {
            path: OsString,
            less: String,
        }
        NewReplica {
            node_id: Option<i32>,
            path: OsString,
        }
        RestoredPartition {
            topic: String,
            partition: i32,
            state: &'static str,
            reason: Option<String>,
            source: OsString,
            other_replicas: Tuple<OtherReplica>,
            into: Tuple<NewReplica>,
            topic_id: Option<String>,
            log_start_offset: i64,
            log_end_offset: Option<i64>,
            is_cut: bool,
            bytes: u64,
            newest_timestamp: Option<i64>,
            leader_epoch: Option<i32>,
            leader_epoch_max: Option<i32>,
            records: Option<u64>,
            losses: Tuple<Loss>,
            loss_count: u64,
            taken_back: Tuple<TakenBack>,
            left_out: Tuple<LeftOut>,
            first_unstable_offset: Option<i64>,
        }
        NotRestored {
            name: String,
            reason: String,
        }
        Remaining {
            about: String,
            reason: String,
            commands: Tuple<String>,
        }
        RestoreReport {
            target: &'static str,
            dry_run: bool,
            bytes: u64,
            reading_seconds_min: Option<u64>,
            has_losses: bool,
            partitions: Tuple<RestoredPartition>,
            missing: Tuple<TopicPartition>,
            left_out: Tuple<NotRestored>,
            bootstrap_checkpoints: Tuple<OsString>,
            remaining: Tuple<Remaining>,
            warnings: Tuple<String>,
        }
    }
    "offsetlog._mirror" {
        MirrorProgress {
            bytes: u64,
            batches: u64,
            bytes_per_second: u64,
            partitions: usize,
            partitions_done: usize,
            lag: i64,
        }
        MirrorEvent {
            kind: &'static str,
            topic: Option<String>,
            partition: Option<i32>,
            broker: Option<i32>,
            start: Option<i64>,
            stop: Option<i64>,
            message: String,
            kept: Tuple<OsString>,
        }
        MirroredPartition {
            topic: String,
            partition: i32,
            log_start_offset: i64,
            log_end_offset: i64,
            high_watermark: Option<i64>,
            source_log_start_offset: Option<i64>,
            lag: Option<i64>,
            bytes: u64,
            batches: u64,
            problem: Option<String>,
        }
        MirrorReport {
            cluster_id: Option<String>,
            is_complete: bool,
            has_losses: bool,
            bytes: u64,
            batches: u64,
            groups: usize,
            committed_offsets: u64,
            share_groups: usize,
            partitions: Tuple<MirroredPartition>,
            events: Tuple<MirrorEvent>,
            events_left_out: u64,
        }
    }
    "offsetlog._damage" {
        Hole {
            topic: String,
            partition: i32,
            path: OsString,
            position: u64,
            size_bytes: u64,
            start: Option<i64>,
            stop: Option<i64>,
            error: &'static str,
            reason: String,
        }
        ScanReport {
            holes: Tuple<Hole>,
            hole_count: u64,
            hole_bytes: u64,
            torn_tails: Tuple<Hole>,
            segments: u64,
            batches: u64,
            batches_skipped: u64,
            bytes_read: u64,
        }
        Finding {
            severity: &'static str,
            kind: &'static str,
            path: OsString,
            position: Option<u64>,
            offset: Option<i64>,
            reason: String,
            found: Option<String>,
            expected: Option<String>,
            clean: &'static str,
            unclean: &'static str,
            recover: &'static str,
        }
        DamageReport {
            findings: Tuple<Finding>,
            notes: u64,
            warnings: u64,
            errors: u64,
            partitions: u64,
            segments: u64,
            batches: u64,
            records: u64,
            bytes_read: u64,
        }
    }
    "offsetlog._groups" {
        ResetFile {
            csv: String,
            groups: Tuple<String>,
            streams_groups: Tuple<String>,
            with_metadata: u64,
            with_leader_epoch: u64,
            refused: Tuple<(String, Option<String>, String)>,
        }
        GroupMember {
            member_id: String,
            instance_id: Option<String>,
            client_id: String,
            client_host: String,
            assignment: Tuple<(String, Tuple<i32>)>,
        }
        GroupOffset {
            topic: String,
            partition: i32,
            offset: i64,
            leader_epoch: Option<i32>,
            metadata: String,
            commit_timestamp: i64,
            log_end_offset: Option<i64>,
            lag: Option<i64>,
            first_unread_timestamp: Option<i64>,
            topic_id: Option<String>,
            is_of_another_topic: bool,
        }
        ShareGroupOffset {
            topic: String,
            partition: i32,
            start_offset: Option<i64>,
            leader_epoch: Option<i32>,
            delivery_complete_count: Option<i32>,
            log_end_offset: Option<i64>,
            lag: Option<i64>,
            first_unread_timestamp: Option<i64>,
        }
        Group {
            group_id: String,
            kind: &'static str,
            protocol_type: Option<String>,
            protocol: Option<String>,
            epoch: Option<i32>,
            leader: Option<String>,
            members: Tuple<GroupMember>,
            offsets: Tuple<GroupOffset>,
            state: String,
            share_offsets: Tuple<ShareGroupOffset>,
        }
    }
    "offsetlog._transactions" {
        Transaction {
            transactional_id: String,
            producer_id: i64,
            previous_producer_id: Option<i64>,
            next_producer_id: Option<i64>,
            producer_epoch: i32,
            next_producer_epoch: Option<i32>,
            state: String,
            timeout_ms: i32,
            partitions: Tuple<(String, Tuple<i32>)>,
            start_timestamp: Option<i64>,
            last_update_timestamp: i64,
            client_transaction_version: Option<i32>,
            partition: i32,
            offset: i64,
        }
    }
    "offsetlog._held_records" {
        PartitionProducer {
            topic: String,
            partition: i32,
            path: OsString,
            producer_id: i64,
            producer_epoch: i16,
            last_sequence: Option<i32>,
            last_offset: Option<i64>,
            last_timestamp: Option<i64>,
            coordinator_epoch: Option<i32>,
            transaction_first_offset: Option<i64>,
            transaction_start_timestamp: Option<i64>,
            transactional_id: Option<String>,
            state: Option<String>,
            timeout_ms: Option<i32>,
            standing: Interned,
        }
        DecisiveSetting {
            name: Interned,
            value: Option<String>,
            source: Interned,
        }
        WhyAnswer {
            topic: String,
            partition: i32,
            path: OsString,
            question: Interned,
            reason: Interned,
            sentence: String,
            remedy: String,
            segment: Option<i64>,
            offset: Option<i64>,
            timestamp: Option<i64>,
            due_timestamp: Option<i64>,
            size_bytes: Option<u64>,
            producer: Option<PartitionProducer>,
            settings: Tuple<DecisiveSetting>,
        }
        EndedTransaction {
            dry_run: bool,
            committed: bool,
            marker_offset: Option<i64>,
            last_stable_offset_before: i64,
            last_stable_offset: i64,
            producer: PartitionProducer,
        }
    }
    "offsetlog._metadata" {
        PartitionRegistration {
            partition: i32,
            replicas: Tuple<i32>,
            isr: Tuple<i32>,
            leader: Option<i32>,
            leader_epoch: i32,
            partition_epoch: i32,
            adding_replicas: Tuple<i32>,
            removing_replicas: Tuple<i32>,
            elr: Tuple<i32>,
            last_known_elr: Tuple<i32>,
            directories: Tuple<String>,
        }
        TopicImage {
            name: String,
            topic_id: Option<String>,
            partitions: Tuple<PartitionRegistration>,
        }
        BrokerRegistration {
            broker_id: i32,
            epoch: i64,
            rack: Option<String>,
            fenced: bool,
            in_controlled_shutdown: bool,
            endpoints: Tuple<(String, String, i32)>,
            log_dirs: Tuple<String>,
        }
        MetadataImage {
            end_offset: i64,
            snapshot_end_offset: Option<i64>,
            features: Dict<String, i32>,
            brokers: Tuple<BrokerRegistration>,
            topics: Tuple<TopicImage>,
            configs: Dict<(String, String), Dict<String, String>>,
            removed_topics: Tuple<(String, String)>,
            acls: Tuple<AccessControlEntry>,
            client_quotas: Tuple<ClientQuota>,
            scram_credentials: Tuple<ScramCredential>,
        }
        AccessControlEntry {
            resource_type: i32,
            resource_name: String,
            pattern_type: i32,
            principal: String,
            host: String,
            operation: i32,
            permission_type: i32,
        }
        ClientQuota {
            entity: Tuple<(String, Option<String>)>,
            quotas: Dict<String, f64>,
        }
        ScramCredential {
            user: String,
            mechanism: i32,
            iterations: i32,
        }
        Stray {
            topic: String,
            partition: i32,
            path: OsString,
            topic_id: Option<String>,
            reason: String,
        }
    }
    "offsetlog._adopt" {
        AdoptedPartition {
            directory: OsString,
            path: OsString,
            topic: String,
            partition: i32,
            topic_id_before: Option<String>,
            topic_id: Option<String>,
            dry_run: bool,
            changed: bool,
            set_aside: Tuple<(OsString, Option<OsString>)>,
            records: u64,
            log_start_offset: i64,
            log_end_offset: i64,
            notes: Tuple<String>,
        }
    }
    "offsetlog._identity" {
        DirectoryIdentity {
            path: OsString,
            kind: &'static str,
            outcome: &'static str,
            reason: String,
            topic: Option<String>,
            partition: Option<i32>,
            topic_id: Option<String>,
            version: Option<i32>,
            cluster_id: Option<String>,
            node_id: Option<i32>,
            directory_id: Option<String>,
        }
    }
    "offsetlog._cluster" {
        EffectiveSetting {
            value: Option<String>,
            source: &'static str,
            reason: Option<String>,
        }
        TopicSettings {
            settings: Dict<&'static str, EffectiveSetting>,
            broker: Option<String>,
            metadata_timestamp: Option<i64>,
        }
    }
    "offsetlog._config" {
        Setting {
            name: &'static str,
            r#type: &'static str,
            default: &'static str,
            bounds: String,
            broker_synonyms: Vec<&'static str>,
            effective: bool,
            documentation: &'static str,
        }
    }
}

/// The fields of every row, by module and name of its class.
pub(crate) fn fields(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let classes = PyDict::new(py);
    for (module, name, fields) in ROWS {
        classes.set_item(format!("{module}.{name}"), PyTuple::new(py, names(fields))?)?;
    }
    Ok(classes)
}
