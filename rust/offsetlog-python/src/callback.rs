//! Calls of Python code that the user gave: a clock, a progress, records that are being made.
//!
//! Before Python 3.14 an interpreter that ends has every daemon thread in Python code end by `pthread_exit`, which unwinds the
//! thread's stack. `PyO3` catches all unwinding at the border, and the C library aborts the process for that. A call from here
//! lets the thread wait for the end of the process instead, as Python itself does from 3.14 on.
//!
//! Known gap: Python code that a conversion of `PyO3` runs, such as headers that a generator makes.

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::hint::black_box;
use std::mem;
use std::thread;

/// `PyO3` declares the interpreter's functions as ones that never unwind, so that nothing would be dropped on the way.
macro_rules! that_may_unwind {
    ($function:path, ($($argument:ty),+)) => {{
        #[expect(unsafe_code, reason = "PyO3's declaration leaves out that the function may unwind")]
        // SAFETY: the two types differ in nothing but whether the function may unwind, and callers allow for more with this one.
        let function = unsafe {
            mem::transmute::<
                unsafe extern "C" fn($($argument),+) -> *mut PyObject,
                unsafe extern "C-unwind" fn($($argument),+) -> *mut PyObject,
            >($function)
        };
        // The compiler must not see which function it is: it knows of PyO3's declaration.
        black_box(function)
    }};
}

/// Keeps the thread from leaving: dropped only by an unwinding.
struct Stay;

impl Drop for Stay {
    fn drop(&mut self) {
        loop {
            thread::park();
        }
    }
}

/// Calls `callable`.
///
/// # Errors
/// What it raises.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let function = that_may_unwind!(ffi::PyObject_CallObject, (*mut PyObject, *mut PyObject));
    let stay = Stay;
    #[expect(unsafe_code, reason = "the interpreter's own function")]
    // SAFETY: both live as long as the call, and the interpreter is attached.
    let answer = unsafe { function(callable.as_ptr(), arguments.as_ptr()) };
    mem::forget(stay);
    owned(callable.py(), answer)
}

/// Calls `each` with every item of `iterable`.
///
/// # Errors
/// What `iterable` or `each` raises first, which ends it.
pub(crate) fn for_each<'py>(
    iterable: &Bound<'py, PyAny>,
    mut each: impl FnMut(Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    // These run no Python code, so `PyO3`'s way, which is 4 % of an append faster, is safe.
    if iterable.is_exact_instance_of::<PyList>() || iterable.is_exact_instance_of::<PyTuple>() {
        return iterable.try_iter()?.try_for_each(|item| each(item?));
    }
    let function = that_may_unwind!(ffi::PyObject_GetIter, (*mut PyObject));
    let stay = Stay;
    #[expect(unsafe_code, reason = "the interpreter's own function")]
    // SAFETY: the object lives as long as the call, and the interpreter is attached.
    let iterator = unsafe { function(iterable.as_ptr()) };
    mem::forget(stay);
    let iterator = owned(iterable.py(), iterator)?;
    while let Some(item) = next(&iterator) {
        each(item?)?;
    }
    Ok(())
}

fn next<'py>(iterator: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyAny>>> {
    let py = iterator.py();
    let function = that_may_unwind!(ffi::PyIter_Next, (*mut PyObject));
    let stay = Stay;
    #[expect(unsafe_code, reason = "the interpreter's own function")]
    // SAFETY: `PyObject_GetIter` gave the iterator, which lives as long as the call, and the interpreter is attached.
    let item = unsafe { function(iterator.as_ptr()) };
    mem::forget(stay);
    if item.is_null() {
        // Null without an exception is the end.
        return PyErr::take(py).map(Err);
    }
    Some(owned(py, item))
}

fn owned(py: Python<'_>, pointer: *mut PyObject) -> PyResult<Bound<'_, PyAny>> {
    #[expect(unsafe_code, reason = "the interpreter's functions hand over pointers")]
    // SAFETY: the function gave a new reference, or null with an exception.
    unsafe {
        Bound::from_owned_ptr_or_err(py, pointer)
    }
}
