"""The partitions that are written, each for one property of the format; what the second visit adds follows a broker's appends.

All stand in one topic, so that one run of a client sees them all. Timestamps lie around the wall clock unless a case is about
them: producers are forgotten by the time of their records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from offsetlog_writes import CODECS, WAYS, WITH_PRODUCER, Codec, OffsetlogWrites
from peers import Appended, encoded

from offsetlog import AppendInfo
from offsetlog.errors import OutOfOrderSequenceError, ProducerFencedError

STEP = 250
ODD_KEYS = (None, b"", b"key", "\u00fc\u20ac".encode(), bytes(range(256)), b"k" * 600)
ODD_HEADERS = (
    (),
    (("trace", b"1"),),
    (("trace", b"1"), ("trace", b"2"), ("null", None), ("empty", b"")),
    (("", b"no name"), ("\u00fc\u20ac\U0001f600", bytes(range(256)))),
)
FOLLOWED_FROM = 2**31 + 5
"""Where the copied log begins: its offsets do not fit 32 bits."""


def _untouched(_: OffsetlogWrites) -> None:
    """Nothing is written."""


@dataclass(frozen=True)
class Partition:
    """One partition: its settings, what is written before the broker's run and what after it."""

    name: str
    first: Callable[[OffsetlogWrites], None] = _untouched
    again: Callable[[OffsetlogWrites], None] = _untouched
    settings: Mapping[str, str | int] = field(default_factory=dict)
    broker_first: bool = False
    """The broker wrote it before we did, and it is not made elsewhere but continued where it stands."""
    resumed: bool = False
    """A segment was opened again, or cut, and then grew: its index entries lie elsewhere than those of a scan from its start."""


def entries(seed: str, count: int, now: int, size: int = 60) -> list[Appended]:
    """Records that differ, with and without keys, values and headers; every third with the time of the one before."""
    chosen = random.Random(seed)
    return [
        Appended(
            chosen.choice((*ODD_KEYS[:4], b"key-%d" % n)),
            None if n % 11 == 10 else b"%s %d " % (seed.encode(), n) + chosen.randbytes(chosen.randrange(size)),
            now + (n - n % 3 // 2) * STEP,
            chosen.choice(ODD_HEADERS) if n % 4 == 0 else (),
        )
        for n in range(count)
    ]


def plain_first(hand: OffsetlogWrites) -> None:
    """Every way in, odd keys, values and headers, times that stand still, go back and are very old."""
    now = hand.now
    for n, key in enumerate(ODD_KEYS):
        hand.one(Appended(key, b"value %d" % n, now + n, ODD_HEADERS[n % 4]))
    for value in (None, b"", b"\0", bytes(range(256)), b"tab\tline\nback\\slash"):
        hand.one(Appended(b"odd", value, now - 5))
    hand.batch(entries("records", 30, now))
    hand.batch(entries("columns", 30, now + 100), "arrow")
    hand.batch(entries("bytes", 30, now - 50), "kafka-python")
    hand.batch(entries("more bytes", 30, now - 50), "aiokafka")
    hand.through_writer(entries("writer", 300, now))
    hand.batch([Appended(None, b"long ago", 0), Appended(None, b"now", now), Appended(None, b"1970", 5)])
    # The Java client sends no negative times; others do, and brokers keep them.
    hand.batch([Appended(b"early", b"before 1970", -86_400_000), Appended(b"early", b"1969", -5)], "kafka-python")
    for n in range(40):
        hand.batch(entries(f"batch {n}", 1 + n % 7, now + n * 1000))


def plain_again(hand: OffsetlogWrites) -> None:
    hand.one(Appended(None, b"after the broker", hand.now))
    for n in range(60):
        hand.batch(entries(f"again {n}", 1 + n % 5, hand.now + n), WAYS[n % 4])
    hand.through_writer(entries("writer again", 100, hand.now))


def in_codec(codec: Codec) -> Partition:
    """Batches of all sizes in one codec, through every way in; one batch spans several blocks of the snappy and lz4 frames."""

    def first(hand: OffsetlogWrites) -> None:
        for n in range(60):
            way = WAYS[n % 4]
            hand.batch(entries(f"{codec} {n}", 1 + n % 40, hand.now + n * STEP), way, codec=codec)
        if codec != "none":
            words = [Appended(b"%d" % n, b"the same words again and again %d " % n * 90, hand.now + n) for n in range(40)]
            hand.batch(words, codec=codec)
        hand.through_writer(entries(f"{codec} writer", 200, hand.now), compression=codec, batch_bytes=4_000)

    def again(hand: OffsetlogWrites) -> None:
        for n in range(30):
            hand.batch(entries(f"{codec} again {n}", 1 + n % 40, hand.now + n * STEP), codec=codec)

    return Partition(codec, first, again)


def transactions_first(hand: OffsetlogWrites) -> None:
    """Three producers interleaved with each other and with plain records; long, short, empty, committed and aborted."""
    sequences = {7001: 0, 7002: 0, 7003: 0}
    epochs = {7001: 0, 7002: 3, 7003: 0}
    wrote: dict[int, list[int]] = {identity: [] for identity in sequences}
    chosen = random.Random("transactions")
    ended = 0
    for n in range(220):
        identity = chosen.choice(tuple(sequences))
        if chosen.random() < 0.2:
            hand.batch(entries(f"plain {n}", 2, hand.now + n * STEP))
        made = entries(f"transaction {n}", chosen.randint(1, 9), hand.now + n * STEP)
        producer = (identity, epochs[identity], sequences[identity])
        wrote[identity] += hand.batch(made, codec=chosen.choice(CODECS), producer=producer, transactional=True)
        sequences[identity] += len(made)
        if chosen.random() < 0.12:
            ended += 1
            hand.end(identity, epochs[identity], commit=ended % 2 == 0, timestamp=hand.now + n * STEP, wrote=wrote[identity])
            wrote[identity] = []
    for identity in sequences:
        if hand.expected.producers[identity].transaction_start >= 0:
            hand.end(identity, epochs[identity], commit=identity != 7002, timestamp=hand.now + 221 * STEP, wrote=wrote[identity])
    # A transaction that wrote elsewhere only, and one whose coordinator raised the producer's epoch.
    hand.end(7009, 0, commit=True, timestamp=hand.now + 222 * STEP)
    lost = hand.batch(entries("fenced", 4, hand.now + 223 * STEP), producer=(7002, epochs[7002], sequences[7002]), transactional=True)
    hand.end(7002, epochs[7002] + 1, commit=False, timestamp=hand.now + 224 * STEP, wrote=lost)


def transactions_again(hand: OffsetlogWrites) -> None:
    """The producers of the first visit go on: their state went through our close, a broker's run and our opening."""
    for identity, commit in ((7001, False), (7002, True), (7003, True)):
        state = hand.expected.producers[identity]
        producer = (identity, state.epoch, state.last_sequence + 1)
        wrote = hand.batch(entries(f"again {identity}", 30, hand.now), producer=producer, transactional=True)
        hand.batch(entries(f"between {identity}", 3, hand.now))
        hand.end(identity, state.epoch, commit=commit, timestamp=hand.now, wrote=wrote)


def open_first(hand: OffsetlogWrites) -> None:
    """One transaction is open at the close: committed readers stop before it, also segments later."""
    done = hand.batch(entries("done", 5, hand.now), producer=(7101, 0, 0), transactional=True)
    hand.batch(entries("left open", 5, hand.now), producer=(7102, 0, 0), transactional=True)
    hand.end(7101, 0, commit=False, timestamp=hand.now, wrote=done)
    for n in range(80):
        hand.batch(entries(f"behind {n}", 5, hand.now + n))


def open_again(hand: OffsetlogWrites) -> None:
    """The transaction is ended; its records lie segments before its marker."""
    start = hand.expected.producers[7102].transaction_start
    hand.end(7102, 0, commit=False, timestamp=hand.now, wrote=range(start, start + 5))
    hand.batch(entries("free", 20, hand.now))


def idempotent_first(hand: OffsetlogWrites) -> None:
    """Four producers by turns; what the broker remembers of them decides what it accepts next."""
    sequences = dict.fromkeys(IDEMPOTENT, 0)
    for n in range(120):
        identity = IDEMPOTENT[n % 4]
        made = entries(f"{identity} {n}", 1 + n % 6, hand.now + n * STEP)
        way = WITH_PRODUCER[n % 3]
        codec = CODECS[n % 5]
        hand.batch(made, way, codec=codec, producer=(identity, 2, sequences[identity]))
        sequences[identity] += len(made)


def idempotent_again(hand: OffsetlogWrites) -> None:
    """What the broker took is a duplicate here, what is next in order is taken, and nothing else is."""
    for identity in IDEMPOTENT:
        state = hand.expected.producers[identity]
        first, following = state.last_base_sequence, state.last_sequence + 1

        def sent(sequence: int, epoch: int, made: Sequence[Appended], of: int = identity) -> AppendInfo:
            return hand.log.append_batches(
                encoded("kafka-python", 2, "none", 0, made, producer=(of, epoch, sequence)), leader_epoch=hand.epoch
            )

        again = sent(first, state.epoch, state.last_entries)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (state.last_base, state.last_base + len(state.last_entries) - 1)
        with pytest.raises(OutOfOrderSequenceError):
            sent(following + 1, state.epoch, state.last_entries)
        with pytest.raises(ProducerFencedError):
            sent(following, state.epoch - 1, state.last_entries)
        assert hand.log.log_end_offset == hand.expected.end
        hand.batch(entries(f"again {identity}", 3, hand.now), producer=(identity, state.epoch, following))
    hand.batch(
        entries("new epoch", 3, hand.now),
        "kafka-python",
        producer=(IDEMPOTENT[0], hand.expected.producers[IDEMPOTENT[0]].epoch + 1, 0),
    )


def epochs_first(hand: OffsetlogWrites) -> None:
    """Two leaders, each with several segments."""
    for epoch in range(hand.highest_epoch + 1):
        hand.epoch = epoch
        for n in range(60):
            hand.batch(entries(f"epoch {epoch} {n}", 1 + n % 9, hand.now + n * STEP))


def epochs_again(hand: OffsetlogWrites) -> None:
    """One more leader than the broker had, and the broker's next one is higher still."""
    hand.batch(entries("same epoch", 5, hand.now))
    hand.epoch = hand.highest_epoch
    hand.batch(entries("next epoch", 5, hand.now))


def followed_first(hand: OffsetlogWrites) -> None:
    """A copy of a log that was compacted: it begins late, and offsets are missing between and within its batches."""
    hand.log.truncate_fully_and_start_at(FOLLOWED_FROM)
    hand.expected.log_start_offset = FOLLOWED_FROM
    hand.expected.skip_to(FOLLOWED_FROM)
    at = FOLLOWED_FROM
    for n in range(90):
        made = entries(f"followed {n}", 1 + n % 8, hand.now + n * STEP)
        hand.copy(made, at, codec=CODECS[n % 5], epoch=min(n // 60, hand.highest_epoch))
        at += len(made) + (n % 10 == 9) * 1000


def followed_again(hand: OffsetlogWrites) -> None:
    hand.copy(entries("copied", 5, hand.now), hand.expected.end, codec="lz4", epoch=hand.epoch)
    hand.batch(entries("led", 5, hand.now))


def torn(path: Path) -> None:
    """Half of a batch at the end, as a machine leaves it that stopped in the middle of a write."""
    newest = max(path.glob("*.log"))
    half = encoded("kafka-python", 2, "none", 0, [Appended(b"torn", b"t" * 400, 0)])
    with newest.open("ab") as file:
        file.write(half[:200])


def torn_first(hand: OffsetlogWrites) -> None:
    """Killed in the middle of a write, twice: recovery cuts what is torn and keeps all that was acknowledged."""
    for run in range(2):
        for n in range(50):
            hand.batch(entries(f"torn {run} {n}", 1 + n % 9, hand.now + n * STEP))
        hand.crash(torn)
        report = hand.log.recovery_report
        assert report is not None
        assert report.log_end_offset == hand.log.log_end_offset == hand.expected.end
    hand.batch(entries("recovered", 5, hand.now))


def truncated_first(hand: OffsetlogWrites) -> None:
    """Cut back over segments and grown again with other records, in files that were made at their full size."""
    ends = []
    for n in range(90):
        hand.batch(entries(f"lost {n}", 1 + n % 9, hand.now + n * STEP))
        ends.append(hand.expected.end)
    for keep in (60, 20):
        hand.log.truncate_to(ends[keep])
        hand.expected.cut(ends[keep])
        assert hand.log.log_end_offset == hand.expected.end
        for n in range(30):
            hand.batch(entries(f"kept {keep} {n}", 1 + n % 9, hand.now + n * STEP))


def stamped_first(hand: OffsetlogWrites) -> None:
    """The log's clock is the only time; the records' own are kept below it."""
    for n in range(90):
        hand.now += 40 * (n % 3)
        hand.batch(entries(f"stamped {n}", 1 + n % 9, n), WITH_PRODUCER[n % 3], codec=CODECS[n % 5])


def stamped_again(hand: OffsetlogWrites) -> None:
    hand.batch(entries("stamped again", 9, 0), codec="zstd")


def recoded_first(hand: OffsetlogWrites) -> None:
    """Whatever comes in is stored in the topic's own codec."""
    for n in range(60):
        way = WAYS[n % 4]
        hand.batch(entries(f"recoded {n}", 1 + n % 20, hand.now + n * STEP), way, codec=CODECS[n % 5])


def shared_first(hand: OffsetlogWrites) -> None:
    """A broker's own directory is continued where it stands."""
    assert hand.log.log_end_offset == hand.expected.end
    for n in range(60):
        hand.batch(entries(f"ours {n}", 1 + n % 9, hand.now + n * STEP), codec=CODECS[n % 5])


def few_again(hand: OffsetlogWrites) -> None:
    """A batch behind the broker's."""
    hand.batch(entries("few", 7, hand.now))


def prefix_first(hand: OffsetlogWrites) -> None:
    for n in range(60):
        hand.batch(entries(f"prefix {n}", 1 + n % 9, hand.now + n * STEP))


IDEMPOTENT = (7201, 7202, 7203, 7204)

PARTITIONS: tuple[Partition, ...] = (
    Partition("plain", plain_first, plain_again),
    *map(in_codec, CODECS),
    Partition("transactions", transactions_first, transactions_again),
    Partition("open transaction", open_first, open_again),
    Partition("idempotent", idempotent_first, idempotent_again),
    Partition("epochs", epochs_first, epochs_again),
    Partition("followed", followed_first, followed_again),
    Partition("torn", torn_first, few_again, resumed=True),
    Partition("truncated", truncated_first, few_again, {"preallocate": "true"}, resumed=True),
    Partition("append time", stamped_first, stamped_again, {"message.timestamp.type": "LogAppendTime"}),
    Partition("recoded", recoded_first, few_again, {"compression.type": "gzip"}),
    Partition("shared", shared_first, few_again, broker_first=True, resumed=True),
    Partition("prefix", prefix_first, few_again),
    Partition("empty", _untouched, few_again),
)
NUMBERS = {partition.name: number for number, partition in enumerate(PARTITIONS)}
