//! How a row becomes its named tuple: the class is looked up and its fields are compared once, then a row costs what a tuple costs.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

/// The named tuple that a row becomes.
pub(crate) struct RowClass {
    module: &'static str,
    name: &'static str,
    fields: &'static [&'static str],
    class: PyOnceLock<Py<PyAny>>,
}

impl RowClass {
    pub(crate) const fn new(
        module: &'static str,
        name: &'static str,
        fields: &'static [&'static str],
    ) -> Self {
        Self {
            module,
            name,
            fields,
            class: PyOnceLock::new(),
        }
    }

    /// `values` are those of the fields, in their order.
    pub(crate) fn row<'py, const N: usize>(
        &self,
        py: Python<'py>,
        values: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        // What `_make` calls; that also counts the values.
        let new = NEW.get_or_try_init(py, || {
            py.get_type::<PyTuple>()
                .getattr("__new__")
                .map(Bound::unbind)
        })?;
        let class = self.class.get_or_try_init(py, || self.checked(py))?;
        new.bind(py)
            .call1((class.bind(py), PyTuple::new(py, values)?))
    }

    fn checked(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let class = PyModule::import(py, self.module)?.getattr(self.name)?;
        let fields: Vec<String> = class.getattr("_fields")?.extract()?;
        if fields.iter().map(String::as_str).eq(names(self.fields)) {
            return Ok(class.unbind());
        }
        Err(PyTypeError::new_err(format!(
            "{}.{} has the fields {}, its row in the compiled module {}",
            self.module,
            self.name,
            fields.join(", "),
            names(self.fields).collect::<Vec<_>>().join(", ")
        )))
    }
}

/// Field names as Python has them: some are words of Rust.
pub(crate) fn names(
    fields: &'static [&'static str],
) -> impl ExactSizeIterator<Item = &'static str> {
    let plain = |field: &&'static str| field.strip_prefix("r#").unwrap_or(field);
    fields.iter().map(plain)
}

/// Declares rows, below the module that has their classes.
macro_rules! named_rows {
    ($($module:literal { $($name:ident { $($field:ident: $type:ty),+ $(,)? })+ })+) => {
        $($(
            #[allow(clippy::struct_field_names, reason = "the names that Python has")]
            pub(crate) struct $name {
                $(pub(crate) $field: $type),+
            }

            impl<'py> IntoPyObject<'py> for $name {
                type Target = PyAny;
                type Output = Bound<'py, PyAny>;
                type Error = PyErr;

                fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                    static CLASS: RowClass = RowClass::new($module, stringify!($name), &[$(stringify!($field)),+]);
                    CLASS.row(py, [$(self.$field.into_bound_py_any(py)?),+])
                }
            }
        )+)+

        /// Module and name of the class, and the fields, of every row.
        const ROWS: &[(&str, &str, &[&str])] = &[
            $($(($module, stringify!($name), &[$(stringify!($field)),+])),+),+
        ];
    };
}

pub(crate) use named_rows;

/// A tuple of any length in Python, where a `Vec` becomes a list.
pub(crate) struct Tuple<T>(Vec<T>);

impl<T> FromIterator<T> for Tuple<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<T> From<Vec<T>> for Tuple<T> {
    fn from(items: Vec<T>) -> Self {
        Self(items)
    }
}

impl<'py, T: IntoPyObject<'py>> IntoPyObject<'py> for Tuple<T> {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let items = self.0.into_iter().map(|item| item.into_bound_py_any(py));
        PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
    }
}

/// A dict in Python, in the order given.
pub(crate) struct Dict<K, V>(Vec<(K, V)>);

impl<K, V> FromIterator<(K, V)> for Dict<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<'py, K: IntoPyObject<'py>, V: IntoPyObject<'py>> IntoPyObject<'py> for Dict<K, V> {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.0 {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }
}

/// One of a few words, which Python then has once.
pub(crate) struct Interned(pub(crate) &'static str);

impl<'py> IntoPyObject<'py> for Interned {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        Ok(PyString::intern(py, self.0))
    }
}
