//! Topic settings: the engine's check and its table.

use crate::interrupt::detached;
use crate::raise::OrRaise;
use crate::rows;
use offsetlog::{BrokerSettings, LogConfig};
use pyo3::prelude::*;
use std::path::Path;

/// Names and texts of settings.
pub(crate) type Pairs = Vec<(String, String)>;

/// What a `server.properties` says, where one was given.
pub(crate) fn broker_of(py: Python<'_>, path: Option<&Path>) -> PyResult<Option<BrokerSettings>> {
    let disk = offsetlog::disk::RealDisk;
    path.map(|path| detached(py, || BrokerSettings::read(&disk, path)).or_raise(py))
        .transpose()
}

pub(crate) fn parse(py: Python<'_>, pairs: &Pairs) -> PyResult<LogConfig> {
    LogConfig::parse(pairs.iter().map(|(name, value)| (&**name, &**value))).or_raise(py)
}

pub(crate) fn pairs(config: &LogConfig) -> Pairs {
    let given = config.given();
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What was given, in canonical text and sorted by name.
#[pyfunction]
pub(crate) fn config_check(py: Python<'_>, pairs: Pairs) -> PyResult<Pairs> {
    Ok(self::pairs(&parse(py, &pairs)?))
}

/// The table of topic settings, sorted by name.
#[pyfunction]
pub(crate) fn settings() -> Vec<rows::Setting> {
    let settings = offsetlog::settings().iter();
    settings
        .map(|setting| rows::Setting {
            name: setting.name,
            r#type: setting.kind.type_name(),
            default: setting.default,
            bounds: setting.kind.bounds(),
            broker_synonyms: setting.broker_synonyms.to_vec(),
            effective: setting.effective,
            documentation: setting.documentation,
        })
        .collect()
}
