//! Topic settings: the engine's check and its table.

use crate::raise::OrRaise;
use offsetlog::LogConfig;
use pyo3::prelude::*;

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

/// What was given, in canonical text and sorted by name.
#[pyfunction]
pub(crate) fn config_check(
    py: Python<'_>,
    pairs: Vec<(String, String)>,
) -> PyResult<Vec<(&'static str, String)>> {
    let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
    let config = LogConfig::parse(pairs).or_raise(py)?;
    Ok(config
        .given()
        .map(|(name, value)| (name, value.to_owned()))
        .collect())
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
