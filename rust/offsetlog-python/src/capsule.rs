//! Takes what other libraries pass through the Arrow `PyCapsule` interface. With `callback`, every `unsafe` of this crate.
//!
//! Policy: a capsule is used only after its name was checked, which by the interface says what it points to and that the pointer
//! is good while the capsule lives. Streams and arrays are moved out, so that the capsule's own destructor finds them released. What they
//! hold is only as good as their maker: lengths and types are taken from it here, and the reader of the arrays validates them first
//! (`offsetlog::arrow::ArrowRows::push`).

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, make_array};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;

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

/// Why something could not be taken.
pub(crate) enum Unusable {
    /// Its maker said so, or gave what has no meaning.
    Maker(ArrowError),
    /// Its buffers cannot be what its layout says.
    Layout,
}

impl From<ArrowError> for Unusable {
    fn from(error: ArrowError) -> Self {
        Self::Maker(error)
    }
}

/// Arrays that come one after another.
pub(crate) struct Stream {
    stream: FFI_ArrowArrayStream,
    field: Field,
}

impl Stream {
    pub(crate) const fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    fn new(mut stream: FFI_ArrowArrayStream) -> Result<Self, Unusable> {
        let Some(get_schema) = stream.get_schema() else {
            let used = "the stream is released: it was taken out of its capsule before".to_owned();
            return Err(ArrowError::CDataInterface(used).into());
        };
        let mut schema = FFI_ArrowSchema::empty();
        #[expect(unsafe_code, reason = "the C stream interface is made of callbacks")]
        // SAFETY: the callback comes from the stream, which is not released, and may write a schema to where there is room for one.
        let code = unsafe { get_schema(&raw mut stream, &raw mut schema) };
        if code != 0 {
            return Err(failure(&mut stream, "schema", code));
        }
        let field = Field::try_from(&schema)?;
        Ok(Self { stream, field })
    }

    fn pull(&mut self) -> Result<Option<ArrayRef>, Unusable> {
        let Some(get_next) = self.stream.get_next() else {
            return Ok(None);
        };
        let mut array = FFI_ArrowArray::empty();
        #[expect(unsafe_code, reason = "the C stream interface is made of callbacks")]
        // SAFETY: as in `new`, of an array.
        let code = unsafe { get_next(&raw mut self.stream, &raw mut array) };
        if code != 0 {
            return Err(failure(&mut self.stream, "next array", code));
        }
        if array.is_released() {
            return Ok(None);
        }
        import(array, self.field.data_type()).map(Some)
    }
}

impl Iterator for Stream {
    type Item = Result<ArrayRef, Unusable>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

/// What the maker of a stream says of its last failure.
fn failure(stream: &mut FFI_ArrowArrayStream, what: &str, code: i32) -> Unusable {
    let mut text = format!("no {what} from the stream, error {code}");
    if let Some(get_last_error) = stream.get_last_error() {
        #[expect(unsafe_code, reason = "the C stream interface is made of callbacks")]
        // SAFETY: the callback comes from the stream, which is not released, and is asked right after a failure.
        let told = unsafe { get_last_error(stream) };
        if !told.is_null() {
            #[expect(unsafe_code, reason = "the C stream interface hands over a pointer")]
            // SAFETY: by the interface a text that ends with a zero and is good until the next call.
            let told = unsafe { CStr::from_ptr(told) };
            text = format!("{text}: {}", told.to_string_lossy());
        }
    }
    ArrowError::CDataInterface(text).into()
}

/// Takes an array that is not released over, unless arrow-rs would take nonsense for the length of a buffer.
fn import(array: FFI_ArrowArray, data_type: &DataType) -> Result<ArrayRef, Unusable> {
    if !ends_well(&array, data_type) {
        return Err(Unusable::Layout);
    }
    #[expect(unsafe_code, reason = "the C data interface hands over pointers")]
    // SAFETY: the array is not released, and the type is the one that its maker gave with it.
    let data = unsafe { from_ffi_and_data_type(array, data_type.clone()) };
    Ok(make_array(data?))
}

/// Whether no last offset is negative: it is all that tells how long a buffer of bytes is.
fn ends_well(array: &FFI_ArrowArray, data_type: &DataType) -> bool {
    let slots = array.len() + array.offset();
    let is_long = match data_type {
        DataType::Utf8 | DataType::Binary => false,
        DataType::LargeUtf8 | DataType::LargeBinary => true,
        DataType::Dictionary(_, values) => {
            return array
                .dictionary()
                .is_none_or(|array| ends_well(array, values));
        }
        DataType::Struct(fields) => {
            return fields.len() != array.num_children()
                || fields
                    .iter()
                    .enumerate()
                    .all(|(at, field)| ends_well(array.child(at), field.data_type()));
        }
        DataType::Union(fields, _) => {
            return fields.len() != array.num_children()
                || fields
                    .iter()
                    .enumerate()
                    .all(|(at, (_, field))| ends_well(array.child(at), field.data_type()));
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => {
            return array.num_children() != 1 || ends_well(array.child(0), field.data_type());
        }
        DataType::RunEndEncoded(_, values) => {
            return array.num_children() != 2 || ends_well(array.child(1), values.data_type());
        }
        _ => return true,
    };
    // Others that are wrong here are seen when the array is read.
    if slots == 0 || array.num_buffers() != 3 || array.buffer(1).is_null() {
        return true;
    }
    let offsets = array.buffer(1);
    let width = if is_long { 8 } else { 4 };
    let sign = if cfg!(target_endian = "big") {
        0
    } else {
        width - 1
    };
    let last = offsets.wrapping_add(slots * width + sign);
    #[expect(unsafe_code, reason = "the C data interface hands over pointers")]
    // SAFETY: by the interface the second buffer of such an array holds one offset more than the array has slots.
    let highest_byte = unsafe { last.read() };
    highest_byte < 0x80
}

/// The stream in a capsule `arrow_array_stream`, which is empty from then on.
pub(crate) fn stream(capsule: &Bound<'_, PyCapsule>) -> PyResult<Result<Stream, Unusable>> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    #[expect(unsafe_code, reason = "the C stream interface hands over a pointer")]
    // SAFETY: the name was checked, and by the Arrow PyCapsule interface a capsule of this name points to an ArrowArrayStream, aligned,
    // initialized, and released or not, which a consumer may move out of it. The interpreter is attached, so nobody else moves it.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    Ok(Stream::new(stream))
}

/// The array in a pair of capsules `arrow_schema` and `arrow_array`, of which the second is empty from then on.
pub(crate) fn array(
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
) -> PyResult<Result<ArrayRef, Unusable>> {
    let field = match read_schema::<Field>(schema)? {
        Ok(field) => field,
        Err(error) => return Ok(Err(error.into())),
    };
    let pointer = array.pointer_checked(Some(c"arrow_array"))?;
    #[expect(unsafe_code, reason = "the C data interface hands over a pointer")]
    // SAFETY: as in `stream`, of an ArrowArray.
    let array = unsafe { FFI_ArrowArray::from_raw(pointer.cast().as_ptr()) };
    if array.is_released() {
        let used = "the array was taken out of its capsule before".to_owned();
        return Ok(Err(ArrowError::CDataInterface(used).into()));
    }
    Ok(import(array, field.data_type()))
}
