"""Kafka's log directories in Spark: a data source, direct scans and look-ups, without a broker.

``spark.read.format("offsetlog")`` works wherever this package is installed; :func:`register` is only needed where that search is
switched off. :func:`scan` and :func:`splits` are the direct roads, :func:`lookup` is a UDF that fetches records by offset.
Options, columns and their meaning are those of Spark's own Kafka source, with ``path`` in place of the brokers.

Everything here is Python on the public names of :mod:`offsetlog`.
"""

from __future__ import annotations

try:
    import pyarrow
    import pyspark
except ImportError as error:
    message = f"offsetlog.spark needs {error.name}, which cannot be imported ({error}); pip install 'offsetlog[spark]'"
    raise ImportError(message, name=error.name) from error

del pyarrow, pyspark

from offsetlog.spark.direct import scan, splits  # noqa: E402  # behind the check above, so that its text is what is seen
from offsetlog.spark.reader import OffsetLogSource, register  # noqa: E402
from offsetlog.spark.schema import spark_schema  # noqa: E402
from offsetlog.spark.udf import lookup  # noqa: E402

__all__ = ["OffsetLogSource", "lookup", "register", "scan", "spark_schema", "splits"]
