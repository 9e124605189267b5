//! What a consumer may ask of an Arrow stream: fewer columns, other layouts of the same values.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// The columns of `asked`, as far as `own` can serve all of them, and the fields to answer with.
pub(crate) fn serve(asked: &Schema, own: &Schema) -> Option<(Vec<String>, SchemaRef)> {
    let fields = asked
        .fields()
        .iter()
        .map(|field| {
            let own = own.field_with_name(field.name()).ok()?;
            serve_field(field, own)
        })
        .collect::<Option<Vec<_>>>()?;
    let names: Vec<_> = fields.iter().map(|field| field.name().clone()).collect();
    let twice = names
        .iter()
        .enumerate()
        .any(|(at, name)| names.iter().skip(at + 1).any(|other| other == name));
    (!twice).then(|| (names, Arc::new(Schema::new(fields))))
}

/// Ours are nullable whatever was asked: a request changes layouts, not what may be in them.
fn serve_field(asked: &Field, own: &Field) -> Option<FieldRef> {
    let data_type = serve_type(asked.data_type(), own.data_type())?;
    Some(Arc::new(Field::new(asked.name(), data_type, true)))
}

fn serve_type(asked: &DataType, own: &DataType) -> Option<DataType> {
    use DataType::{
        Binary, BinaryView, Dictionary, Int8, Int16, Int32, Int64, LargeBinary, LargeList,
        LargeUtf8, List, Struct, Timestamp, Utf8, Utf8View,
    };
    match (asked, own) {
        (asked, own) if asked == own => Some(asked.clone()),
        (Binary | LargeBinary | BinaryView, Binary)
        | (Utf8 | LargeUtf8 | Utf8View, Utf8)
        | (Int64, Int32) => Some(asked.clone()),
        (Dictionary(index, value), Utf8)
            if matches!(**index, Int8 | Int16 | Int32 | Int64)
                && matches!(**value, Utf8 | LargeUtf8) =>
        {
            Some(asked.clone())
        }
        // Seconds would drop the milliseconds.
        (Timestamp(unit, _), Timestamp(..)) if *unit != TimeUnit::Second => Some(asked.clone()),
        (List(asked), List(own)) => serve_field(asked, own).map(List),
        (LargeList(asked), List(own)) => serve_field(asked, own).map(LargeList),
        (Struct(asked), Struct(own)) if asked.len() == own.len() => asked
            .iter()
            .zip(own)
            .map(|(asked, own)| {
                (asked.name() == own.name())
                    .then(|| serve_field(asked, own))
                    .flatten()
            })
            .collect::<Option<Vec<_>>>()
            .map(|fields| Struct(fields.into())),
        _ => None,
    }
}

/// `batch` in the layouts of `schema`, whose columns are the same in the same order.
pub(crate) fn cast_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast_column(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)
}

fn cast_column(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    // Without `safe`, what does not fit is an error and not a silent null.
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    if let (DataType::Timestamp(unit, zone), DataType::Timestamp(_, own)) = (to, column.data_type())
    {
        let column = cast_with_options(column, &DataType::Timestamp(*unit, own.clone()), &strict)?;
        if zone == own {
            return Ok(column);
        }
        // The instant stays; a zone is only how it is shown, and none means UTC.
        let data = column.to_data().into_builder().data_type(to.clone());
        return data.build().map(arrow_array::make_array);
    }
    cast_with_options(column, to, &strict)
}
