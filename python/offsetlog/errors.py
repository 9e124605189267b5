"""Every error that offsetlog raises, drawn as a tree.

::

    Exception
    └── OffsetLogError
        ├── CorruptionError                   bytes on disk that contradict themselves
        │   ├── CorruptBatchError             a batch's frame, size or checksum
        │   ├── InvalidRecordError            (ValueError) checksum right, content wrong
        │   ├── DecompressionError            the compressed payload of a batch
        │   ├── OffsetOrderError              offsets that go back, or leave their segment
        │   ├── OffsetOverflowError           offsets beyond what a segment or 64 bits can hold
        │   ├── CorruptIndexError             ``.index`` and ``.timeindex``
        │   ├── CorruptTxnIndexError          ``.txnindex``
        │   ├── CorruptSnapshotError          ``.snapshot``
        │   ├── CheckpointError               ``leader-epoch-checkpoint`` and the log dir's checkpoints
        │   ├── MetadataFileError             ``partition.metadata`` and ``meta.properties``
        │   └── SegmentTooLargeError          a segment of 2 GiB or more
        ├── UnsupportedFormatError            (NotImplementedError) a newer Kafka may have written it
        │   ├── UnsupportedMagicError         the format version byte of a batch
        │   ├── UnsupportedCodecError         the compression bits of a batch
        │   └── UnsupportedVersionError       the version of any other structure
        ├── LimitExceededError                (ValueError) a limit given to ``open``
        │   └── DecompressionLimitError       ``max_decompressed_bytes``
        ├── OffsetOutOfRangeError             (LookupError) an offset that the log does not hold
        ├── LogDirError                       folders and file names that are not Kafka's
        │   └── ClusterError                  changes that go against the cluster of the log dir
        ├── ConfigError                       (ValueError) an argument or option
        │   └── ReadOnlyLogError              (AttributeError) a verb that writes, of a log opened for reading
        ├── CompressionError                  a codec that refused to compress
        ├── RecordRejectedError               (ValueError) an append refused for its records or bytes
        │   └── InvalidTimestampError         a timestamp too far from now, or of the wrong kind
        ├── RecordTooLargeError               (ValueError) a batch above ``max.message.bytes``
        │   └── RecordBatchTooLargeError      an append above ``segment.bytes``
        ├── AppendOrderError                  (ValueError) an append that does not follow what is there
        │   ├── OffsetsOutOfOrderError        batches that do not ascend
        │   ├── UnexpectedAppendOffsetError   an append below the log end offset
        │   ├── OutOfOrderSequenceError       a producer's sequence
        │   ├── InvalidTxnStateError          a batch outside its producer's open transaction
        │   └── ProducerFencedError           a producer's epoch
        │       └── TransactionCoordinatorFencedError
        ├── UnreadPartitionsError             some of many partitions; it carries what the others say
        ├── LogLockedError                    somebody else writes
        ├── LogPoisonedError                  an earlier failure of the disk ended the appending
        ├── ForkedLogError                    a parent's open log, in the child
        └── LogClosedError                    (ValueError) used after ``close()``

What the operating system refuses stays an :class:`OSError` (or its subclass, as :class:`FileNotFoundError`) with ``errno`` and
``filename``. All errors pickle with their attributes, so they cross process borders whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from offsetlog._values import TopicPartition

__all__ = [
    "AppendOrderError",
    "CheckpointError",
    "ClusterError",
    "CompressionError",
    "ConfigError",
    "CorruptBatchError",
    "CorruptIndexError",
    "CorruptSnapshotError",
    "CorruptTxnIndexError",
    "CorruptionError",
    "DecompressionError",
    "DecompressionLimitError",
    "ForkedLogError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "LimitExceededError",
    "LogClosedError",
    "LogDirError",
    "LogLockedError",
    "LogPoisonedError",
    "MetadataFileError",
    "OffsetLogError",
    "OffsetOrderError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "ReadOnlyLogError",
    "RecordBatchTooLargeError",
    "RecordRejectedError",
    "RecordTooLargeError",
    "SegmentTooLargeError",
    "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetError",
    "UnreadPartitionsError",
    "UnsupportedCodecError",
    "UnsupportedFormatError",
    "UnsupportedMagicError",
    "UnsupportedVersionError",
]


class OffsetLogError(Exception):
    """Root of every error of offsetlog; the text says what is wrong, what was found and expected, and where.

    Parameters
    ----------
    message
        The whole text, one line.
    path
        File or folder that the error is about, as it was opened. ``None`` when the error is not about a file.
    position
        Byte place in ``path`` where the bad structure begins. ``None`` when unknown.
    offset
        Kafka offset concerned: the base offset of the bad batch, or the offset asked for. ``None`` when unknown.
    found
        What was there, as text. ``None`` when the error is not a comparison.
    expected
        What should have been there, as text. ``None`` when the error is not a comparison.
    """

    path: str | None
    position: int | None
    offset: int | None
    found: str | None
    expected: str | None

    _fields: ClassVar[tuple[str, ...]] = ("path", "position", "offset", "found", "expected")

    def __init__(self, message: str = "", **context: Any) -> None:  # noqa: ANN401  # the attributes above, by their names
        super().__init__(message)
        if unknown := context.keys() - set(self._fields):
            text = f"{type(self).__name__} has no attribute {min(unknown)!r}"
            raise TypeError(text)
        for name in self._fields:
            setattr(self, name, context.get(name))


class CorruptionError(OffsetLogError):
    """Bytes on disk contradict themselves or their neighbours. Records before ``position`` can still be read."""


class CorruptBatchError(CorruptionError):
    """A batch whose frame, size or checksum is wrong. Where the next batch begins is not known."""


class InvalidRecordError(CorruptionError, ValueError):
    """A batch with a right checksum and wrong content: written that way, not damaged later. The next batch can be read."""


class DecompressionError(CorruptionError):
    """The compressed payload of a batch does not decompress. The next batch can be read."""


class OffsetOrderError(CorruptionError):
    """Offsets that do not grow, or that lie outside the segment whose file holds them."""


class OffsetOverflowError(CorruptionError):
    """An offset more than 2^31 - 1 past its segment's base offset, or past 2^63 - 1."""


class CorruptIndexError(CorruptionError):
    """An ``.index`` or ``.timeindex`` file that breaks its own order. Reading a log never raises it: indexes are only hints."""


class CorruptTxnIndexError(CorruptionError):
    """A ``.txnindex`` file with an unknown version or impossible offsets."""


class CorruptSnapshotError(CorruptionError):
    """A producer ``.snapshot`` file with a wrong checksum, version, length or count."""


class CheckpointError(CorruptionError):
    """A checkpoint file (leader epochs, or of the log dir) that does not parse."""


class MetadataFileError(CorruptionError):
    """A ``partition.metadata``, a ``meta.properties`` or a file of ZooKeeper's that does not parse."""


class SegmentTooLargeError(CorruptionError):
    """A ``.log`` file of 2 GiB or more, which no Kafka writes."""


class UnsupportedFormatError(OffsetLogError, NotImplementedError):
    """Something that this version of offsetlog does not read; a later Kafka may have written it."""


class UnsupportedMagicError(UnsupportedFormatError):
    """A batch whose magic byte is not 0, 1 or 2."""


class UnsupportedCodecError(UnsupportedFormatError):
    """A batch whose compression bits name no codec of its magic."""


class UnsupportedVersionError(UnsupportedFormatError):
    """A file or record whose version number is not known."""


class LimitExceededError(OffsetLogError, ValueError):
    """Reading on would take more than a limit allows, or an append could not be read back within it.

    The limits are arguments of ``Log.open`` and ``LogDir.open``. After a refused append the log is as it was.

    Parameters
    ----------
    name
        The limit, by the name of the argument that sets it, as ``max_batch_bytes``.
    limit
        Its value.
    seen
        What would have been needed; for growing things, what was reached when reading stopped.
    """

    name: str | None
    limit: int | None
    seen: int | None

    _fields = ("name", "limit", "seen", *OffsetLogError._fields)


class DecompressionLimitError(LimitExceededError):
    """A batch decompresses to more than ``max_decompressed_bytes``: a decompression bomb, or a limit set too low."""


class OffsetOutOfRangeError(OffsetLogError, LookupError):
    """An offset that the log does not hold.

    Parameters
    ----------
    requested
        The offset asked for.
    log_start_offset
        Lowest offset that can be read, inclusive.
    log_end_offset
        Offset that the next record will get, exclusive.
    """

    requested: int | None
    log_start_offset: int | None
    log_end_offset: int | None

    _fields = ("requested", "log_start_offset", "log_end_offset", *OffsetLogError._fields)


class LogDirError(OffsetLogError):
    """A folder or a file name that is not Kafka's, a partition that is not there, or checkpoints that contradict the log."""


class ClusterError(LogDirError):
    """A change that would go against the cluster that the log dir belongs to, or for which it is not known what the cluster wants.

    Nothing was changed. The text says why, and what to pass: see the page «Topics», «In a broker's log dir».
    """


class ConfigError(OffsetLogError, ValueError):
    """An argument or option with a value that cannot be used.

    Parameters
    ----------
    key
        Name of the argument or option.
    value
        The value given, as text cut to 200 characters.
    """

    key: str | None
    value: str | None

    _fields = ("key", "value", *OffsetLogError._fields)


class ReadOnlyLogError(ConfigError, AttributeError):
    """A verb that writes was asked of a log that was opened for reading, which has none: open it with mode ``"a"``."""


class LogClosedError(OffsetLogError, ValueError):
    """A ``Log`` or ``LogDir`` was used after ``close()``. Iterators that were already running continue: they own their files."""


class RecordRejectedError(OffsetLogError, ValueError):
    """An append that is refused because of its records or its bytes, as for a wrong checksum.

    Nothing was changed, and nothing on the disk is wrong.
    """


class InvalidTimestampError(RecordRejectedError):
    """A timestamp further from now than ``message.timestamp.before.max.ms`` and ``after.max.ms`` allow, or of the wrong kind."""


class CompressionError(OffsetLogError):
    """A codec's library refused to compress a batch."""


class RecordTooLargeError(OffsetLogError, ValueError):
    """A batch larger than the setting ``max.message.bytes``, after compression."""


class RecordBatchTooLargeError(RecordTooLargeError):
    """An append larger than the setting ``segment.bytes``."""


class AppendOrderError(OffsetLogError, ValueError):
    """An append that does not follow what the log holds. Nothing was changed."""


class OffsetsOutOfOrderError(AppendOrderError):
    """A follower's batches whose offsets do not ascend."""


class UnexpectedAppendOffsetError(AppendOrderError):
    """A follower's batches that begin below the log end offset."""


class OutOfOrderSequenceError(AppendOrderError):
    """A producer's batch whose sequence does not follow its last one: batches between are missing, or it is an old duplicate."""


class InvalidTxnStateError(AppendOrderError):
    """A batch without the transactional bit while a transaction of its producer is open."""


class ProducerFencedError(AppendOrderError):
    """A producer's epoch that is behind: another producer with its id has taken over."""


class TransactionCoordinatorFencedError(ProducerFencedError):
    """A marker of a transaction coordinator that another one has replaced."""


class UnreadPartitionsError(OffsetLogError):
    """Some of many partitions could not be read. The results of the others are here: one damaged partition hides no other.

    Parameters
    ----------
    partial
        What the call would have returned, without those partitions.
    failed
        The error of each :class:`~offsetlog.TopicPartition` that could not be read.
    """

    partial: Any
    failed: dict[TopicPartition, Exception]

    _fields = ("partial", "failed", *OffsetLogError._fields)

    def __init__(
        self,
        message: str = "",
        *,
        failed: dict[TopicPartition, Exception] | None = None,
        **context: Any,  # noqa: ANN401  # as for all errors
    ) -> None:
        super().__init__(message, failed={} if failed is None else failed, **context)


class LogLockedError(OffsetLogError):
    """Somebody else writes the log: a broker, another process, or another opening in this one.

    Parameters
    ----------
    pid
        The process that holds the lock; ``None`` when that cannot be known.
    """

    pid: int | None

    _fields = ("pid", *OffsetLogError._fields)


class LogPoisonedError(OffsetLogError):
    """An earlier failure left the files in an unknown state. Reads continue; open the log again to append, which recovers it."""


class ForkedLogError(OffsetLogError):
    """A log that was opened for appending in the parent process was used in the child."""
