"""Spark's types for the columns of a record: those of Spark's own Kafka source, and a few more on request.

Nothing here reads a file. The Arrow side of the same table is :class:`offsetlog.Scan`'s; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from offsetlog.errors import ConfigError
from offsetlog.spark.refusal import refuse, shown

__all__ = ["COLUMNS", "HEADERS", "KAFKA_COLUMNS", "NEVER_NULL", "checked_schema", "column_names", "spark_schema"]

HEADERS = "headers"

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": IntegerType(),
    "sequence": IntegerType(),
}
"""Every column with its Spark type. Spark calls all of them nullable, as its Kafka source does."""

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka source without ``includeHeaders``, in its order."""

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestampType"})
"""Columns that hold a value in every row, whatever the schema says."""


def spark_schema(columns: Iterable[str]) -> StructType:
    """Return the Spark schema of these columns, in this order, all nullable."""
    return StructType([StructField(name, COLUMNS[name], nullable=True) for name in columns])


def column_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` in their proper spelling; any case is taken.

    Raises
    ------
    ConfigError
        A name is unknown or given twice, or there is none.
    """
    folded = {name.lower(): name for name in COLUMNS}
    chosen = []
    for name in names:
        proper = folded.get(name.lower())
        if proper is None:
            refuse("columns", name, f"no column {shown(name)}{_near(name)} (known: {', '.join(COLUMNS)})")
        if proper in chosen:
            refuse("columns", name, f"{proper!r} is named twice")
        chosen.append(proper)
    if not chosen:
        refuse("columns", "", "names no column; leave the option out for the columns of Spark's Kafka source")
    return tuple(chosen)


def checked_schema(schema: StructType) -> tuple[str, ...]:
    """Return the column names of a schema that the user gave with ``.schema(...)``, in its order.

    Any choice of the known columns in any order will do, each with its own type. This is Spark's only way to tell a Python
    source which columns are wanted.

    Raises
    ------
    ConfigError
        A column is unknown, has another type, or is declared ``NOT NULL`` though it may be null.
    """
    for field in schema.fields:
        expected = COLUMNS.get(field.name)
        if expected is None:
            message = f"schema: no column {field.name!r}{_near(field.name)} (known: {', '.join(COLUMNS)})"
            raise ConfigError(message, key="schema", value=field.name)
        if field.dataType != expected:
            found, wanted = field.dataType.simpleString(), expected.simpleString()
            if found == wanted:
                found = f"{found} with parts that are declared NOT NULL"
            message = f"schema: column {field.name!r} must be {wanted}, found {found}; cast it in a select behind the load"
            raise ConfigError(message, key="schema", value=found)
        if not field.nullable and field.name not in NEVER_NULL:
            message = f"schema: column {field.name!r} may be null, found NOT NULL"
            raise ConfigError(message, key="schema", value=field.name)
    if not schema.fields:
        message = f"schema: names no column (known: {', '.join(COLUMNS)})"
        raise ConfigError(message, key="schema", value="")
    return tuple(schema.fieldNames())


def _near(name: str) -> str:
    folded = {known.lower(): known for known in COLUMNS}
    near = get_close_matches(name[:100].lower().replace("_", ""), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""
