//! Options that calls take as a dict; the compiled module knows every name.
//!
//! Each is declared twice, here and in a `TypedDict` of the package. A dict that lacks a name or has another one is refused: no option is
//! ever silently ignored.

use crate::config::Pairs;
use crate::raise::noted;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::path::PathBuf;

/// The option `name`, in which `names` are known.
fn option<'py, T: FromPyObjectOwned<'py>>(
    given: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
    names: &[&str],
) -> PyResult<T> {
    let Some(value) = given.get_item(name)? else {
        refuse_unknown(given, names)?;
        return Err(PyTypeError::new_err(format!("option '{name}' is missing")));
    };
    value.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        // As PyO3 does for arguments.
        let note = format!("while processing '{name}'");
        noted(given.py(), error, &note)
    })
}

fn refuse_unknown(given: &Bound<'_, PyDict>, names: &[&str]) -> PyResult<()> {
    for name in given.keys() {
        let name = name.str()?.to_string();
        if !names.contains(&name.as_str()) {
            return Err(PyTypeError::new_err(format!("unknown option '{name}'")));
        }
    }
    Ok(())
}

/// Declares options with their types.
macro_rules! options {
    ($($(#[$meta:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$meta])*
        pub(crate) struct $name {
            $($(#[$about])* pub(crate) $field: $type),+
        }

        impl FromPyObject<'_, '_> for $name {
            type Error = PyErr;

            fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                const NAMES: &[&str] = &[$(stringify!($field)),+];
                let py = given.py();
                let given = given.cast::<PyDict>()?;
                if given.len() > NAMES.len() {
                    refuse_unknown(&given, NAMES)?;
                }
                Ok(Self {
                    $($field: option(&given, pyo3::intern!(py, stringify!($field)), NAMES)?),+
                })
            }
        }
    )+};
}

options! {
    /// How log dirs are served.
    ServerValues {
        listen: Vec<String>,
        advertise: Option<String>,
        topics: Vec<String>,
        high_watermark: bool,
        decide: bool,
        without_state: bool,
        groups: Option<PathBuf>,
        without_offsets: bool,
        broker: Option<PathBuf>,
        metadata: Option<PathBuf>,
        tls_certificate: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_client_ca: Option<PathBuf>,
        users: Option<PathBuf>,
        insecure: bool,
        metrics: Option<String>,
        max_connections: usize,
        idle_timeout_ms: u64,
    }

    /// What is mirrored, from where, and how.
    MirrorValues {
        bootstrap: Vec<String>,
        topics: Vec<String>,
        patterns: Vec<String>,
        once: bool,
        config: Option<Pairs>,
        config_file: Option<PathBuf>,
        follow_deletes: bool,
        groups: bool,
        fetch_max_bytes: i32,
        refresh_ms: i64,
        give_up_ms: i64,
    }

    /// Bounds on what bytes of a file can make us do.
    #[allow(clippy::struct_field_names, reason = "the names of the arguments")]
    LimitValues {
        max_batch_bytes: u64,
        max_decompressed_bytes: u64,
        max_headers: usize,
        max_segments: usize,
        max_state_file_bytes: u64,
        max_open_files: usize,
    }

    /// How logs are opened.
    OpenValues {
        mapped: bool,
        limits: LimitValues,
    }

    /// What a caller says of the cluster that a log dir belongs to.
    ClusterValues {
        /// The folder of its metadata.
        metadata: Option<PathBuf>,
        /// The broker's `server.properties`.
        broker: Option<PathBuf>,
        /// Those that were named.
        internal_topics: Vec<String>,
        /// Whether other replicas do not matter.
        single_replica: bool,
    }

    /// How a log is opened for appending.
    WriteValues {
        config: Option<Pairs>,
        clock: Option<Py<PyAny>>,
        topic_id: Option<String>,
        clean: Option<bool>,
        recovery_point: Option<i64>,
        cluster: ClusterValues,
    }

    /// How log dirs are opened for appending.
    LogDirValues {
        defaults: Pairs,
        clock: Option<Py<PyAny>>,
        max_open_partitions: usize,
        seed: Option<u64>,
        cluster: ClusterValues,
    }

    /// How batches of whatever source are appended.
    AppendValues {
        leader_epoch: Option<i32>,
        flush: bool,
    }

    /// The end of a transaction.
    MarkerValues {
        producer_id: i64,
        producer_epoch: i16,
        commit: bool,
        coordinator_epoch: i32,
        timestamp: Option<i64>,
        transaction_version: i16,
    }

    /// What upkeep is to do.
    MaintainValues {
        now: Option<i64>,
        dry_run: bool,
        only: Vec<String>,
        config: Option<Pairs>,
    }

    /// What is restored, and how.
    RestoreValues {
        topics: Vec<String>,
        until: Option<i64>,
        ends: Vec<(String, i32, i64)>,
        new_cluster: bool,
        metadata: Vec<PathBuf>,
        broker: Option<PathBuf>,
        replication_factor: Option<usize>,
        single_replica: bool,
        keep_retention: bool,
        dry_run: bool,
    }

    /// What a scan reads, and how.
    ScanValues {
        start_timestamp: Option<i64>,
        stop_timestamp: Option<i64>,
        columns: Option<Vec<String>>,
        keys: Option<Vec<Vec<u8>>>,
        isolation_level: String,
        limit: Option<u64>,
        batch_rows: Option<usize>,
        batch_bytes: Option<usize>,
        verify_checksums: bool,
        threads: usize,
        on_corrupt: String,
        /// Offsets to take, in this order, from the only range's log.
        offsets: Option<Vec<i64>>,
    }
}
