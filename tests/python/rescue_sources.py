"""The kinds of directory that a rescue begins with, each a copy of what real brokers wrote, beside what is known of it from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from frames import Frame, all_frames, logs
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, OLD_LOG_DIRS, Golden
from test_no_trace import traces
from test_on_corrupt import ALL, touched

MARK = ".kafka_cleanshutdown"
# What a broker of 0.8 keeps of an index while it writes it: `segment.index.bytes`.
INDEX_BYTES = 1 << 20


class Source(NamedTuple):
    """Log dirs, and the partitions in them; of replicas one."""

    root: Path
    dirs: tuple[Path, ...]
    """Log dirs, and where there is metadata its directory."""
    partitions: tuple[Golden, ...]

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        return tuple(place for place in self.dirs if place.name != "metadata-dir")

    @property
    def names(self) -> set[str]:
        return {golden.name for golden in self.partitions}

    @property
    def open_transactions(self) -> dict[str, int]:
        """Where they begin: what a consumer got of these partitions as last stable offset, and not as end."""
        return {each.name: each.last_stable_offset for each in self.partitions if each.last_stable_offset < each.end}


class Producer(NamedTuple):
    """The last that a log says of a producer."""

    epoch: int
    last_sequence: int | None
    last_offset: int | None


def offsets(golden: Golden) -> list[int]:
    """Of every record that can be read; a broker's recovery cuts at the first damage, and what follows is known from ``damage.json``."""
    if golden.topic.startswith("g-torn-flip") and (holes := touched(golden)):
        ((first, behind),) = holes
        return [*ALL[:first], *ALL[behind:]]
    return [seen.offset for seen in golden.rows]


def end_of(golden: Golden) -> int:
    """Where the log ends by its whole batches."""
    return max([golden.end, *(offset + 1 for offset in offsets(golden)[-1:])])


def producers(headers: Iterable[Frame]) -> dict[int, Producer]:
    """From the headers of batches alone, as a broker that loads them without a snapshot: a marker of a new epoch begins anew."""
    found: dict[int, Producer] = {}
    for frame in headers:
        known = found.get(frame.producer_id)
        if frame.producer_id < 0:
            continue
        if not frame.is_control:
            assert frame.base_offset is not None
            sequence = frame.base_sequence + frame.last_offset - frame.base_offset
            found[frame.producer_id] = Producer(frame.producer_epoch, sequence, frame.last_offset)
        elif known is None or frame.producer_epoch > known.epoch:
            found[frame.producer_id] = Producer(frame.producer_epoch, None, None)
    return found


def topic_id(golden: Golden) -> str | None:
    """What ``partition.metadata`` says."""
    file = golden.directory / "partition.metadata"
    return file.read_text().rpartition("topic_id: ")[2].strip() if file.exists() else None


def property_of(log_dir: Path, *names: str) -> str | None:
    """What ``meta.properties`` says, under the first of these names that it has."""
    file = log_dir / "meta.properties"
    lines = file.read_text().splitlines() if file.exists() else []
    told = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    return next((told[name] for name in names if name in told), None)


@contextmanager
def unchanged(source: Source) -> Iterator[None]:
    """No name, byte, size, time of change, inode or right of the source is other behind it."""
    before = traces(source.root)
    yield
    assert traces(source.root) == before


def _found(root: Path, dirs: Sequence[Path], expected: str) -> Source:
    known = {path.name.removesuffix(".jsonl.gz") for path in (DATA / "expected" / expected).glob("*.jsonl.gz")}
    partitions: dict[str, Golden] = {}
    for directory in (path for place in dirs for path in sorted(place.iterdir()) if path.name in known):
        partitions.setdefault(directory.name, Golden(DATA / "expected" / expected, directory))
    assert len(partitions) >= 4
    return Source(root, tuple(dirs), tuple(partitions.values()))


def _of_4_3(kind: str) -> Callable[[Path], Source]:
    def make(root: Path) -> Source:
        shutil.copytree(DATA / "kafka-4.3.0" / kind, root)
        places = [root / name for name in ("log-dir-1", "log-dir-2", "metadata-dir")]
        return _found(root, [place for place in places if place.is_dir()], f"kafka-4.3.0-{kind}")

    return make


def clean_killed(root: Path) -> Source:
    """The clean log dirs as they are when the broker is killed in the middle of an append: no mark, half a batch behind each log."""
    for log_dir in CLEAN_LOG_DIRS:
        shutil.copytree(log_dir, root / log_dir.name)
        (root / log_dir.name / MARK).unlink()
    shutil.copytree(CLEAN / "metadata-dir", root / "metadata-dir")
    source = _found(root, [root / name for name in ("log-dir-1", "log-dir-2", "metadata-dir")], "kafka-4.3.0-clean")
    _half_a_batch(source)
    return source


def _half_a_batch(source: Source) -> None:
    """Append to each log that has any the beginning of a batch, which would go on where the log ends."""
    for golden in source.partitions:
        if headers := all_frames(golden.directory):
            first = headers[0]
            data = (golden.directory / f"{first.segment:020}.log").read_bytes()
            with logs(golden.directory)[-1].open("ab") as file:
                file.write(golden.end.to_bytes(8) + data[first.position + 8 : first.position + first.size_bytes - 5])


def of_2_8(root: Path) -> Source:
    """Three brokers with replicas of each other."""
    for log_dir in OLD_LOG_DIRS:
        shutil.copytree(log_dir, root / log_dir.name)
    return _found(root, [root / log_dir.name for log_dir in OLD_LOG_DIRS], "kafka-2.8.2")


class Version(NamedTuple):
    """What a broker of that version wrote."""

    magics: tuple[int, ...]
    files: tuple[str, ...] = (".log", ".index")
    """Endings in a partition's directory."""
    checkpoints: tuple[str, ...] = ("recovery-point", "replication", "cleaner")
    properties: bool = True
    """Whether there is a ``meta.properties``, with ``broker.id`` alone: ``cluster.id`` came with 2.4."""
    without: tuple[str, ...] = ("zstd", "first")
    """Codecs, and kinds of topics, that it did not have; and the topic of which not every partition is on this broker."""


VERSIONS = {
    "0.8.0": Version((0,), checkpoints=("replication",), properties=False, without=("lz4", "zstd", "first", "compact")),
    "0.8.2": Version((0,), properties=False),
    "0.9.0": Version((0,)),
    "0.10.0": Version((0, 1)),
    "0.10.2": Version((0, 1), (".log", ".index", ".timeindex")),
    "0.11.0": Version(
        (0, 1, 2),
        (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"),
        ("recovery-point", "replication", "cleaner", "log-start"),
    ),
}


def aged(version: str, root: Path) -> Source:
    """2.8.2's logs in the old formats, with the files that a broker of this version has beside them and no others."""
    had = VERSIONS[version]
    old, place = OLD_LOG_DIRS[0], root / "log-dir-1"
    place.mkdir(parents=True)
    for directory in sorted(path for path in old.iterdir() if path.is_dir()):
        magics = {frame.magic for frame in all_frames(directory)}
        if magics <= set(had.magics) and not any(word in directory.name for word in had.without):
            (place / directory.name).mkdir()
            for file in directory.iterdir():
                if file.name.endswith(had.files):
                    shutil.copy2(file, place / directory.name)
    for name in had.checkpoints:
        head, _, *lines = (old / f"{name}-offset-checkpoint").read_text().splitlines()
        kept = [line for line in lines if (place / "-".join(line.split()[:2])).is_dir()]
        (place / f"{name}-offset-checkpoint").write_text("\n".join([head, str(len(kept)), *kept, ""]))
    if had.properties:
        (place / "meta.properties").write_text("#\n#Thu Nov 26 09:00:00 UTC 2015\nversion=0\nbroker.id=1\n")
    (place / MARK).touch()
    return _found(root, [place], "kafka-2.8.2")


def killed_0_8(root: Path) -> Source:
    """Killed: no mark, indexes as large as they were made, and half a message behind each log."""
    source = aged("0.8.2", root)
    (source.dirs[0] / MARK).unlink()
    for golden in source.partitions:
        with max(golden.directory.glob("*.index")).open("r+b") as file:
            file.truncate(INDEX_BYTES)
    _half_a_batch(source)
    return source


KINDS: dict[str, Callable[[Path], Source]] = {
    **{kind: _of_4_3(kind) for kind in ("clean", "unclean", "live", "torn")},
    "killed": clean_killed,
    "2.8.2": of_2_8,
    **{version: partial(aged, version) for version in VERSIONS},
    "0.8.2 killed": killed_0_8,
}
