"""Kafka's storage engine as a library: read a broker's log directories without the broker.

>>> from offsetlog import Log, LogDir
>>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
...     sum(1 for record in log.scan())
200

:class:`Log` is one partition, :class:`LogDir` all partitions of a broker, :class:`Scan` a range of records that is iterated
or handed to pyarrow, polars, DuckDB, pandas or Spark. Errors are in :mod:`offsetlog.errors`, Spark in :mod:`offsetlog.spark`.
"""

from offsetlog._append import Writer
from offsetlog._cached import open_cached
from offsetlog._config import LogConfig
from offsetlog._convert import convert
from offsetlog._log import Log
from offsetlog._log_dir import LogDir
from offsetlog._offsetlog import Record, __version__
from offsetlog._recover import recover
from offsetlog._scan import Scan
from offsetlog._topics import BrokerSettings, partition_for
from offsetlog._values import (
    AbortedTransaction,
    AppendInfo,
    BatchInfo,
    ConvertReport,
    Cut,
    FetchResult,
    Header,
    IndexEntry,
    Location,
    OffsetAndTimestamp,
    RecordMetadata,
    RecoveryReport,
    Segment,
    Split,
    TopicPartition,
)
from offsetlog.errors import (
    AppendOrderError,
    CheckpointError,
    CompressionError,
    ConfigError,
    CorruptBatchError,
    CorruptIndexError,
    CorruptionError,
    CorruptSnapshotError,
    CorruptTxnIndexError,
    DecompressionError,
    DecompressionLimitError,
    ForkedLogError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    LimitExceededError,
    LogClosedError,
    LogDirError,
    LogLockedError,
    LogPoisonedError,
    MetadataFileError,
    OffsetLogError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    SegmentTooLargeError,
    TransactionCoordinatorFencedError,
    UnexpectedAppendOffsetError,
    UnsupportedCodecError,
    UnsupportedFormatError,
    UnsupportedMagicError,
    UnsupportedVersionError,
)

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "AppendOrderError",
    "BatchInfo",
    "BrokerSettings",
    "CheckpointError",
    "CompressionError",
    "ConfigError",
    "ConvertReport",
    "CorruptBatchError",
    "CorruptIndexError",
    "CorruptSnapshotError",
    "CorruptTxnIndexError",
    "CorruptionError",
    "Cut",
    "DecompressionError",
    "DecompressionLimitError",
    "FetchResult",
    "ForkedLogError",
    "Header",
    "IndexEntry",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "LimitExceededError",
    "Location",
    "Log",
    "LogClosedError",
    "LogConfig",
    "LogDir",
    "LogDirError",
    "LogLockedError",
    "LogPoisonedError",
    "MetadataFileError",
    "OffsetAndTimestamp",
    "OffsetLogError",
    "OffsetOrderError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "Record",
    "RecordBatchTooLargeError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RecoveryReport",
    "Scan",
    "Segment",
    "SegmentTooLargeError",
    "Split",
    "TopicPartition",
    "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetError",
    "UnsupportedCodecError",
    "UnsupportedFormatError",
    "UnsupportedMagicError",
    "UnsupportedVersionError",
    "Writer",
    "__version__",
    "convert",
    "open_cached",
    "partition_for",
    "recover",
]
