"""Kafka's own storage layer as one side of a comparison: a program of ours around its jars, one line in, one line out."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from hostile import moved_back
from interface import ANY_ERROR, TOPIC_ID, Batch, Clock, Ends, Fetched, Info, Marker, Opening, Read, Refusal, Row, Timed

ROOT = Path(__file__).resolve().parents[2]
JAR = ROOT / "build" / "oracle" / "oracle.jar"
COMMAND = ("java", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-jar")
START_SECONDS = 300
ANSWER_SECONDS = 300
# Unanswered requests of one go: they and their replies fit the pipes, so that neither side waits for the other.
GO = 50
NO_TIMESTAMP = -1

# Kafka's exception class -> the error classes of offsetlog that say the same.
ERRORS: dict[str, tuple[str, ...]] = {
    "CorruptRecordException": ("CorruptBatchError", "RecordRejectedError", "UnsupportedMagicError"),
    # Compressed bytes may be found wrong before their end is seen, where the codec finds them wrong too.
    "InvalidRecordException": ("RecordRejectedError", "InvalidRecordError", "DecompressionError"),
    "InvalidTimestampException": ("InvalidTimestampError",),
    "RecordTooLargeException": ("RecordTooLargeError",),
    "RecordBatchTooLargeException": ("RecordBatchTooLargeError",),
    "OffsetsOutOfOrderException": ("OffsetsOutOfOrderError", "OffsetOrderError", "RecordRejectedError", "InvalidRecordError"),
    "UnexpectedAppendOffsetException": ("UnexpectedAppendOffsetError",),
    "LogSegmentOffsetOverflowException": ("RecordRejectedError",),
    "OutOfOrderSequenceException": ("OutOfOrderSequenceError",),
    "InvalidProducerEpochException": ("ProducerFencedError",),
    "TransactionCoordinatorFencedException": ("TransactionCoordinatorFencedError",),
    "InvalidTxnStateException": ("InvalidTxnStateError",),
    "OffsetOutOfRangeException": ("OffsetOutOfRangeError",),
    # What Kafka has no words of its own for: a codec id of 5 to 7, a negative epoch or timestamp, a length near 2^31.
    "IllegalArgumentException": (
        "CorruptBatchError",
        "OffsetOrderError",
        "RecordRejectedError",
        "InvalidRecordError",
        "InvalidTimestampError",
        "UnsupportedCodecError",
        "ConfigError",
        "OffsetOutOfRangeError",
    ),
}
# Compressed bytes that the codec's library refuses: each in its own way.
DECOMPRESSION = ("DecompressionError", "RecordRejectedError", "InvalidRecordError", "CorruptBatchError")


class OracleError(RuntimeError):
    """The program died, hung or said something that is no reply."""


class KafkaError(Refusal):
    """An exception of Kafka's."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.kind = str(error["class"]).rsplit(".", 1)[-1].rsplit("$", 1)[-1]
        told = str(error.get("invalid", "")).rsplit(".", 1)[-1] if self.kind == "RecordValidationException" else self.kind
        names = ERRORS.get(told, DECOMPRESSION if told in {"KafkaException", "UncheckedIOException"} else (ANY_ERROR,))
        super().__init__(frozenset(names), f"{self.kind}: {error.get('message')}")


class Oracle:
    """The program. It ends with the test process that started it, or by `close`."""

    def __init__(self, log: Path, jar: Path = JAR) -> None:
        if not jar.exists():
            message = f"{jar.relative_to(ROOT)} is not there: make build/oracle/oracle.jar"
            raise OracleError(message)
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [*COMMAND, str(jar)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
        )
        self._unread = b""
        self._deadline = time.monotonic() + START_SECONDS
        self.requests = 0

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(300)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self._process.kill()
                message = f"no answer in {ANSWER_SECONDS} s; see {self._log.name}"
                raise OracleError(message)
            more = os.read(descriptor, 1 << 20)
            if not more:
                message = f"the program ended; see {self._log.name}"
                raise OracleError(message)
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def ask_many(self, requests: Iterable[dict[str, Any]]) -> list[dict[str, Any] | KafkaError]:
        """Sends requests in goes and gives all replies; an exception of Kafka's is one of them."""
        assert self._process.stdin is not None
        waiting = list(requests)
        replies: list[dict[str, Any] | KafkaError] = []
        while waiting:
            go, waiting = waiting[:GO], waiting[GO:]
            text = "".join(json.dumps(request, separators=(",", ":")) + "\n" for request in go).encode()
            self._deadline = max(self._deadline, time.monotonic() + ANSWER_SECONDS)
            try:
                view = memoryview(text)
                while view:
                    view = view[self._process.stdin.write(view) or 0 :]
            except BrokenPipeError:
                message = f"the program ended; see {self._log.name}"
                raise OracleError(message) from None
            for _ in go:
                self.requests += 1
                reply = json.loads(self._line())
                if "background_error" in reply:
                    message = f"background work failed: {reply['background_error']}"
                    raise OracleError(message)
                replies.append(reply["r"] if reply["ok"] else KafkaError(reply["error"]))
            self._deadline = 0.0
        return replies

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
        """Sends one request and gives its result."""
        (reply,) = self.ask_many([{"do": verb, **fields}])
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    def encode(self, batch: Batch, **fields: Any) -> bytes:  # noqa: ANN401  # JSON
        """One batch as Kafka's builder makes it.

        It refuses times before 1970, which its log does not: those are encoded later and moved back in the header.
        """
        if fields.get("magic", 2) < 2:
            # Without headers, and without times before 1970 altogether.
            plain = (Row(max(NO_TIMESTAMP, row.timestamp), row.key, row.value) for row in batch.rows)
            batch = replace(batch, rows=tuple(plain))
        earliest = min(row.timestamp for row in batch.rows)
        if earliest >= NO_TIMESTAMP:
            return base64.b64decode(self.ask("encode", **batch_fields(batch), **fields)["data"])
        later = replace(batch, rows=tuple(row._replace(timestamp=row.timestamp - earliest) for row in batch.rows))
        return moved_back(self.encode(later, **fields), -earliest)

    def encode_marker(self, marker: Marker, base_offset: int, leader_epoch: int) -> bytes:
        """A marker as a leader would have stored it."""
        fields = marker_fields(marker) | {"baseOffset": base_offset, "leaderEpoch": leader_epoch}
        return base64.b64decode(self.ask("encodeMarker", **fields)["data"])

    def reads_whole(self, data: bytes) -> bool:
        """Whether all batches hold the records, with the offsets, that their headers say."""
        batches: Any = self.ask("batches", data=_b64(data), deep=True)
        return all(
            "end" not in batch
            and "unreadable" not in batch
            # Hostile headers span billions of offsets.
            and len(batch["records"]) == batch["last"] - batch["base"] + 1
            and all(record["offset"] == offset for offset, record in enumerate(batch["records"], batch["base"]))
            and batch["base"] >= 0
            for batch in batches
        )

    def decode(self, file: Path) -> list[dict[str, Any]]:
        """Every batch of a file with its records."""
        answer: Any = self.ask("batches", file=str(file), deep=True)
        assert isinstance(answer, list)
        return answer


def _b64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _unb64(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def row_fields(row: Row) -> dict[str, Any]:
    """A record in a request."""
    fields: dict[str, Any] = {"ts": row.timestamp, "key": _b64(row.key), "value": _b64(row.value)}
    if row.headers:
        fields["headers"] = [[name, _b64(value)] for name, value in row.headers]
    return fields


def batch_fields(batch: Batch) -> dict[str, Any]:
    """A batch in a request."""
    return {
        "records": [row_fields(row) for row in batch.rows],
        "codec": batch.codec,
        "pid": batch.producer_id,
        "epoch": batch.producer_epoch,
        "seq": batch.base_sequence,
        "txn": batch.transactional,
    }


def marker_fields(marker: Marker) -> dict[str, Any]:
    """A marker in a request."""
    return {
        "pid": marker.producer_id,
        "epoch": marker.producer_epoch,
        "commit": marker.commit,
        "coordinatorEpoch": marker.coordinator_epoch,
        "ts": marker.timestamp,
        "tv": marker.transaction_version,
    }


def _ends(answer: dict[str, Any]) -> Ends:
    return Ends(answer["start"], answer["lso"], answer["hw"], answer["leo"], answer["recoveryPoint"])


class KafkaLog:
    """Kafka's `UnifiedLog` of one directory."""

    name = "kafka"

    def __init__(self, oracle: Oracle, directory: Path, log_id: str = "0") -> None:
        self.oracle = oracle
        self.directory = directory
        self._id = log_id
        self._end = 0

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
        """A request about this log."""
        return self.oracle.ask(verb, id=self._id, **fields)

    def follow(self, clock: Clock) -> None:
        """Moves the program's clock with this one."""
        clock.listeners.append(lambda now: self.oracle.ask("time", set=now))

    def open(self, opening: Opening) -> Ends:
        answer = self.ask(
            "open",
            dir=str(self.directory),
            config=opening.config,
            clean=opening.clean,
            recoveryPoint=opening.recovery_point or 0,
            logStartOffset=opening.log_start_offset,
            useCheckpoints=opening.checkpoints,
            topicId=TOPIC_ID,
        )
        self._end = answer["leo"]
        return _ends(answer)

    def close(self, *, clean: bool) -> None:
        self.ask("close", how="clean" if clean else "drop")

    def configure(self, config: dict[str, str]) -> None:
        self.ask("config", config=config)

    def ends(self) -> Ends:
        return _ends(self.ask("ends"))

    def _info(self, answer: dict[str, Any]) -> Info:
        duplicate = answer["leo"] == self._end and answer["lastOffset"] >= 0
        self._end = answer["leo"]
        return Info(answer["firstOffset"], answer["lastOffset"], answer["maxTimestamp"], answer["logAppendTime"], duplicate)

    def append_rows(self, batch: Batch, form: str, leader_epoch: int, *, flush: bool = False) -> Info:
        """All forms are one here: a client's batch."""
        del form
        info = self._info(self.ask("append", **batch_fields(batch), leaderEpoch=leader_epoch))
        if flush:
            self.flush()
        return info

    def append_bytes(self, data: bytes, leader_epoch: int, origin: str, *, flush: bool = False) -> Info:
        fields = {"data": _b64(data), "leaderEpoch": leader_epoch, "origin": origin.upper()}
        info = self._info(self.ask("appendRaw", **fields))
        if flush:
            self.flush()
        return info

    def append_as_follower(self, data: bytes, leader_epoch: int) -> Info:
        return self._info(self.ask("appendRaw", data=_b64(data), leaderEpoch=leader_epoch, **{"as": "follower"}))

    def append_marker(self, marker: Marker, leader_epoch: int) -> Info:
        return self._info(self.ask("marker", **marker_fields(marker), leaderEpoch=leader_epoch))

    def roll(self) -> int:
        return int(self.ask("roll")["activeBase"])

    def flush(self) -> None:
        self.ask("flush")

    def _changed(self, answer: dict[str, Any]) -> bool:
        self._end = answer["leo"]
        return bool(answer.get("done"))

    def truncate_to(self, offset: int) -> bool:
        return self._changed(self.ask("truncate", offset=offset))

    def truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        start = {} if log_start_offset is None else {"logStartOffset": log_start_offset}
        self._changed(self.ask("truncateFully", offset=offset, **start))

    def delete_records_before(self, offset: int) -> bool:
        return self._changed(self.ask("deleteRecords", offset=offset))

    def fetch(self, offset: int, max_bytes: int, *, committed: bool) -> Fetched:
        isolation = "TXN_COMMITTED" if committed else "HIGH_WATERMARK"
        answer = self.ask("read", offset=offset, max=max_bytes, isolation=isolation)
        aborted = tuple((producer, first) for producer, first in answer["aborted"])
        return Fetched(base64.b64decode(answer["data"]), answer["hw"], answer["lso"], answer["start"], aborted)

    def _each(self, verb: str, name: str, values: Sequence[int]) -> list[dict[str, Any]]:
        answers = self.oracle.ask_many({"do": verb, "id": self._id, name: value} for value in values)
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, KafkaError) and answer]

    def offsets_for_times(self, timestamps: Sequence[int]) -> list[Timed | None]:
        return [
            Timed(answer["offset"], answer["timestamp"], answer["leaderEpoch"]) if answer["found"] else None
            for answer in self._each("offsetForTime", "ts", timestamps)
        ]

    def records(self) -> list[Read]:
        ends = self.ends()
        return [
            Read(
                record["offset"],
                record["ts"],
                _unb64(record["key"]),
                _unb64(record["value"]),
                tuple((name, _unb64(value)) for name, value in record["headers"]),
            )
            for path in sorted(self.directory.glob("*.log"))
            for batch in self.oracle.decode(path)
            if not batch.get("control", True)
            for record in batch["records"]
            if ends.log_start_offset <= record["offset"] < ends.log_end_offset
        ]

    def ends_of_epochs(self, epochs: Sequence[int]) -> list[tuple[int, int] | None]:
        return [(answer["epoch"], answer["offset"]) if answer["found"] else None for answer in self._each("epochEnd", "epoch", epochs)]
