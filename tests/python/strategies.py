"""What hypothesis may draw: records, batches, whole logs; and what a log of them must read as."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from golden import Row
from hypothesis import strategies as st
from peers import WRITERS, Appended, encoded

# Around the epoch, around now and far ahead: differences of either sign and of one to nine bytes.
timestamps = st.one_of(
    st.integers(0, 2**41),
    st.integers(1_700_000_000_000, 1_700_000_100_000),
    st.integers(0, 300),
    st.just(9_007_199_254_740),
)
parts = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b"", b"\0", b"key", bytes(range(256)), b"abc" * 300]),
    st.integers(1, 70_000).map(lambda size: b"\xff" * size),
)
header_names = st.one_of(st.sampled_from(["", "trace", "h", "\u00fc\u20ac\U0001f600"]), st.text(max_size=12))
headers = st.lists(st.tuples(header_names, st.one_of(st.none(), st.binary(max_size=20))), max_size=4).map(tuple)


class Batch(NamedTuple):
    """One batch as somebody produced it and as a broker stored it."""

    peer: str
    magic: int
    codec: str
    records: tuple[Appended, ...]
    gap: int
    """Offsets left out before it, as compaction leaves them."""
    leader_epoch: int
    append_time: int | None
    producer: tuple[int, int, int]


@st.composite
def batches(draw: st.DrawFn, *, peers: tuple[str, ...], magics: tuple[int, ...]) -> Batch:
    """One batch of one to a few records."""
    peer = draw(st.sampled_from(peers))
    magic = draw(st.sampled_from(magics))
    codec = draw(st.sampled_from(WRITERS[peer, magic]))
    record = st.builds(Appended, parts, parts, timestamps, headers if magic == 2 else st.just(()))
    return Batch(
        peer,
        magic,
        codec,
        tuple(draw(st.lists(record, min_size=1, max_size=6))),
        draw(st.sampled_from([0, 0, 0, 1, 17])),
        draw(st.integers(0, 2**31 - 1)),
        draw(st.one_of(st.none(), timestamps)),
        draw(st.sampled_from([(-1, -1, -1), (0, 0, 0), (4000, 3, 2**31 - 2), (2**63 - 1, 2**15 - 1, 7)])),
    )


def expected_rows(written: Sequence[tuple[int, Batch]]) -> tuple[Row, ...]:
    """What went in, with what a broker adds."""
    seen = []
    for base, batch in written:
        for delta, record in enumerate(batch.records):
            timestamp_type = -1 if batch.magic == 0 else 0 if batch.append_time is None else 1
            timestamp = -1 if batch.magic == 0 else record.timestamp if batch.append_time is None else batch.append_time
            epoch = batch.leader_epoch if batch.magic == 2 else -1
            seen.append(Row(base + delta, timestamp, timestamp_type, epoch, record.key, record.value, tuple(record.headers)))
    return tuple(seen)


def write(directory: Path, drawn: Sequence[Batch]) -> list[tuple[int, Batch]]:
    """Write the batches into a fresh partition; return each with its base offset."""
    directory.mkdir()
    placed, data, end = [], b"", 0
    for batch in drawn:
        base = end + batch.gap
        data += encoded(
            batch.peer,
            batch.magic,
            batch.codec,
            base,
            batch.records,
            leader_epoch=batch.leader_epoch,
            append_time=batch.append_time,
            producer=batch.producer,
        )
        placed.append((base, batch))
        end = base + len(batch.records)
    (directory / f"{0:020}.log").write_bytes(data)
    return placed
