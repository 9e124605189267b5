"""Random histories of one partition log, from a seed: settings, and steps that mean something whatever was left out before them.

Steps are plain data (they print, shrink and replay): offsets are said relative to the log, sequences relative to the producer,
times relative to the clock. ``runner.py`` turns them into calls.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interface import Row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = (None, "", "a", "b", "key-1", "key-1", "a longer key, of forty bytes and something")
PRODUCERS = (5, 8, 4_294_967_301)
# So few bytes that the number of entries decides rolls.
SMALL_INDEX = 200
HOSTILE_LEADERS = 0.2
TURNING_SEQUENCE = 2_147_483_647

Rows = list[list[Any]]


@dataclass(frozen=True)
class Step:
    """One verb with its fields."""

    verb: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        return " ".join([self.verb, *(f"{name}={json.dumps(value)}" for name, value in self.fields.items())])


@dataclass(frozen=True)
class History:
    """Settings and steps.

    `exact` histories end in identical bytes. In the others records are compressed on the way, by whichever library each side
    has: batches are compared after decompression.
    """

    seed: int
    config: dict[str, str]
    steps: tuple[Step, ...]
    exact: bool = True
    turns: bool = False

    def __str__(self) -> str:
        lines = [f"config {json.dumps(self.config)}", *(f"{n:3} {step}" for n, step in enumerate(self.steps))]
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Writes it down."""
        steps = [[step.verb, step.fields] for step in self.steps]
        text = {"seed": self.seed, "config": self.config, "exact": self.exact, "turns": self.turns, "steps": steps}
        path.write_text(json.dumps(text, indent=1))

    @classmethod
    def load(cls, path: Path) -> History:
        """Reads what `save` wrote."""
        text = json.loads(path.read_text())
        steps = tuple(Step(verb, fields) for verb, fields in text.pop("steps"))
        return cls(**text, steps=steps)

    def with_steps(self, steps: tuple[Step, ...]) -> History:
        """The same with other steps."""
        return replace(self, steps=steps)


def rows(specified: Rows, now: int) -> tuple[Row, ...]:
    """Records from `[time, key, value, headers]`: a time relative to `now` or "=absolute", a value by its size."""
    made = []
    for number, (when, key, value, *headers) in enumerate(specified):
        timestamp = int(when[1:]) if isinstance(when, str) else now + when
        content = None if value is None else (b"%d:%d " % (value, number) * (value // 4 + 1))[:value]
        pairs = tuple((name, None if text is None else text.encode()) for name, text in (headers[0] if headers else ()))
        made.append(Row(timestamp, None if key is None else key.encode(), content, pairs))
    return tuple(made)


class _Maker:
    """Draws one history."""

    def __init__(self, seed: int, *, turns: bool) -> None:
        self.random = random.Random(seed)
        self.turns = turns
        self.seed = seed
        self.exact = self.random.random() < 0.8
        self.leader_epoch = self.random.choice((0, 0, 1, 3))
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.open_transactions: set[int] = set()
        # What a follower stores of these may be no records at all, and then there is less to compare.
        self.hostile_leaders = self.random.random() < HOSTILE_LEADERS
        self.config = self._config()

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def pick(self, *of: Any) -> Any:  # noqa: ANN401  # whatever was offered
        return self.random.choice(of)

    def _config(self) -> dict[str, str]:
        pick, chance = self.pick, self.chance
        config = self._sizes()
        for name, share, values in (
            ("segment.ms", 0.25, (1, 50, 1000, 100_000)),
            ("message.timestamp.type", 0.25, ("LogAppendTime",)),
            ("cleanup.policy", 0.2, ("compact", "compact,delete", "delete")),
            ("message.timestamp.before.max.ms", 0.15, (0, 1000, 86_400_000)),
            ("message.timestamp.after.max.ms", 0.15, (0, 1000, 10_000_000_000)),
            ("preallocate", 0.15, ("true",)),
            ("file.delete.delay.ms", 0.1, (0, 1000)),
        ):
            if chance(share):
                config[name] = pick(*values)
        if "compact" in config.get("cleanup.policy", "") and chance(0.3):
            config["max.compaction.lag.ms"] = pick(100, 5000)
        if chance(0.2) and config["segment.index.bytes"] > SMALL_INDEX:
            # A flush looks different when the roll before it was forced, which histories with small indexes may have to do.
            config["flush.messages"] = pick(1, 2, 5)
        return {name: str(value) for name, value in config.items()}

    def _sizes(self) -> dict[str, Any]:
        pick, chance = self.pick, self.chance
        if not self.exact:
            # Sizes may differ, so nothing here may depend on them.
            compression = pick("producer", *CODECS[1:])
            sizes = {"internal.segment.bytes": 1 << 20, "index.interval.bytes": 0, "segment.index.bytes": 65_536}
            return {**sizes, "compression.type": compression}
        config: dict[str, Any] = {
            "internal.segment.bytes": pick(400, 700, 1000, 2000, 2000, 5000, 20_000, 1 << 20),
            "index.interval.bytes": pick(0, 0, 100, 200, 200, 500, 4096),
            "segment.index.bytes": pick(96, 200, 1003, 1003, 4096, 65_536, 65_536, 65_536),
            "compression.type": pick("producer", "producer", "producer", "uncompressed"),
        }
        if chance(0.07):
            config["segment.index.bytes"] = pick(24, 36)
        if chance(0.15):
            config["max.message.bytes"] = pick(150, 300, 600)
        return config

    # Records

    def when(self) -> Any:  # noqa: ANN401  # a relative or an absolute time
        kind = self.random.random()
        if kind < 0.55:
            return self.random.randint(-3, 30)
        if kind < 0.75:
            return 0
        if kind < 0.9:
            return self.random.randint(-2000, 2000)
        if kind < 0.93:
            return self.pick(-90_000_000, 3_600_000, 3_600_001, 3_700_000)
        if kind < 0.98:
            return "=-1"
        return self.pick("=-5", "=0", "=1", "=-9000000000")

    def row(self, *, plain: bool = False) -> list[Any]:
        when = self.random.randint(-50, 50) if plain else self.when()
        sizes = (0, 1, 5, 10, 10, 20, 40, 80, 130, 200)
        row: list[Any] = [when, self.random.choice(KEYS), None if self.chance(0.1) else self.random.choice(sizes)]
        if self.chance(0.15):
            row.append([[self.pick("h", "trace", "é"), self.pick(None, "", "1", "twelve")] for _ in range(self.random.randint(1, 3))])
        return row

    def rows(self, most: int = 5, *, plain: bool = False) -> Rows:
        made = [self.row(plain=plain) for _ in range(self.random.randint(1, most))]
        if not plain and self.chance(0.1):
            made = [["=-1", *row[1:]] for row in made]
        if self.chance(0.02):
            made *= 12
        return made

    def codec(self) -> str:
        # What is stored as it came has the same bytes on both sides, whoever compressed it.
        kept = self.config["compression.type"]
        if kept not in {"producer", "uncompressed"} and self.chance(0.5):
            return kept
        return str(self.pick("none", "none", "none", *CODECS))

    def epoch(self) -> int:
        if self.chance(0.08):
            self.leader_epoch += self.random.randint(1, 3)
        return self.leader_epoch

    def producer(self) -> dict[str, Any]:
        producer = self.random.choice(PRODUCERS)
        if self.chance(0.06):
            self.epochs[producer] += 1
            return {"id": producer, "epoch": self.epochs[producer], "sequence": self.pick(0, 0, 0, 3, "next"), "txn": self.chance(0.4)}
        fields = {"id": producer, "epoch": self.epochs[producer], "sequence": "next", "txn": self.chance(0.45)}
        if self.chance(0.08):
            fields["sequence"] = self.pick("gap", 0, 7, TURNING_SEQUENCE, TURNING_SEQUENCE - 2)
        if self.chance(0.04):
            fields["epoch"] = max(0, self.epochs[producer] + self.pick(-1, 2))
        if producer in self.open_transactions and self.chance(0.9):
            fields["txn"] = True
        if fields["txn"]:
            self.open_transactions.add(producer)
        return fields

    # Steps

    def append(self) -> Step:
        kind = self.random.random()
        if kind < 0.35:
            fields: dict[str, Any] = {"form": "bytes", "rows": self.rows(), "codec": self.codec(), "epoch": self.epoch()}
        elif kind < 0.65:
            fields = {"form": "bytes", "rows": self.rows(), "codec": self.codec(), "epoch": self.epoch(), "producer": self.producer()}
        elif kind < 0.95:
            fields = self._rows_form()
        elif kind < 0.98:
            magic = self.pick(0, 1)
            codec = self.codec() if not self.exact and magic == 1 else "none"
            fields = {
                "form": "bytes",
                "rows": self.rows(),
                "codec": "gzip" if codec == "zstd" else codec,
                "magic": magic,
                "epoch": self.epoch(),
            }
        else:
            # A leader that comes back with an older epoch.
            fields = {"form": "bytes", "rows": self.rows(2, plain=True), "codec": "none", "epoch": max(0, self.leader_epoch - 1)}
        if fields["form"] == "bytes" and self.chance(0.05):
            fields["origin"] = "coordinator"
        if self.chance(0.05):
            fields["flush"] = True
        return Step("append", fields)

    def _rows_form(self) -> dict[str, Any]:
        form = self.pick("single", "records", "records", "arrow", "writer")
        fields: dict[str, Any] = {"form": form, "rows": self.rows(plain=True), "codec": "none", "epoch": self.epoch()}
        if form == "single":
            fields["rows"] = fields["rows"][:1]
        elif not self.exact:
            fields["codec"] = self.codec()
        if form == "records" and self.chance(0.3):
            fields["producer"] = self.producer()
        return fields

    def hostile(self) -> Step:
        change = self.random.random()
        mutations: list[list[Any]] = []
        if change < 0.3:
            mutations.append(["flip", self.random.randint(0, 999)])
        elif change < 0.45:
            mutations.append(["cut", self.random.randint(1, 90)])
        elif change < 0.55:
            mutations.append(["zeros", self.random.randint(1, 40)])
        elif change < 0.65:
            mutations.append(["again", self.pick(0, 0, 1, 20, 60)])
        else:
            name, values = self.pick(
                ("base_offset", (1, 5, -1, 1 << 40)),
                ("leader_epoch", (-1, 3, 100)),
                ("magic", (0, 1, 3, -1)),
                ("attributes", (1, 2, 3, 4, 5, 6, 7, 0x08, 0x10, 0x20, 0x30, 0x40, 0x80, 0x8000, 0x7F80)),
                ("last_offset_delta", (0, 1, 9, -1, 2_147_483_647)),
                ("base_timestamp", (0, -1, -5, 1 << 60)),
                ("max_timestamp", (0, -1, 1 << 60, 1_600_000_000_000)),
                ("producer_id", (0, 5, 77)),
                ("producer_epoch", (0, 1, -1, 32_767)),
                ("base_sequence", (0, 1, -1, 2_147_483_647)),
                ("count", (0, 1, 9, -1, 2_147_483_647)),
                ("length", (13, 14, 48, 49, 50, 2_147_483_647, -1)),
                ("payload", (0, 1, 2, 5, 9, 17, 40)),
            )
            mutations.append(["field", name, self.random.choice(values)])
        fields: dict[str, Any] = {"rows": self.rows(3), "codec": self.pick("none", "none", *CODECS), "mutations": mutations}
        if self.hostile_leaders and self.chance(0.6):
            fields["as"] = "follower"
        elif self.chance(0.15) and mutations[0][:2] != ["field", "count"]:
            fields["origin"] = "coordinator"
        if self.chance(0.2):
            fields["producer"] = self.producer()
        return Step("hostile", fields | {"epoch": self.leader_epoch})

    def follower(self) -> Step:
        batches: list[dict[str, Any]] = []
        epoch = self.epoch()
        for _ in range(self.pick(1, 1, 2, 3, 5)):
            batch: dict[str, Any] = {"rows": self.rows(3), "codec": self.pick("none", "none", *CODECS)}
            if self.chance(0.15):
                batch["gap"] = self.pick(1, 1, 2, 10, 500)
            if self.chance(0.02):
                batch["gap"] = self.pick(-1, -3, 1 << 31, 3_000_000_000)
            if self.chance(0.3):
                batch["producer"] = self.producer()
            if self.chance(0.05):
                batch = {"marker": self._marker()} | {name: batch[name] for name in ("gap",) if name in batch}
            if self.chance(0.06):
                epoch += self.random.randint(1, 2)
            batches.append(batch | {"epoch": epoch})
        own = max(0, epoch - 1) if self.chance(0.1) else epoch
        self.leader_epoch = max(self.leader_epoch, own)
        return Step("follower", {"batches": batches, "epoch": own})

    def _marker(self) -> dict[str, Any]:
        producer = self.random.choice(sorted(self.open_transactions) or PRODUCERS)
        fields = {"id": producer, "epoch": self.epochs[producer], "commit": self.chance(0.5), "coordinator": self.pick(0, 0, 0, 1)}
        if self.chance(0.1):
            fields["epoch"] = max(0, fields["epoch"] + self.pick(-1, 1))
            self.epochs[producer] = max(self.epochs[producer], fields["epoch"])
        if self.chance(0.15):
            fields["version"] = 2
            fields["epoch"] += 1
            self.epochs[producer] = max(self.epochs[producer], fields["epoch"])
        self.open_transactions.discard(producer)
        return fields

    def marker(self) -> Step:
        return Step("marker", self._marker() | {"leader_epoch": self.epoch(), "time": self.when()})

    def reopen(self) -> Step:
        fields: dict[str, Any] = {"clean": self.chance(0.55)}
        if not fields["clean"]:
            fields["point"] = self.pick("live", "live", "zero", "half")
        if self.turns:
            fields["side"] = self.pick(0, 1)
        elif self.chance(0.1):
            fields["config"] = self.new_settings()
        self.open_transactions.clear()
        return Step("reopen", fields)

    def new_settings(self) -> dict[str, str]:
        config = {"message.timestamp.type": self.pick("CreateTime", "LogAppendTime")}
        if self.exact:
            config["index.interval.bytes"] = str(self.pick(0, 100, 300))
            config["internal.segment.bytes"] = str(self.pick(400, 1000, 5000))
        if self.chance(0.3):
            config["segment.ms"] = str(self.pick(1, 1000, 604_800_000))
        return config

    def step(self) -> Step:
        kind = self.random.random() * 100
        table: list[tuple[float, Any]] = [
            (44, self.append),
            (7, lambda: Step("again", {"back": self.pick(0, 0, 0, 1, 3, 5, 6), "epoch": self.epoch()})),
            (7, self.hostile),
            (10, self.follower),
            (8, self.marker),
            (4, lambda: Step("roll", {})),
            (2, lambda: Step("flush", {})),
            (4, lambda: Step("truncate", {"back": self.pick(-2, 0, 0, 1, 1, 2, 3, 5, 8, 20)})),
            (0.5, lambda: Step("truncate_fully", {"ahead": self.pick(-5, 0, 3, 1000), "start": self.pick(None, None, -2, 0)})),
            (3, lambda: Step("delete_records", {"on": self.pick(-1, 0, 1, 1, 2, 3, 5, 10), "end": self.chance(0.1)})),
            (4, lambda: Step("clock", {"add": self.pick(1, 10, 100, 1001, 5000, 60_001, 600_001)})),
            (
                4,
                lambda: Step(
                    "fetch", {"at": self.random.random(), "max": self.pick(1, 100, 300, 5000), "committed": self.chance(0.5)}
                ),
            ),
            (2.5, lambda: Step("check", {})),
            (1, lambda: Step("configure", {"config": self.new_settings()})),
            (8 if self.turns else 4, self.reopen),
        ]
        for weight, make in table:
            kind -= weight * 100 / sum(weight for weight, _ in table)
            if kind < 0:
                made = make()
                assert isinstance(made, Step)
                return made
        return self.append()

    def history(self) -> History:
        steps = [self.step() for _ in range(self.random.randint(35, 60))]
        if self.chance(0.05):
            steps.insert(self.random.randint(0, len(steps)), Step("clock", {"add": 86_400_001}))
        return History(self.seed, self.config, tuple(steps), self.exact, self.turns)


def history(seed: int, *, turns: bool = False) -> History:
    """The history of this seed."""
    return _Maker(seed, turns=turns).history()
