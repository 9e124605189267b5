//! Topic settings: the engine's check and its table.

use crate::interrupt::detached;
use crate::raise::OrRaise;
use offsetlog::{BrokerSettings, LogConfig};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// Name, type, default's text, bounds, broker synonyms, whether it has an effect, what it means.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    String,
    Vec<&'static str>,
    bool,
    &'static str,
);

/// Names and texts of settings.
pub(crate) type Pairs = Vec<(String, String)>;

/// The metadata's folder, the broker's `server.properties`, internal topics that were named, whether other replicas do not matter.
pub(crate) type ClusterTerms = (Option<PathBuf>, Option<PathBuf>, Vec<String>, bool);

/// What a `server.properties` says, where one was given.
pub(crate) fn broker_of(py: Python<'_>, path: Option<&Path>) -> PyResult<Option<BrokerSettings>> {
    let disk = offsetlog::disk::RealDisk;
    path.map(|path| detached(py, || BrokerSettings::read(&disk, path)).or_raise(py))
        .transpose()
}

pub(crate) fn parse(py: Python<'_>, pairs: &Pairs) -> PyResult<LogConfig> {
    LogConfig::parse(pairs.iter().map(|(name, value)| (&**name, &**value))).or_raise(py)
}

pub(crate) fn rows(config: &LogConfig) -> Pairs {
    let given = config.given();
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What was given, in canonical text and sorted by name.
#[pyfunction]
pub(crate) fn config_check(py: Python<'_>, pairs: Pairs) -> PyResult<Pairs> {
    Ok(rows(&parse(py, &pairs)?))
}

/// The table of topic settings, sorted by name.
#[pyfunction]
pub(crate) fn settings() -> Vec<Row> {
    offsetlog::settings()
        .iter()
        .map(|setting| {
            (
                setting.name,
                setting.kind.type_name(),
                setting.default,
                setting.kind.bounds(),
                setting.broker_synonyms.to_vec(),
                setting.effective,
                setting.documentation,
            )
        })
        .collect()
}
