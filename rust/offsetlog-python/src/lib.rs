//! The compiled half of the Python package `offsetlog`: converts arguments, releases the interpreter, calls the engine, converts
//! results and errors. It decides nothing, and nothing outside the package uses it.
#![allow(
    clippy::needless_pass_by_value,
    reason = "PyO3 hands over what it extracted by value"
)]

mod adopt;
mod appender;
mod arrow;
mod arrow_append;
mod callback;
mod capsule;
mod clock;
mod command;
mod config;
mod convert;
mod convert_log;
mod folder;
mod follow;
mod held_records;
mod identity;
mod interrupt;
mod log;
mod log_dir;
mod mirror;
mod old_log;
mod options;
mod progress;
mod pushed_records;
mod raise;
mod record;
mod record_arguments;
mod records;
mod requested;
mod restore;
mod row_class;
mod rows;
mod salvage;
mod scan;
mod server;
mod topics;
mod unclosed;
mod verify;
mod writer;
mod writers;

use pyo3::prelude::*;

/// The id of this process; that of the child after a fork. `os.getpid` costs a system call.
#[pyfunction]
fn process_id() -> u32 {
    offsetlog::disk::process_id()
}

#[pymodule(gil_used = true)]
fn _offsetlog(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("COLUMNS", scan::column_names(module.py())?)?;
    module.add("ROWS", rows::fields(module.py())?)?;
    module.add_class::<appender::Appender>()?;
    module.add_class::<arrow::Batches>()?;
    module.add_class::<log::BatchIterator>()?;
    module.add_class::<log::Log>()?;
    module.add_class::<log_dir::LogDir>()?;
    module.add_class::<topics::LogDirAppender>()?;
    module.add_class::<old_log::OldLog>()?;
    module.add_class::<old_log::OldMessages>()?;
    module.add_class::<record::Record>()?;
    module.add_class::<records::RecordIterator>()?;
    module.add_class::<follow::Follow>()?;
    module.add_class::<scan::Later>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<writer::Writer>()?;
    module.add_function(wrap_pyfunction!(adopt::adopt, module)?)?;
    module.add_function(wrap_pyfunction!(appender::close_inherited_locks, module)?)?;
    module.add_function(wrap_pyfunction!(appender::moving_note, module)?)?;
    module.add_function(wrap_pyfunction!(appender::recover, module)?)?;
    module.add_function(wrap_pyfunction!(arrow_append::append_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(arrow_append::arrow_digest, module)?)?;
    module.add_function(wrap_pyfunction!(config::config_check, module)?)?;
    module.add_function(wrap_pyfunction!(config::settings, module)?)?;
    module.add_function(wrap_pyfunction!(convert_log::convert, module)?)?;
    module.add_function(wrap_pyfunction!(mirror::mirror, module)?)?;
    module.add_function(wrap_pyfunction!(process_id, module)?)?;
    module.add_function(wrap_pyfunction!(restore::restore, module)?)?;
    module.add_function(wrap_pyfunction!(salvage::salvage, module)?)?;
    module.add_function(wrap_pyfunction!(folder::folder_kind, module)?)?;
    module.add_function(wrap_pyfunction!(folder::given_path, module)?)?;
    module.add_function(wrap_pyfunction!(held_records::producers, module)?)?;
    module.add_function(wrap_pyfunction!(held_records::why, module)?)?;
    module.add_function(wrap_pyfunction!(held_records::end_transaction, module)?)?;
    module.add_function(wrap_pyfunction!(identity::identity, module)?)?;
    module.add_function(wrap_pyfunction!(identity::metadata_as_commands, module)?)?;
    module.add_function(wrap_pyfunction!(identity::metadata_as_yaml, module)?)?;
    module.add_function(wrap_pyfunction!(identity::zookeeper_node, module)?)?;
    module.add_function(wrap_pyfunction!(scan::arrow_schema, module)?)?;
    module.add_function(wrap_pyfunction!(topics::broker_settings, module)?)?;
    module.add_function(wrap_pyfunction!(topics::partition_for, module)?)?;
    module.add_function(wrap_pyfunction!(topics::partitions_for, module)?)?;
    module.add_function(wrap_pyfunction!(unclosed::end_writers, module)?)?;
    module.add_function(wrap_pyfunction!(verify::verify, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_cli, module)?)
}
