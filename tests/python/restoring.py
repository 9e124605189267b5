"""What tests of ``restore`` share: a broker's disks, formatted log dirs, and what stands in a file of metadata."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Sequence
from pathlib import Path

from golden import CLEAN, CLEAN_LOG_DIRS
from make_log import crc32c

import offsetlog
from offsetlog import Log, LogDir, RestoreReport

SOURCES = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]


def formatted(place: Path, *, node: int = 1) -> Path:
    """A log dir as ``kafka-storage format`` of 4.3.0 leaves it."""
    place.mkdir(parents=True)
    text = (CLEAN / "metadata-dir" / "meta.properties").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("node.id", "directory.id"))]
    directory = f"{'ABCDEFGH'[node]}bcdefghijklmnopqrstuw"
    (place / "meta.properties").write_text("\n".join([*lines, f"node.id={node}", f"directory.id={directory}", ""]))
    shutil.copy(CLEAN / "metadata-dir" / "bootstrap.checkpoint", place)
    return place


def format_for(place: Path, metadata_version: int) -> None:
    """Make a formatted log dir one of an older ``metadata.version``: a number of two bytes behind the feature's name."""
    file = place / "bootstrap.checkpoint"
    data = bytearray(file.read_bytes())
    name, position = b"metadata.version\0", 0
    while position < len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12])
        at = data.find(name, position, end)
        if at >= 0:
            data[at + len(name) - 1 : at + len(name) + 1] = metadata_version.to_bytes(2)
            data[position + 17 : position + 21] = crc32c(bytes(data[position + 21 : end])).to_bytes(4)
        position = end
    file.write_bytes(data)


def places_of(report: RestoreReport) -> dict[str, Path]:
    """Where each partition was restored to first."""
    return {f"{each.topic}-{each.partition}": Path(each.into[0].path) for each in report.partitions}


def states_of(report: RestoreReport) -> set[str]:
    """What became of the partitions."""
    return {each.state for each in report.partitions}


def metadata_values(file: Path) -> list[bytes]:
    """The values of the data records in a snapshot, read as a log."""
    folder = file.parent / "decoded-0"
    folder.mkdir()
    shutil.copy(file, folder / f"{0:020}.log")
    with Log.open(folder) as log:
        values = [record.value for record in log.scan()]
        ends = [(batch.base_offset, batch.last_offset + 1) for batch in log.batches()]
    shutil.rmtree(folder)
    assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])], "offsets are dense, header and footer among them"
    return [value for value in values if value is not None]


def metadata_of(paths: Sequence[Path]) -> offsetlog.MetadataImage:
    with LogDir.open(paths) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    return image


def uuid_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")
