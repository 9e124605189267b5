"""Kafka's storage engine as a library: read a broker's log directories without the broker.

>>> from offsetlog import Log, LogDir
>>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
...     sum(1 for record in log.scan())
200

:class:`Log` is one partition, :class:`LogDir` all partitions of a broker, :class:`Scan` a range of records that is iterated
or handed to pyarrow, polars, DuckDB, pandas or Spark. Errors are in :mod:`offsetlog.errors`, Spark in :mod:`offsetlog.spark`.
"""

from offsetlog._cached import open_cached
from offsetlog._log import Log
from offsetlog._log_dir import LogDir
from offsetlog._offsetlog import Record, __version__
from offsetlog._scan import Scan
from offsetlog._values import (
    AbortedTransaction,
    BatchInfo,
    FetchResult,
    Header,
    IndexEntry,
    Location,
    OffsetAndTimestamp,
    Segment,
    Split,
    TopicPartition,
)
from offsetlog.errors import (
    CheckpointError,
    ConfigError,
    CorruptBatchError,
    CorruptIndexError,
    CorruptionError,
    CorruptSnapshotError,
    CorruptTxnIndexError,
    DecompressionError,
    DecompressionLimitError,
    InvalidRecordError,
    LimitExceededError,
    LogClosedError,
    LogDirError,
    MetadataFileError,
    OffsetLogError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    SegmentTooLargeError,
    UnsupportedCodecError,
    UnsupportedFormatError,
    UnsupportedMagicError,
    UnsupportedVersionError,
)

__all__ = [
    "AbortedTransaction",
    "BatchInfo",
    "CheckpointError",
    "ConfigError",
    "CorruptBatchError",
    "CorruptIndexError",
    "CorruptSnapshotError",
    "CorruptTxnIndexError",
    "CorruptionError",
    "DecompressionError",
    "DecompressionLimitError",
    "FetchResult",
    "Header",
    "IndexEntry",
    "InvalidRecordError",
    "LimitExceededError",
    "Location",
    "Log",
    "LogClosedError",
    "LogDir",
    "LogDirError",
    "MetadataFileError",
    "OffsetAndTimestamp",
    "OffsetLogError",
    "OffsetOrderError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "Record",
    "Scan",
    "Segment",
    "SegmentTooLargeError",
    "Split",
    "TopicPartition",
    "UnsupportedCodecError",
    "UnsupportedFormatError",
    "UnsupportedMagicError",
    "UnsupportedVersionError",
    "__version__",
    "open_cached",
]
