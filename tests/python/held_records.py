"""Transactions without a marker, and what their coordinator stored of them; the commands that tell of both."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from make_log import batch
from writing import environment

from offsetlog import Log, LogDir

DAY = 86_400_000
NOW = 1_700_000_000_000
PRODUCER = 4000
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")


def offsetlog(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment())


def lines(*words: object, code: int = 0) -> list[dict[str, Any]]:
    """The JSON lines of a command."""
    done = offsetlog(*words, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def transactional(producer_id: int, base_sequence: int = 0, epoch: int = 0, timestamp: int = NOW) -> bytes:
    """A batch of a transaction."""
    return batch(
        0,
        [(b"k", b"v")] * 3,
        base_timestamp=timestamp,
        attributes=0x10,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
    )


def state_record(state: str, **fields: Any) -> tuple[bytes, bytes]:  # noqa: ANN401  # fields of the record
    """A record of `__transaction_state` as FORMAT.md has it: of version 0, or of version 1 for a client that raises its epoch each time."""
    given = {"partitions": (0,), "started": NOW - DAY, "epoch": 0, "client": None, "producer": PRODUCER, "previous": None, **fields}
    numbers = given["partitions"]
    key = struct.pack(">hh", 0, 3) + b"tid"
    version = 0 if given["client"] is None else 1
    value = struct.pack(">hqhib", version, given["producer"], given["epoch"], 60_000, STATES.index(state))
    times = struct.pack(">qq", NOW, given["started"])
    listed = struct.pack(f">{len(numbers)}i", *numbers)
    if version == 0:
        topics = struct.pack(">ih3si", 1, 3, b"top", len(numbers)) + listed if numbers else struct.pack(">i", 0)
        return key, value + topics + times
    topics = b"\2\4top" + bytes([len(numbers) + 1]) + listed + b"\0" if numbers else b"\0"
    tags = [b"\0\x08" + struct.pack(">q", given["previous"])] if given["previous"] is not None else []
    tags.append(b"\2\2" + struct.pack(">h", given["client"]))
    return key, value + topics + times + bytes([len(tags)]) + b"".join(tags)


def made(root: Path) -> Path:
    """A log dir of a transaction without a marker, whose coordinator said nothing yet."""
    place = root / "logs"
    with LogDir.open(place, "a") as logs:
        logs.create_topic("__transaction_state", 1)
        logs.create_topic("top", 1)
        logs.log("top", 0).append_batches(transactional(PRODUCER))
    return place


def decide(
    place: Path,
    state: str,
    prepared: tuple[int, ...] | None = None,
    ongoing: int | None = None,
    leader_epoch: int | None = None,
    **fields: Any,  # noqa: ANN401  # fields of the record
) -> None:
    """Let the coordinator say that; of a complete transaction, with the record before it that named its partitions.

    `ongoing` is the epoch of the record that said that it began, if compaction has not removed it.
    """
    with Log.open(place / "__transaction_state-0", "a") as log:
        if ongoing is not None:
            log.append_records(
                [state_record("Ongoing", **{**fields, "epoch": ongoing, "partitions": (0,)})], leader_epoch=leader_epoch
            )
        if prepared is not None:
            before = {**fields, "partitions": prepared}
            if before.pop("previous", None) is not None:
                before["producer"] = PRODUCER
            log.append_records([state_record(state.replace("Complete", "Prepare"), **before)], leader_epoch=leader_epoch)
        log.append_records([state_record(state, **fields)], leader_epoch=leader_epoch)
