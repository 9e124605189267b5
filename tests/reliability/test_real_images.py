"""Row 24 again, with logs that real crashes left: killed processes and lost power. Kafka's own storage layer opens what we recovered."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import test_crash_images as images
from disks import copy_image, fresh_image, mounted_image, need_disk, needed
from driver import Driver, command, keeping_evidence, listen
from kafka_log import JAR, Oracle
from promises import History, check_all
from rows import Row, row
from test_power_loss import Cycles
from tracing import need_tracing, traced

IMAGES_OF_A_KIND = 6
SCRIPT = {"appends": 12, "flush_every": 3, "roll_every": 5, "truncate_every": 4, "internal.segment.bytes": 1500}


def killed(folder: Path, part: Row) -> Iterator[tuple[Path, History]]:
    """Logs of processes that were killed before one of their last appends."""
    with needed(part):
        need_tracing()
    for nth in range(SCRIPT["appends"] - IMAGES_OF_A_KIND, SCRIPT["appends"]):
        image, history = folder / f"killed{nth}", History()
        arguments = command(image / images.PARTITION, 1, **SCRIPT)
        with Driver(traced(arguments, f"pwrite64:signal=KILL:when={nth + 1}")) as driver:
            listen(history, driver.lines())
        yield image, history


def unpowered(kind: str, folder: Path, part: Row) -> Iterator[tuple[Path, History]]:
    """Logs of a file system that lost its power, as its next mount shows them."""
    with needed(part):
        need_disk(kind)
    for slot in range(IMAGES_OF_A_KIND):
        cycles = Cycles(kind, "", part)
        cycles.name = "orders-0"
        copy_image(fresh_image(kind), cycles.image)
        with mounted_image(kind, cycles.image) as mounted:
            cycles.lose_power(mounted)
        with mounted_image(kind, cycles.kept) as mounted:
            image = folder / f"{kind}{slot}"
            if (mounted / cycles.name).exists():
                shutil.copytree(mounted / cycles.name, image / images.PARTITION)
        yield image, cycles.history


def test_kafka_opens_what_really_crashed(tmp_path: Path) -> None:
    """The same end, the same batches, and no byte changed."""
    with row(24, "real crashes in Kafka", "images", 3 * IMAGES_OF_A_KIND) as part, Oracle(tmp_path / "stderr.txt", JAR) as oracle:
        made = [*killed(tmp_path, part), *unpowered("ext4", tmp_path, part), *unpowered("xfs", tmp_path, part)]
        for image, history in made:
            partition = image / images.PARTITION
            with keeping_evidence(partition, f"image-{image.name}-{part.seed}", history):
                check_all(partition, history, power=not image.name.startswith("killed"))
            wanted = images.batches(partition)
            assert [(batch.base, batch.last) for batch in wanted] == [(batch.base, batch.last) for batch in history.acked]
            before = images.segments(partition)
            (start,) = history.starts
            said = {"segment_bytes": 1 << 20, "index_bytes": 10 << 20, "index_interval": 500, "start": start}
            assert images.kafkas(oracle, image, said) == (start, history.end, wanted), image.name
            assert images.segments(partition) == before
            part.count()
