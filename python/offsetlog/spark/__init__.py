"""Kafka's log directories in Spark: a data source, direct scans and look-ups, without a broker.

``spark.read.format("offsetlog")`` and ``spark.readStream`` work wherever this package is installed; :func:`register` is only needed
where that search is switched off, and where a driver runs several streams. :func:`offsets_behind` tells how far a stream is behind.
:func:`scan`, :func:`map_splits` and :func:`splits` are the direct APIs, :class:`ReadReport` tells what they read, :func:`write`
writes a frame and says what it wrote, :func:`lookup` is a UDF that fetches records by offset.

Options, columns and their meaning are those of Spark's own Kafka source and sink, with ``path`` in place of the brokers.

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

# Behind the check above, so that its text is what is seen.
from offsetlog.spark.direct import TaskResult, map_splits, scan, splits  # noqa: E402
from offsetlog.spark.progress import offsets_behind  # noqa: E402
from offsetlog.spark.reader import OffsetLogSource  # noqa: E402
from offsetlog.spark.registration import register  # noqa: E402
from offsetlog.spark.report import PartitionRead, ReadReport, SplitRead  # noqa: E402
from offsetlog.spark.schema import spark_schema  # noqa: E402
from offsetlog.spark.udf import lookup  # noqa: E402
from offsetlog.spark.write import Published, WriteSummary, write  # noqa: E402

__all__ = [
    "OffsetLogSource",
    "PartitionRead",
    "Published",
    "ReadReport",
    "SplitRead",
    "TaskResult",
    "WriteSummary",
    "lookup",
    "map_splits",
    "offsets_behind",
    "register",
    "scan",
    "spark_schema",
    "splits",
    "write",
]
