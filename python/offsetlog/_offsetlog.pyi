"""The compiled half of offsetlog. Private: only the modules beside it use it, but :class:`Record` and :class:`Writer` are public.

A file over 600 lines: a compiled module has one stub.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, final

from offsetlog._adopt import AdoptedPartition
from offsetlog._append_arguments import Buffer, Headers
from offsetlog._cluster import TopicSettings
from offsetlog._config import Setting
from offsetlog._damage import DamageReport, ScanReport
from offsetlog._groups import Group, ResetFile
from offsetlog._held_records import EndedTransaction, PartitionProducer, WhyAnswer
from offsetlog._identity import DirectoryIdentity
from offsetlog._metadata import MetadataImage, Stray
from offsetlog._mirror import MirrorEvent, MirrorOptions, MirrorProgress, MirrorReport
from offsetlog._options import (
    AppendOptions,
    LogDirOptions,
    MaintainOptions,
    MarkerOptions,
    OpenOptions,
    RestoreOptions,
    When,
    WriteOptions,
)
from offsetlog._restore import RestoreReport
from offsetlog._salvage import SalvageReport
from offsetlog._server import ServerOptions
from offsetlog._transactions import Transaction
from offsetlog._values import (
    AppendInfo,
    BatchInfo,
    Compaction,
    ConvertReport,
    FetchResult,
    Location,
    LogDirMaintainReport,
    MaintainReport,
    OffsetAndTimestamp,
    OldRecord,
    RecordMetadata,
    RecoveryReport,
    Segment,
    Split,
    TopicPartition,
)

__all__ = [
    "COLUMNS",
    "ROWS",
    "Appender",
    "BatchIterator",
    "Batches",
    "Follow",
    "Later",
    "Log",
    "LogDir",
    "LogDirAppender",
    "OldLog",
    "OldMessages",
    "Record",
    "RecordIterator",
    "Scan",
    "Server",
    "Writer",
    "__version__",
    "adopt",
    "append_arrow",
    "arrow_digest",
    "arrow_schema",
    "broker_settings",
    "close_inherited_locks",
    "config_check",
    "convert",
    "end_transaction",
    "end_writers",
    "folder_kind",
    "given_path",
    "identity",
    "metadata_as_commands",
    "metadata_as_yaml",
    "mirror",
    "moving_note",
    "partition_for",
    "partitions_for",
    "process_id",
    "producers",
    "recover",
    "restore",
    "run_cli",
    "salvage",
    "settings",
    "verify",
    "why",
    "zookeeper_node",
]

__version__: Final[str]

COLUMNS: Final[tuple[str, ...]]
"""Names of all columns of an Arrow stream, the default eight first."""

ROWS: Final[dict[str, tuple[str, ...]]]
"""Module and name of the named tuples that the compiled module makes, and the fields that it gives them."""

@final
class Record:
    """One record of a log. Frozen, hashable, picklable; two records are equal when all their fields are.

    Scans and look-ups make them; the constructor is there for tests of code that takes records.

    Parameters
    ----------
    topic
        Name of the topic.
    partition
        Number of the partition.
    offset
        Offset in the partition.
    timestamp
        ms since 1970; -1 when there is none.
    timestamp_type
        0 create time, 1 log append time, -1 none; by default 0 when there is a timestamp.
    key, value
        Bytes, or ``None``. A record whose value is ``None`` is a tombstone.
    headers
        Pairs of a name and bytes or ``None``.
    leader_epoch, producer_id, producer_epoch, sequence
        -1 for none.
    is_transactional, is_control
        As the batch that holds it says.

    Examples
    --------
    >>> record = Record("orders", 0, 5, timestamp=1_700_000_000_000, key=b"order-7", value=b"paid")
    >>> record
    Record(orders-0 offset 5, timestamp 1700000000000, key=b'order-7', value=b'paid')
    >>> record.datetime.isoformat()
    '2023-11-14T22:13:20+00:00'
    """

    def __new__(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int | None = None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> Record: ...
    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def partition(self) -> int:
        """Number of the partition."""
    @property
    def offset(self) -> int:
        """Offset in the partition."""
    @property
    def timestamp(self) -> int:
        """Timestamp in ms since 1970; -1 when there is none (magic 0)."""
    @property
    def timestamp_type(self) -> int:
        """0 create time (the producer's), 1 log append time (the broker's), -1 none. Numbers as in Spark and on the wire."""
    @property
    def datetime(self) -> dt.datetime | None:
        """The timestamp as an aware UTC datetime; ``None`` when there is none, and outside the years 1 to 9999."""
    @property
    def key(self) -> bytes | None:
        """The key; ``None`` is not the same as ``b""``."""
    @property
    def value(self) -> bytes | None:
        """The value; ``None`` is a tombstone."""
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Names and values in order, repeats kept. Decoded at first use; name bytes that are not UTF-8 become lone surrogates."""
    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader that appended it; -1 in magic 0 and 1."""
    @property
    def producer_id(self) -> int:
        """Producer id; -1 when the producer was neither idempotent nor transactional."""
    @property
    def producer_epoch(self) -> int:
        """Producer epoch; -1 as above."""
    @property
    def sequence(self) -> int:
        """Sequence number of this record; -1 as above."""
    @property
    def is_transactional(self) -> bool:
        """Whether it was written within a transaction."""
    @property
    def is_control(self) -> bool:
        """Whether it is a commit or abort marker. Scans and look-ups give none."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int:
        """Hash of topic, partition and offset."""
    def __reduce__(self) -> tuple[type[Record], tuple[Any, ...]]: ...

@final
class Log:
    """A partition."""

    @staticmethod
    def open(path: str, options: OpenOptions) -> Log: ...
    @property
    def path(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def warnings(self) -> list[str]: ...
    def refresh(self) -> None: ...
    def topic_id(self) -> str | None: ...
    def log_start_offset(self) -> int: ...
    def log_end_offset(self) -> int: ...
    def high_watermark(self) -> int: ...
    def last_stable_offset(self) -> int: ...
    def leader_epoch(self) -> int | None: ...
    def size_bytes(self) -> int: ...
    def segments(self) -> list[Segment]: ...
    def get(self, offset: int) -> Record | None: ...
    def locate(self, offset: int) -> Location: ...
    def batches(self, start: int | None, stop: int | None) -> BatchIterator: ...
    def fetch(self, offset: int, *, max_bytes: int, isolation_level: str) -> FetchResult: ...
    def offset_for_timestamp(self, timestamp: int, isolation_level: str) -> OffsetAndTimestamp | None: ...
    def splits(self, start: int | None, stop: int | None, *, max_bytes: int) -> list[Split]: ...

@final
class Appender:
    """A partition that is open for appending."""

    @staticmethod
    def open(path: str, options: OpenOptions, write: WriteOptions) -> Appender: ...
    def log(self) -> Log: ...
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        timestamp: When | None,
        leader_epoch: int | None,
        flush: bool,
    ) -> int | None: ...
    def writer(self, *, batch_bytes: int, linger_ms: int, compression: str | None, leader_epoch: int | None) -> Writer: ...
    def append_records(
        self,
        records: Iterable[object],
        *,
        compression: str | None,
        leader_epoch: int | None,
        flush: bool,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
    ) -> AppendInfo: ...
    def append_batches(self, data: bytes, *, leader_epoch: int | None, origin: str, flush: bool) -> AppendInfo: ...
    def append_as_follower(self, data: bytes, *, leader_epoch: int, flush: bool) -> AppendInfo: ...
    def append_log(self, source: Log, options: AppendOptions, *, start: int | None, keep_offsets: bool) -> AppendInfo: ...
    def move_log(self, source: str, batches: int, leader_epoch: int | None) -> AppendInfo | None: ...
    def append_marker(self, marker: MarkerOptions, options: AppendOptions) -> AppendInfo: ...
    def flush(self) -> None: ...
    def roll(self) -> int: ...
    def truncate_to(self, offset: int) -> bool: ...
    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None) -> None: ...
    def delete_records_before(self, offset: int) -> bool: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None: ...
    def recovery_point(self) -> int: ...
    def config(self) -> list[tuple[str, str]]: ...
    def set_config(self, pairs: Sequence[tuple[str, str]]) -> None: ...
    def maintain(self, options: MaintainOptions) -> MaintainReport: ...
    def compact(self, *, first_dirty: int | None, map_bytes: int | None) -> Compaction: ...
    def recovery_report(self) -> RecoveryReport: ...
    def is_closed(self) -> bool: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class Server:
    def __new__(cls, paths: Sequence[str], options: OpenOptions, server: ServerOptions) -> Self: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def metrics_address(self) -> str | None: ...
    @property
    def running(self) -> bool: ...
    def connections(self) -> int: ...
    def metrics(self) -> str: ...
    def events(self) -> list[tuple[str, str, str | None, str]]: ...
    def stop(self) -> None: ...

@final
class Writer:
    """Many small appends, gathered into batches. Made by :meth:`WritableLog.writer`; safe to use from several threads.

    A record counts as appended when its batch is: at the latest after :meth:`flush`, or when the writer is closed, or its log, or the
    log dir of that. Closing a log raises where it could not append what waits, and a note says how many records that is. A writer that
    is dropped while records wait is a ``ResourceWarning`` with the log's path and their number, and a warning in the logger
    ``offsetlog``; they are appended in the background, and an error of that goes to the logger only. The end of the program waits for
    that, and appends what waits in other writers; Ctrl-C ends the wait for one writer, and the logger says so. The offsets come with
    :meth:`flush`.
    """

    def append(self, value: Buffer | None, *, key: Buffer | None = None, headers: Headers = (), timestamp: When | None = None) -> None:
        """Add a record to the batch, which is appended when it is full or has waited long enough.

        Raises
        ------
        OSError, InvalidTimestampError, RecordTooLargeError
            As :meth:`WritableLog.append`; also for an earlier batch, which the timer appended, or this call to make room. The error
            then has a note that the record of this call was not taken. The records of a batch that was refused are not in the log;
            ``appended`` is true where they are, and making them durable failed.
        Exception
            What a ``clock=`` raised, with a note that says whether the record of this call was taken and waits.
        """

    def flush(self) -> AppendInfo | None:
        """Append what waits, and return what the last append did; ``None`` before the first."""

    def close(self) -> None:
        """Append what waits and end the writer. Closing twice is fine."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...

def close_inherited_locks() -> None: ...
def end_writers(*, stay_open: bool) -> None: ...
def moving_note(source: str) -> list[tuple[int, int, int]] | None: ...
def process_id() -> int: ...
def given_path(path: str) -> str: ...
def folder_kind(path: str) -> Literal["partition", "log_dir", "around_log_dirs", "zookeeper", "other"]: ...
def metadata_as_commands(
    paths: Sequence[str],
    options: OpenOptions,
    *,
    topics: Sequence[str],
    bootstrap_server: str,
    replica_assignment: bool,
    show_secrets: bool,
    progress: Callable[[int, int, str], object] | None,
) -> tuple[str, list[str], Exception | None]: ...
def metadata_as_yaml(
    paths: Sequence[str],
    options: OpenOptions,
    *,
    topics: Sequence[str],
    strimzi_cluster: str,
    show_secrets: bool,
    progress: Callable[[int, int, str], object] | None,
) -> tuple[str, list[str], Exception | None]: ...
def zookeeper_node(
    folder: str,
    node: str,
    options: OpenOptions,
    *,
    show_secrets: bool,
    progress: Callable[[int, int, str], object] | None,
) -> bytes | tuple[str, list[str]]: ...
def adopt(
    directories: Sequence[str],
    options: OpenOptions,
    *,
    log_dirs: Sequence[str],
    metadata: str | None,
    broker: str | None,
    topic: str | None,
    topic_id: str | None,
    set_aside: bool,
    single_replica: bool,
    dry_run: bool,
    progress: Callable[[int, int, str], object] | None,
) -> list[AdoptedPartition]: ...
def identity(
    paths: Sequence[str], options: OpenOptions, *, progress: Callable[[int, int, str], object] | None
) -> tuple[list[DirectoryIdentity], list[str], Exception | None]: ...
def verify(
    paths: Sequence[str], options: OpenOptions, *, progress: Callable[[int], object] | None
) -> tuple[DamageReport, str | None]: ...
def recover(
    path: str, options: OpenOptions, *, from_offset: int | None, dry_run: bool, progress: Callable[[int], object] | None
) -> RecoveryReport: ...
def convert(
    old: str,
    new: str,
    options: OpenOptions,
    *,
    compression: str | None,
    config: Sequence[tuple[str, str]] | None,
    progress: Callable[[int, int], object] | None,
) -> ConvertReport: ...
def producers(
    log_dir: LogDir, *, topics: Sequence[str], open_only: bool, progress: Callable[[int, int, str], object] | None
) -> tuple[list[PartitionProducer], list[str], dict[TopicPartition, Exception]]: ...
def why(
    log_dir: LogDir,
    *,
    topics: Sequence[str],
    broker: str | None,
    metadata: str | None,
    now: int | None,
    progress: Callable[[int, int, str], object] | None,
) -> tuple[list[WhyAnswer], list[str], dict[TopicPartition, Exception]]: ...
def end_transaction(
    paths: Sequence[str],
    topic: str,
    partition: int,
    producer_id: int,
    options: OpenOptions,
    *,
    commit: bool | None,
    without_state: bool,
    dry_run: bool,
    single_replica: bool,
    metadata: str | None,
    progress: Callable[[int, int, str], object] | None,
) -> tuple[EndedTransaction, list[str]]: ...
def mirror(
    into: str,
    values: MirrorOptions,
    *,
    progress: Callable[[MirrorProgress], object] | None,
    event: Callable[[MirrorEvent], object] | None,
) -> MirrorReport: ...
def restore(
    sources: Sequence[str],
    into: Sequence[str],
    options: OpenOptions,
    values: RestoreOptions,
    *,
    progress: Callable[[int, int, str], object] | None,
) -> RestoreReport: ...
def salvage(
    source: str,
    into: str,
    options: OpenOptions,
    *,
    include_truncated: bool,
    dry_run: bool,
    progress: Callable[[int, int], object] | None,
) -> SalvageReport: ...

@final
class LogDir:
    """One or several log dirs as one."""

    @staticmethod
    def open(paths: Sequence[str], options: OpenOptions) -> LogDir: ...
    def warnings(self) -> list[str]: ...
    def refresh(self) -> None: ...
    def partitions(self) -> list[TopicPartition]: ...
    def partition_count(self, topic: str) -> int: ...
    def topic_config(self, topic: str) -> list[tuple[str, str]]: ...
    def topic_settings(self, topic: str, *, broker: str | None, metadata: str | None) -> TopicSettings: ...
    def groups(
        self, *, progress: Callable[[int, int, str], object] | None
    ) -> tuple[list[Group], list[str], dict[TopicPartition, Exception]]: ...
    def groups_reset_csv(
        self, names: Sequence[str], *, progress: Callable[[int, int, str], object] | None
    ) -> tuple[ResetFile, list[str], dict[TopicPartition, Exception]]: ...
    def groups_prometheus(
        self, now: int | None, *, progress: Callable[[int, int, str], object] | None
    ) -> tuple[str, list[str], dict[TopicPartition, Exception]]: ...
    def transactions(
        self, *, progress: Callable[[int, int, str], object] | None
    ) -> tuple[list[Transaction], list[str], dict[TopicPartition, Exception]]: ...
    def metadata(
        self, *, show_secrets: bool, progress: Callable[[int, int, str], object] | None
    ) -> tuple[MetadataImage, list[str]] | None: ...
    def strays(self, *, progress: Callable[[int, int, str], object] | None) -> tuple[list[Stray] | None, list[str]] | None: ...
    def later(self, topic: str, partition: int) -> Later: ...
    def log(self, topic: str, partition: int) -> Log: ...

@final
class OldLog:
    """A partition of Kafka 0.7."""

    @staticmethod
    def open(path: str, options: OpenOptions) -> OldLog: ...
    @property
    def path(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def scan(self, start: int | None) -> OldMessages: ...

@final
class OldMessages:
    """Iterates over lists of messages, the first of one entry."""

    def __iter__(self) -> OldMessages: ...
    def __next__(self) -> list[OldRecord]: ...
    def torn_tail(self) -> str | None: ...

@final
class LogDirAppender:
    """Log dirs that are open for appending."""

    @staticmethod
    def open(paths: Sequence[str], options: OpenOptions, write: LogDirOptions) -> LogDirAppender: ...
    def log_dir(self) -> LogDir: ...
    def log(self, topic: str, partition: int, required: bool) -> Appender | None: ...
    def later(self, topic: str, partition: int, required: bool) -> Later: ...
    def create_topic(self, name: str, *, partitions: int, config: Sequence[tuple[str, str]], topic_id: str | None) -> str: ...
    def delete_topic(self, name: str) -> None: ...
    def remove_deleted(self, dry_run: bool) -> list[str]: ...
    def set_topic_config(self, name: str, config: Sequence[tuple[str, str]]) -> None: ...
    def partition_count(self, topic: str) -> int: ...
    def append(
        self,
        topic: str,
        *,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]],
        timestamp: int | None,
        partition: int | None,
        among: int | None,
        partitioner: str,
        leader_epoch: int | None,
        flush: bool,
    ) -> RecordMetadata | None: ...
    def maintain(self, options: MaintainOptions, *, topics: Sequence[str]) -> LogDirMaintainReport: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

@final
class Follow:
    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...

@final
class Later:
    """A partition of a log dir, to be opened when a scan comes to it."""

@final
class Scan:
    """What is to be read; each method begins a reading of its own."""

    def __new__(
        cls,
        ranges: Sequence[tuple[Log | Later, int | None, int | None]],
        options: dict[str, Any],
        *,
        raises_last: bool = False,
    ) -> Scan: ...
    def report(self) -> ScanReport: ...
    def records(self) -> RecordIterator: ...
    def follow(self, look_every_ms: int, at_most_ms: int | None) -> Follow: ...
    def count(self) -> int: ...
    def arrow_stream(self, requested_schema: object | None = None) -> object: ...
    def read_all(self) -> Batches: ...

@final
class RecordIterator:
    """Iterates records, for one thread at a time."""

    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...

@final
class BatchIterator:
    """Iterates batch headers, for one thread at a time."""

    def __iter__(self) -> Iterator[BatchInfo]: ...
    def __next__(self) -> BatchInfo: ...

@final
class Batches:
    """Arrow batches that were read already."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

def append_arrow(
    appender: Appender,
    data: object,
    options: AppendOptions,
    *,
    compression: str | None,
    batch_bytes: int,
    keep_offsets: bool,
) -> AppendInfo:
    """Append the rows of Arrow data."""

def arrow_digest(data: object, *, keep_offsets: bool) -> tuple[int, int]:
    """Return the number of rows of Arrow data, and the sum of their hashes modulo 2**128."""

def arrow_schema(columns: Sequence[str] | None) -> object:
    """Return the schema of a scan with these columns as a PyCapsule."""

def config_check(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return topic settings in canonical text, sorted by name, or raise :class:`~offsetlog.errors.ConfigError`."""

def broker_settings(path: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what a ``server.properties`` gives topics by default, and its log dirs."""

def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key."""

def partitions_for(keys: list[bytes | None], partitions: int) -> list[int | None]:
    """Return the partition of each key that is one."""

def settings() -> list[Setting]:
    """Return the table of topic settings."""

def run_cli(argv: Sequence[str], closed: Sequence[int] = ..., owns_signals: bool = ...) -> int:
    """Run the command line and return its exit code. Only in a process of its own are signals caught; elsewhere Ctrl-C raises."""
