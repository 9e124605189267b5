"""Plain values that logs answer with: named tuples, so they compare, unpack and pickle as tuples do."""

from __future__ import annotations

from typing import NamedTuple

from offsetlog._notebook import report_table

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "BatchInfo",
    "Compaction",
    "ConvertReport",
    "Cut",
    "FetchResult",
    "Header",
    "IndexEntry",
    "Location",
    "LogDirMaintainReport",
    "MaintainReport",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "RecoveryReport",
    "RemovedSegment",
    "Segment",
    "Split",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A topic's name and a partition's number. Wherever offsetlog takes one, any pair will do."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition, from 0."""


class RecordMetadata(NamedTuple):
    """Where a record was appended."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition that it was routed to."""
    offset: int
    """Offset that it got there."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition, as other calls take them."""
        return TopicPartition(self.topic, self.partition)


class OffsetAndTimestamp(NamedTuple):
    """Answer to a look-up by time."""

    offset: int
    """Offset of the first record whose timestamp is at or after the time asked for."""
    timestamp: int
    """That record's timestamp, ms since 1970."""
    leader_epoch: int | None
    """Leader epoch under which it was written; ``None`` for batches of magic 0 and 1, which carry none."""


class Header(NamedTuple):
    """One header of a record. ``Record.headers`` holds plain pairs of the same shape; ``Header(*pair)`` names them."""

    key: str
    """Name; bytes that are not UTF-8 appear as lone surrogates (``surrogateescape``)."""
    value: bytes | None
    """Value, or ``None``."""


class Segment(NamedTuple):
    """One segment of a log: a ``.log`` file with the indexes beside it."""

    base_offset: int
    """First offset that the segment may hold: its file name."""
    path: str
    """Path of the ``.log`` file."""
    size_bytes: int
    """Size of the ``.log`` file."""
    index_entries: int
    """Entries in use in the offset index; 0 when it is missing or empty."""
    is_active: bool
    """Whether it is the last one, to which a broker appends."""


class OldRecord(NamedTuple):
    """A message of Kafka 0.7, which has neither key nor timestamp."""

    offset: int
    """Position of its entry in the partition, in bytes; the messages of a compressed set share one."""
    next_offset: int
    """Where a consumer that has it continues: after the entry; within a compressed set, at the set's beginning again."""
    value: bytes
    """The payload."""


class Split(NamedTuple):
    """A range of offsets of one partition: what one task reads. Plain values, so it can be sent anywhere that sees the files."""

    path: str
    """Partition directory."""
    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    start: int
    """First offset, inclusive."""
    stop: int
    """End, exclusive."""
    size_bytes: int
    """Bytes on disk from the batch that holds `start` to the batch that holds ``stop - 1``, both included."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction that overlaps fetched records."""

    producer_id: int
    """Producer whose records are to be left out..."""
    first_offset: int
    """...from this offset on, up to its abort marker."""


class FetchResult(NamedTuple):
    """What a broker's fetch would answer: encoded batches and the offsets around them."""

    records: bytes
    """Whole batches exactly as on disk. The first one may begin below the offset asked for."""
    high_watermark: int
    """End of what replication has confirmed, exclusive."""
    last_stable_offset: int
    """End of what ``read_committed`` may see, exclusive; -1 where damage hides it from a fetch that does not need it."""
    log_start_offset: int
    """Lowest offset that can be read, inclusive."""
    aborted: tuple[AbortedTransaction, ...]
    """Aborted transactions within `records`; empty for ``read_uncommitted``."""


class BatchInfo(NamedTuple):
    """The header of one batch, and its position."""

    base_offset: int
    """First offset, inclusive. In magic 0 and 1 of a single message: its offset."""
    last_offset: int
    """Last offset, inclusive."""
    position: int
    """Byte place in the segment's ``.log`` file."""
    size_bytes: int
    """Size on disk, header included."""
    magic: int
    """Format version: 0, 1 or 2."""
    codec: str
    """``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``."""
    timestamp_type: int
    """0 create time, 1 log append time, -1 none (magic 0)."""
    base_timestamp: int
    """Timestamp from which the records' deltas count, ms; -1 in magic 0."""
    max_timestamp: int
    """Largest timestamp as the header says, ms; -1 in magic 0."""
    leader_epoch: int
    """Leader epoch; -1 in magic 0 and 1."""
    producer_id: int
    """Producer id; -1 when the producer was neither idempotent nor transactional."""
    producer_epoch: int
    """Producer epoch; -1 as above."""
    base_sequence: int
    """Sequence number of the first record; -1 as above."""
    record_count: int | None
    """Records as the header says; ``None`` in compressed magic 0 and 1, whose headers do not say."""
    is_transactional: bool
    """Whether it belongs to a transaction."""
    is_control: bool
    """Whether it holds a commit or abort marker instead of data."""
    segment: int
    """Base offset of the segment that holds it."""


class IndexEntry(NamedTuple):
    """One entry of an offset index."""

    slot: int
    """Its number in the file, from 0."""
    offset: int
    """Offset, already added to the segment's base offset."""
    position: int
    """Byte place of a batch in the ``.log`` file."""


class Location(NamedTuple):
    """How one look-up went: segment, index entry, scan. ``str(location)`` tells it step by step."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: int
    """The offset asked for."""
    segment: int
    """Base offset of the segment: the largest one at or below `offset`."""
    segment_path: str
    """Path of its ``.log`` file."""
    segment_slot: int
    """Its number among the segments, from 0."""
    segment_count: int
    """How many segments there are."""
    index_state: str
    """What the offset index was worth: used, missing, empty, or why it was not believed."""
    entry: IndexEntry | None
    """The entry from which the scan began; ``None`` when it began at the segment's first byte."""
    index_entries: int
    """Entries in use in the index."""
    scanned_batches: int
    """Batch headers read from there on, the answer included."""
    scanned_bytes: int
    """Bytes of the batches whose headers were read, the answer's included."""
    batch: BatchInfo | None
    """The batch that covers `offset`; ``None`` when compaction removed it."""
    text: str
    """The steps as text: what ``str()`` returns."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        found = "no batch" if self.batch is None else f"batch {self.batch.base_offset} at {self.batch.position}"
        return f"Location({self.topic}-{self.partition} offset {self.offset}: segment {self.segment}, {found})"


class AppendInfo(NamedTuple):
    """What an append did."""

    base_offset: int
    """Offset of the first record; -1 where a follower's append was left out whole."""
    last_offset: int
    """Offset of the last record, inclusive."""
    max_timestamp: int
    """Greatest timestamp of the batches, ms since 1970; -1 for none."""
    log_append_time: int
    """The append time under ``message.timestamp.type=LogAppendTime``, else -1; of a duplicate the first append's timestamp."""
    duplicate: bool
    """The producer had sent the batch before: nothing was appended, and the offsets are those of the first append."""
    left_out_bytes: int = 0
    """Bytes that were given and not appended: an unfinished batch at the end, or batches of a newer leader than the follower knows."""


class Cut(NamedTuple):
    """Bytes that recovery took out of a log."""

    path: str
    """The file that they were cut from."""
    position: int
    """Byte at which the cut begins; the file ends there now."""
    bytes: int
    """How many."""
    reason: str
    """What is wrong with them."""
    had_batches: bool
    """Whether whole batches were among them."""
    kept: str | None
    """The file that keeps them; ``None`` for zeros, which are not kept."""
    records: int = 0
    """Records in the whole batches among them, control records too: they can be read from what is kept."""
    offsets: tuple[int, int] | None = None
    """The first and the last offset of those batches, both inclusive; ``None`` where there is none."""


class RecoveryReport(NamedTuple):
    """What was found and done, or would be done, when a log was opened for appending or recovered."""

    cut: tuple[Cut, ...]
    """Bytes cut off, and segments taken out."""
    kept: tuple[str, ...]
    """Files that keep what was cut."""
    rebuilt: tuple[tuple[str, str], ...]
    """Files made from the batches again, each with the reason."""
    log_end_offset: int
    """Offset that the next record gets."""
    log_start_offset: int = 0
    """Lowest offset that can be read."""
    clean: bool = False
    """Whether the last writer closed the log."""
    dry_run: bool = False
    """Whether nothing was changed."""
    tidied: tuple[str, ...] = ()
    """Leftovers removed or put in place, in words."""
    warnings: tuple[str, ...] = ()
    """What is odd and was left as it is."""
    segments_read: int = 0
    """Segments that were read whole."""
    bytes_read: int = 0
    """Their bytes."""

    @property
    def records_cut(self) -> int:
        """Records that this call removed from the log and that could be read, control records too: they can be read from what is kept.

        What earlier calls removed is told in ``warnings``.
        """
        return sum(cut.records for cut in self.cut)

    @property
    def offsets_cut(self) -> tuple[int, int] | None:
        """The first and the last offset of their batches, both inclusive; ``None`` where no whole batch was cut."""
        offsets = [cut.offsets for cut in self.cut if cut.offsets is not None]
        return (min(first for first, _ in offsets), max(last for _, last in offsets)) if offsets else None

    def _repr_html_(self) -> str:
        return report_table(self)


class RemovedSegment(NamedTuple):
    """A segment that retention removed, or would remove."""

    base_offset: int
    """Its base offset."""
    end_offset: int
    """Offset behind it: where the next segment begins, or the log ends."""
    size_bytes: int
    """Bytes of its ``.log``."""
    reason: str
    """What decided: ``"log start offset"``, ``"retention.bytes"`` or ``"retention.ms"``."""


class Compaction(NamedTuple):
    """One pass of the cleaner."""

    first_dirty_offset: int
    """First offset that was not compacted before."""
    end_offset: int
    """First offset that is not compacted now: the pass ended there."""
    first_uncleanable_offset: int
    """First offset that may not be compacted yet."""
    dirty_ratio: float
    """Share of bytes that were not compacted before."""
    keys: int = 0
    """Different keys from `first_dirty_offset` to `end_offset`."""
    segments_before: int = 0
    """Segments that were read."""
    segments_after: int = 0
    """Segments that took their place."""
    bytes_before: int = 0
    """Bytes that were read."""
    bytes_after: int = 0
    """Bytes that took their place."""
    records_before: int = 0
    """Records that were read."""
    records_after: int = 0
    """Records that are left of them."""


class LogDirMaintainReport(NamedTuple):
    """What :meth:`LogDir.maintain <offsetlog.LogDir.maintain>` did, or would do."""

    partitions: dict[TopicPartition, MaintainReport]
    """The partitions of which anything went."""
    failed: dict[TopicPartition, str]
    """Partitions that could not be kept, and why; the others were."""
    busy: tuple[TopicPartition, ...]
    """Partitions that another process writes: its own upkeep to do."""
    removed: tuple[str, ...]
    """Directories of deleted topics that are gone now."""
    looked_at: int
    """How many partitions were looked at."""
    dry_run: bool = False
    """Whether nothing was changed."""
    internal: tuple[TopicPartition, ...] = ()
    """Partitions of topics that brokers keep for themselves, which were left alone."""
    metadata_timestamp: int | None = None
    """In a broker's log dir: when the newest record of the cluster's metadata was written, in ms since 1970."""

    def _repr_html_(self) -> str:
        return report_table(self)


class MaintainReport(NamedTuple):
    """What :meth:`WritableLog.maintain <offsetlog.WritableLog.maintain>` did, or would do."""

    removed: tuple[RemovedSegment, ...]
    """Segments that went, oldest first."""
    compactions: tuple[Compaction, ...]
    """Passes of the cleaner."""
    deleted: tuple[str, ...]
    """Files renamed ``.deleted`` that are gone now."""
    log_start_offset: int
    """Lowest offset that can be read."""
    log_end_offset: int
    """Offset that the next record gets."""
    dry_run: bool = False
    """Whether nothing was changed; all else is what the real run would have reported."""

    def _repr_html_(self) -> str:
        return report_table(self)


class ConvertReport(NamedTuple):
    """What :func:`offsetlog.convert` made."""

    path: str
    """The new partition directory."""
    records: int
    """Records that can be read in it, control records aside."""
    batches: int
    """Batches in it."""
    batches_kept: int
    """Those of them that were moved as they were."""
    bytes_read: int
    """Bytes of the old segments."""
    bytes_written: int
    """Bytes of the new segments."""
    dropped_bytes: int = 0
    """Bytes of an unfinished write at the end of the old log, which were left out."""
    dropped_reason: str | None = None
    """Why they are no batch; ``None`` where there are none."""
    log_start_offset: int = 0
    """Lowest offset that can be read."""
    log_end_offset: int = 0
    """Offset that the next record gets."""
    missing_offsets: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets, start and exclusive stop, whose records are in neither directory, although the old one's log dir promises
    them: before its first segment (with tiered storage they are in the remote store), or from its end to the high watermark; and
    between two segments, where the log shows that it was never compacted."""
    warnings: tuple[str, ...] = ()
    """What is odd about the old log, as :meth:`Log.open` logs it, and which of its records are missing."""

    def _repr_html_(self) -> str:
        return report_table(self)
