//! What others hand over through the Arrow `PyCapsule` interface. Every `unsafe` of this crate is here.
//!
//! Policy: a capsule is used only after its name was checked, which by the interface says what it points to and that the pointer
//! is good while the capsule lives. Streams and arrays are moved out, so that the capsule's own destructor finds them released. What they
//! hold is only as good as their maker: lengths and types are taken from it here, and whoever reads the arrays validates them first
//! (`offsetlog::arrow::ArrowRows::push`).

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{ArrayRef, make_array};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Reads a capsule `arrow_schema`, which keeps what it holds, as `T`.
fn read_schema<'s, T: TryFrom<&'s FFI_ArrowSchema>>(
    capsule: &'s Bound<'_, PyCapsule>,
) -> PyResult<Result<T, T::Error>> {
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?;
    #[expect(unsafe_code, reason = "the C data interface hands over a pointer")]
    // SAFETY: the name was checked, and by the Arrow PyCapsule interface a capsule of this name points to an ArrowSchema that it
    // keeps alive; `capsule` is borrowed as long as the schema is. test_arrow.py exercises it with pyarrow's and polars' capsules.
    let schema = unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() };
    Ok(T::try_from(schema))
}

/// The schema in a capsule `arrow_schema`; `None` where it has a type that arrow-rs does not know.
pub(crate) fn schema(capsule: &Bound<'_, PyCapsule>) -> PyResult<Option<Schema>> {
    Ok(read_schema(capsule)?.ok())
}

/// The stream in a capsule `arrow_array_stream`, which is empty from then on.
pub(crate) fn stream(
    capsule: &Bound<'_, PyCapsule>,
) -> PyResult<Result<ArrayStreamReader, ArrowError>> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    #[expect(unsafe_code, reason = "the C stream interface hands over a pointer")]
    // SAFETY: the name was checked, and by the Arrow PyCapsule interface a capsule of this name points to an ArrowArrayStream, aligned,
    // initialized, and released or not, which a consumer may move out of it. The interpreter is attached, so nobody else moves it.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    Ok(ArrayStreamReader::try_new(stream))
}

/// The array in a pair of capsules `arrow_schema` and `arrow_array`, of which the second is empty from then on.
pub(crate) fn array(
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
) -> PyResult<Result<ArrayRef, ArrowError>> {
    let field = match read_schema::<Field>(schema)? {
        Ok(field) => field,
        Err(error) => return Ok(Err(error)),
    };
    let pointer = array.pointer_checked(Some(c"arrow_array"))?;
    #[expect(unsafe_code, reason = "the C data interface hands over a pointer")]
    // SAFETY: as in `stream`, of an ArrowArray.
    let array = unsafe { FFI_ArrowArray::from_raw(pointer.cast().as_ptr()) };
    if array.is_released() {
        let used = "the array was taken out of its capsule before".to_owned();
        return Ok(Err(ArrowError::CDataInterface(used)));
    }
    #[expect(unsafe_code, reason = "the C data interface hands over pointers")]
    // SAFETY: the array is not released, and the type is the one that its maker gave with it.
    let data = unsafe { from_ffi_and_data_type(array, field.data_type().clone()) };
    Ok(data.map(make_array))
}
