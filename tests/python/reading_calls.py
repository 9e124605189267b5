"""How each verb of ``docs/verbs.md`` that reads is called in a stopped broker's directory, and what damage does to its answer."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.request import urlopen

from golden import DATA, Golden
from kafka_wire import Wire
from old_layout import message, partition
from reading_answers import Answer, Bad, Check, Ran, attempt, command, ended, flipped, key_of
from reading_checks import (
    DAMAGE_COUNT,
    answers_name_it,
    before_it,
    but_it,
    cannot_be_told,
    counts_damage,
    counts_the_others,
    counts_what_it_gives,
    dumps_the_others,
    finds_it,
    groups_of_others,
    holes,
    in_words,
    is_corrupt_message,
    is_logged,
    is_named,
    is_refused,
    is_unknown,
    of_directories,
    of_others,
    other_groups,
    other_ids,
    other_lines,
    other_resets,
    others_first,
    others_in_json,
    records_in_json,
    settings_of_others,
    skipped_in_json,
    takes_the_first,
    tells,
    tells_of_damage,
    the_same_in_words,
    unread,
    verifies,
    without_coordinator,
)
from writing import CONFIG

import offsetlog
from offsetlog import Log, LogDir, OldLog, Scan, Server, WritableLog, open_cached

CLEAN = DATA / "kafka-4.3.0/clean"
ZOOKEEPER = DATA / "kafka-3.9.2-zookeeper/zookeeper"
NODE = "/kafka/east/cluster/id"
PLAIN = Golden(DATA / "expected/kafka-4.3.0-clean", CLEAN / "log-dir-1/g-plain-0")
NOW = 1_795_300_000_000
# With partitions in both folders, transactions, one of them open, cleaned segments, offsets that groups committed, a deleted start, nothing.
TOPICS = ("g-plain", "g-txn", "g-compact-txn", "g-codec-lz4", "g-deleted-prefix", "g-empty")
# Of `g-plain-0`, whose segments begin at 0, 62, 111 and 155.
OFFSETS = range(200)


class Place(NamedTuple):
    """A stopped broker's log dirs, ZooKeeper's data, and a partition of Kafka 0.7."""

    root: Path

    @property
    def dirs(self) -> list[Path]:
        return [self.root / name for name in ("log-dir-1", "log-dir-2", "metadata-dir")]

    @property
    def log(self) -> Path:
        return self.root / "log-dir-1/g-plain-0"

    @property
    def old(self) -> Path:
        return self.root / "old/clicks-7"

    def run(self, *words: object) -> Ran:
        """The command; the folder's name stands for it in what it prints."""
        done = command(*words)
        return Ran(done.code, *(text.replace(str(self.root), "ROOT") for text in done[1:]))


def _left_out(_: str, names: list[str]) -> list[str]:
    """Every file is looked at before and after each call."""
    return [name for name in names if name.startswith("g-") and name.rpartition("-")[0] not in TOPICS]


def made(root: Path) -> Place:
    """Copies of what programs of others wrote, with the lock files that a broker leaves behind."""
    shutil.copytree(CLEAN, root, ignore=_left_out)
    shutil.copytree(ZOOKEEPER, root / "zookeeper")
    place = Place(root)
    partition(place.old, [message(b"one") + message(b"two"), message(b"three")])
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for folder in place.dirs:
        (folder / ".lock").touch()
    return place


def _old(root: Path) -> Bad:
    """The second message, at position 13 of the first file."""
    file = Path("old/clicks-7") / f"{0:020}.kafka"
    data = bytearray((root / file).read_bytes())
    data[-1] ^= 1
    (root / file).write_bytes(data)
    return Bad(key_of(root / file), file, 13, 13, frozenset({13}))


def _zookeeper(root: Path) -> Bad:
    """The first transaction of a log, which has a header of 16 bytes."""
    file = Path("zookeeper/version-2/log.1")
    data = bytearray((root / file).read_bytes())
    data[40] ^= 1
    (root / file).write_bytes(data)
    return Bad(offsetlog.TopicPartition("", 0), file, 16)


def _settings(root: Path) -> Bad:
    file = Path("log-dir-1/g-plain-0") / CONFIG
    (root / file).write_bytes(b"\xffgarbage\n")
    return Bad(key_of(root / file), file, 0)


DAMAGES: dict[str, Callable[[Path], Bad]] = {
    # A bit of a batch in a closed segment; every verb is tried on it.
    "a record": lambda root: flipped(root, f"log-dir-1/g-plain-0/{62:020}.log"),
    # These are tried where something is said of them.
    "the first record": lambda root: flipped(root, f"log-dir-1/g-plain-0/{0:020}.log", first=True),
    "a commit": lambda root: flipped(root, f"log-dir-1/__consumer_offsets-0/{0:020}.log"),
    "a transaction": lambda root: flipped(root, f"log-dir-1/__transaction_state-1/{0:020}.log"),
    "metadata": lambda root: flipped(root, f"metadata-dir/__cluster_metadata-0/{0:020}.log"),
    "a message": _old,
    "zookeeper": _zookeeper,
    "settings": _settings,
}
Hits: TypeAlias = Callable[[Bad], Mapping[Any, Check]]


class Read(NamedTuple):
    """A way to call a verb."""

    opens: Callable[[Place], AbstractContextManager[Any]]
    call: Callable[[Any], Answer]
    hits: Mapping[str, Hits] = {}
    """The parts that a damage touches. All others are as without it."""


def here(place: Place) -> AbstractContextManager[Place]:
    return nullcontext(place)


def a_log(place: Place) -> AbstractContextManager[Log]:
    return Log.open(place.log)


def all_dirs(place: Place) -> AbstractContextManager[LogDir]:
    return LogDir.open(place.dirs)


def an_old_log(place: Place) -> AbstractContextManager[OldLog]:
    return nullcontext(OldLog.open(place.old))


def a_writer(place: Place) -> AbstractContextManager[WritableLog]:
    return Log.open(place.log, "a", single_replica=True)


def one(name: str, check: Check) -> Mapping[str, Hits]:
    """This damage touches the only part."""
    return {name: lambda _: {"": check}}


def at_lost(check: Check) -> Mapping[str, Hits]:
    """A part for each offset: those of the damaged batch."""
    return {"a record": lambda bad: dict.fromkeys(bad.lost, check)}


def of_property(opens: Callable[[Place], AbstractContextManager[Any]], *names: str, kind: str) -> dict[str, Read]:
    return {f"{kind}.{name}": Read(opens, lambda handle, name=name: {"": getattr(handle, name)}) for name in names}  # type: ignore[misc]  # bound now


def simple(
    opens: Callable[[Place], AbstractContextManager[Any]], call: Callable[[Any], object], hits: Mapping[str, Hits] | None = None
) -> Read:
    return Read(opens, lambda handle: {"": attempt(lambda: call(handle))}, hits or {})


def each_of(numbers: Iterable[int], ask: Callable[[int], object]) -> Answer:
    """A part for each: its answer, or its error."""
    return {number: attempt(partial(ask, number)) for number in numbers}


TIMES = sorted({query.when for query in PLAIN.time_queries} | {row.timestamp for row in PLAIN.rows})


def first_at(when: int) -> int | None:
    """The offset that a broker answers."""
    return next((row.offset for row in PLAIN.rows if row.timestamp >= when), None)


def times_of(bad: Bad) -> list[int]:
    """Times whose answer is in the damaged batch."""
    return [when for when in TIMES if first_at(when) in bad.lost]


LOST_AT = next(row.timestamp for row in PLAIN.rows if row.offset == 84)


class Scans(NamedTuple):
    """Two scans of one log: what they do at damage."""

    raising: Scan
    skipping: Scan


@contextmanager
def scans(place: Place) -> Iterator[Scans]:
    with Log.open(place.log) as log:
        yield Scans(log.scan(), log.scan(on_corrupt="skip"))


def rows_of(read: Callable[[Scan], Any]) -> Callable[[Scans], Answer]:
    def call(of: Scans) -> Answer:
        return {"": attempt(lambda: read(of.raising)), "skipped": read(of.skipping), "holes": list(of.skipping.report.holes)}

    return call


def of_rows(skipped: Check) -> Mapping[str, Hits]:
    return {"a record": lambda _: {"": is_named, "skipped": skipped, "holes": holes}}


def fetched(address: str, offsets: Mapping[int, int]) -> dict[int, tuple[int, bool]]:
    """Fetch 4 of these partitions of `g-plain`: the error of each, and whether there are bytes."""
    wire = Wire(address)
    try:
        name = b"g-plain"
        body = struct.pack(">iiiibih7si", -1, 0, 0, 1 << 20, 0, 1, len(name), name, len(offsets))
        body += b"".join(struct.pack(">iqi", number, offset, 1 << 14) for number, offset in offsets.items())
        answer = wire.ask(1, 4, body)
    finally:
        wire.socket.close()
    at, found = 4 + 4 + 2 + len(name) + 4, {}
    for _ in offsets:
        number, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        at += 26 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        found[number] = error, size > 0
        at += 4 + max(size, 0)
    return found


class Served(NamedTuple):
    server: Server
    place: Place


@contextmanager
def a_server(place: Place) -> Iterator[Served]:
    with Server(place.dirs, metrics="127.0.0.1:0") as server:
        yield Served(server, place)


def asked(address: str) -> Answer:
    """What a client gets: before what the tests damage, there, and behind it."""
    return {offset: fetched(address, {0: offset, 1: offset, 2: offset}) for offset in (0, 84, 150)}


def stopped(served: Served) -> Answer:
    """Served, and stopped, twice, beside a second one at another port."""
    with Server(served.place.dirs) as second:
        assert second.bootstrap_servers != served.server.bootstrap_servers
        answer = asked(second.bootstrap_servers)
        second.stop()
        second.stop()
        return answer | {"running": second.running}


def metrics_of(served: Served) -> Answer:
    """The ends of the partitions, and how much damage fetches have found."""
    asked(served.server.bootstrap_servers)
    lines = served.server.metrics().splitlines()
    ends = [line for line in lines if line.startswith("offsetlog_serve_log_")]
    return {"ends": ends, "count": [line for line in lines if line.startswith(f"{DAMAGE_COUNT} ")]}


def events_of(served: Served) -> Answer:
    asked(served.server.bootstrap_servers)
    return {"": [event for event in served.server.events() if event.level != "info"]}


def address_of(served: Served) -> Answer:
    return {"": served.server.bootstrap_servers.partition(":")[0]} | asked(served.server.bootstrap_servers)


def metrics_address_of(served: Served) -> Answer:
    with urlopen(f"http://{served.server.metrics_address}/metrics", timeout=300) as answer:
        text = answer.read().decode()
    return {"": [line for line in text.splitlines() if line.startswith("offsetlog_serve_log_")]}


def served_by_command(place: Place) -> Answer:
    """The command, until a client has asked; then what it logged."""
    told = [sys.executable, "-m", "offsetlog", "serve", "--listen", "127.0.0.1:0", "--json", *map(str, place.dirs)]
    with subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        answer = asked(first["bootstrap_servers"])
        process.terminate()
        rest = [json.loads(line) for line in process.stdout]
        assert process.wait(300) == 0
    return answer | {"told": [event["text"] for event in rest if event["level"] != "info"], "event": first["event"]}


def of_command(*words: str, paths: Callable[[Place], list[Path]] = lambda place: place.dirs) -> Callable[[Place], Ran]:
    return lambda place: place.run(*words, *paths(place))


def parts(**calls: Callable[[Place], Ran]) -> Callable[[Place], Answer]:
    return lambda place: {name: call(place) for name, call in calls.items()}


READS: dict[str, Read] = {
    "Log.open": simple(here, lambda place: repr(Log.open(place.log))),
    "open_cached": Read(
        here, lambda place: {"": repr(open_cached(place.log)), "same": open_cached(place.log) is open_cached(place.log)}
    ),
    "OldLog.open": simple(here, lambda place: repr(OldLog.open(place.old))),
    "Scan.over": Read(
        a_log,
        lambda log: {
            "": Scan.over(log.splits(max_bytes=1000)).explain(),
            "records": ended(lambda: Scan.over(log.splits(max_bytes=1000))),
        },
        {"a record": lambda _: {"records": before_it}},
    ),
    "Scan.report": simple(scans, lambda of: of.raising.report),
    **of_property(a_log, "path", "topic", "partition", "mode", "closed", kind="Log"),
    **of_property(
        a_log,
        "log_start_offset",
        "log_end_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "topic_id",
        "segments",
        "size_bytes",
        kind="Log",
    ),
    **of_property(an_old_log, "path", "topic", "partition", "log_start_offset", "log_end_offset", "size_bytes", kind="OldLog"),
    "Log.get": Read(a_log, lambda log: each_of(OFFSETS, log.get), at_lost(is_named)),
    "Log.locate": Read(a_log, lambda log: each_of(OFFSETS, log.locate), at_lost(is_named)),
    "Log.fetch": Read(a_log, lambda log: each_of(OFFSETS, partial(log.fetch, max_bytes=1)), at_lost(is_named)),
    "Log.batches": simple(a_log, lambda log: list(log.batches())),
    "Log.offset_for_timestamp": Read(
        a_log,
        lambda log: each_of(TIMES, log.offset_for_timestamp),
        {"a record": lambda bad: dict.fromkeys(times_of(bad), is_named)},
    ),
    "Log.splits": simple(a_log, lambda log: log.splits(max_bytes=1000)),
    "Log.scan": Read(
        a_log,
        lambda log: {
            "": ended(log.scan),
            "behind": ended(lambda: log.scan(100)),
            "committed": ended(lambda: log.scan(isolation_level="read_committed")),
        },
        {"a record": lambda _: {"": before_it, "committed": before_it}},
    ),
    "Log.take": Read(
        a_log,
        lambda log: {"": list(log.take([150, 3])), "lost": ended(lambda: log.take([5, 84, 3]))},
        {"a record": lambda _: {"lost": takes_the_first}},
    ),
    "Scan.count": Read(scans, rows_of(Scan.count), of_rows(counts_the_others)),
    "Scan.to_arrow": Read(scans, rows_of(lambda scan: scan.to_arrow().to_pylist()), of_rows(but_it)),
    "Scan.to_polars": Read(scans, rows_of(lambda scan: scan.to_polars().to_dicts()), of_rows(but_it)),
    "Scan.to_pandas": Read(scans, rows_of(lambda scan: scan.to_pandas()[["offset", "value"]].to_dict("records")), of_rows(but_it)),
    "Scan.explain": simple(scans, lambda of: of.raising.explain()),
    "Scan.follow": Read(
        scans,
        lambda of: {
            "": ended(lambda: of.raising.follow(timeout_ms=0)),
            "skipped": list(of.skipping.follow(timeout_ms=0)),
            "holes": list(of.skipping.report.holes),
        },
        {"a record": lambda _: {"": before_it, "skipped": but_it, "holes": holes}},
    ),
    "Log.verify": simple(a_log, lambda log: log.verify(), one("a record", finds_it)),
    "verify": simple(here, lambda place: offsetlog.verify(*place.dirs), one("a record", finds_it)),
    "Log.refresh": simple(a_log, lambda log: log.refresh()),
    "LogDir.refresh": simple(all_dirs, lambda log_dir: log_dir.refresh()),
    "OldLog.read": Read(
        an_old_log,
        lambda log: each_of((0, 13, 26), log.read),
        {"a message": lambda bad: dict.fromkeys(bad.lost, is_named)},
    ),
    "OldLog.scan": Read(
        an_old_log,
        lambda log: {"": ended(log.scan), "behind": ended(lambda: log.scan(26))},
        {"a message": lambda _: {"": before_it}},
    ),
    **of_property(a_writer, "config", "recovery_point", "durable_end_offset", "recovery_report", kind="Log"),
    "Log.end_offset_for_epoch": Read(a_writer, lambda log: {epoch: log.end_offset_for_epoch(epoch) for epoch in range(7)}),
    "folder_kind": Read(
        here,
        lambda place: {
            path.name: offsetlog.folder_kind(path)
            for path in (place.root, *place.dirs, place.log, place.old, place.root / "zookeeper")
        },
    ),
    "LogDir.open": simple(here, lambda place: repr(LogDir.open(place.dirs))),
    **of_property(all_dirs, "paths", "mode", "closed", kind="LogDir"),
    "LogDir.topics": simple(all_dirs, lambda log_dir: log_dir.topics()),
    "LogDir.partitions": simple(all_dirs, lambda log_dir: log_dir.partitions()),
    "LogDir.log": Read(all_dirs, lambda log_dir: {key: repr(log_dir.log(*key)) for key in log_dir.partitions()}),
    "LogDir.beginning_offsets": simple(all_dirs, lambda log_dir: log_dir.beginning_offsets()),
    "LogDir.end_offsets": Read(
        all_dirs, lambda log_dir: {"": log_dir.end_offsets(), "committed": log_dir.end_offsets(isolation_level="read_committed")}
    ),
    "LogDir.offsets_for_times": Read(
        all_dirs,
        lambda log_dir: {
            "": log_dir.offsets_for_times(dict.fromkeys(log_dir.partitions(), 0)),
            "lost": attempt(lambda: log_dir.offsets_for_times(dict.fromkeys(log_dir.partitions(), LOST_AT))),
        },
        {"a record": lambda _: {"lost": unread(of_others)}},
    ),
    "LogDir.scan": Read(
        all_dirs,
        lambda log_dir: {
            "": ended(log_dir.scan),
            "count": attempt(lambda: log_dir.scan().count()),
            "skipped": log_dir.scan(on_corrupt="skip").count(),
        },
        {"a record": lambda _: {"": others_first, "count": counts_what_it_gives, "skipped": counts_the_others}},
    ),
    "LogDir.groups": simple(all_dirs, lambda log_dir: log_dir.groups(), one("a commit", unread(other_groups))),
    "LogDir.groups_prometheus": simple(
        all_dirs, lambda log_dir: log_dir.groups_prometheus(now=NOW), one("a commit", unread(other_lines))
    ),
    "LogDir.groups_reset_csv": simple(all_dirs, lambda log_dir: log_dir.groups_reset_csv(), one("a commit", other_resets)),
    "LogDir.transactions": simple(all_dirs, lambda log_dir: log_dir.transactions(), one("a transaction", unread(other_ids))),
    "LogDir.producers": simple(all_dirs, lambda log_dir: log_dir.producers(), one("a transaction", without_coordinator)),
    "LogDir.metadata": simple(all_dirs, lambda log_dir: log_dir.metadata(), one("metadata", is_named)),
    "LogDir.strays": simple(all_dirs, lambda log_dir: log_dir.strays(), one("metadata", is_named)),
    "LogDir.why": simple(all_dirs, lambda log_dir: log_dir.why(now=NOW), one("metadata", answers_name_it)),
    "LogDir.topic_settings": simple(all_dirs, lambda log_dir: log_dir.topic_settings("g-plain"), one("metadata", is_unknown)),
    "LogDir.topic_config": simple(all_dirs, lambda log_dir: log_dir.topic_config("g-plain"), one("settings", is_named)),
    "zookeeper_node": simple(here, lambda place: offsetlog.zookeeper_node(place.root / "zookeeper", NODE), one("zookeeper", is_named)),
    "identity": simple(here, lambda place: offsetlog.identity(*place.dirs), one("metadata", cannot_be_told)),
    "metadata_as_commands": simple(here, lambda place: offsetlog.metadata_as_commands(*place.dirs), one("metadata", of_directories)),
    "metadata_as_yaml": simple(here, lambda place: offsetlog.metadata_as_yaml(*place.dirs), one("metadata", of_directories)),
    "Server.stop": Read(a_server, stopped, {"a record": lambda _: {84: is_corrupt_message}}),
    "Server.bootstrap_servers": Read(a_server, address_of, {"a record": lambda _: {84: is_corrupt_message}}),
    "Server.metrics_address": Read(a_server, metrics_address_of),
    "Server.running": Read(a_server, lambda served: {"": served.server.running}),
    "Server.connections": Read(a_server, lambda served: {"": served.server.connections}),
    "Server.metrics": Read(a_server, metrics_of, {"a record": lambda _: {"count": counts_damage}}),
    "Server.events": Read(a_server, events_of, one("a record", tells_of_damage)),
    "offsetlog ls": Read(
        here,
        parts(json=of_command("ls", "--json"), table=of_command("ls")),
        {
            "the first record": lambda _: {"json": others_in_json, "table": tells},
            "metadata": lambda _: dict.fromkeys(("json", "table"), the_same_in_words),
        },
    ),
    "offsetlog cat": Read(
        here,
        parts(
            json=of_command("cat", "--json", "-t", "g-plain"),
            skip=of_command("cat", "--json", "-t", "g-plain", "--on-corrupt", "skip"),
        ),
        {"a record": lambda _: {"json": records_in_json, "skip": skipped_in_json}},
    ),
    "offsetlog grep": Read(
        here,
        parts(
            json=of_command("grep", "--json", "alpha", "-t", "g-plain"),
            all=of_command("grep", "--json", "", "-t", "g-plain"),
            skip=of_command("grep", "--json", "", "-t", "g-plain", "--on-corrupt", "skip"),
        ),
        {"a record": lambda _: {"json": records_in_json, "all": records_in_json, "skip": skipped_in_json}},
    ),
    "offsetlog dump": Read(
        here, parts(json=of_command("dump", paths=lambda place: [place.log])), {"a record": lambda _: {"json": dumps_the_others}}
    ),
    "offsetlog explain": Read(
        here,
        parts(
            before=of_command("explain", "--json", "5", paths=lambda place: [place.log]),
            lost=of_command("explain", "--json", "84", paths=lambda place: [place.log]),
            behind=of_command("explain", "150", paths=lambda place: [place.log]),
        ),
        {"a record": lambda _: {"lost": is_refused}},
    ),
    "offsetlog time": Read(
        here,
        parts(json=of_command("time", "--json", str(LOST_AT), "-t", "g-plain"), early=of_command("time", "0")),
        {"a record": lambda _: {"json": others_in_json}},
    ),
    "offsetlog groups": Read(
        here,
        parts(
            json=of_command("groups", "--json", "--now", str(NOW)),
            table=of_command("groups", "--now", str(NOW)),
            csv=of_command("groups", "--reset-csv"),
        ),
        {"a commit": lambda _: {"json": groups_of_others, "table": tells, "csv": tells}},
    ),
    "offsetlog transactions": Read(
        here,
        parts(json=of_command("transactions", "--json"), table=of_command("transactions")),
        {"a transaction": lambda _: {"json": groups_of_others, "table": tells}},
    ),
    "offsetlog producers": Read(
        here,
        parts(json=of_command("producers", "--json", "--open", "--now", str(NOW))),
        {"a transaction": lambda _: {"json": in_words}},
    ),
    "offsetlog metadata": Read(
        here,
        parts(json=of_command("metadata", "--json"), table=of_command("metadata", "--configs")),
        {"metadata": lambda _: {"json": is_refused, "table": is_refused}},
    ),
    "offsetlog why": Read(
        here, parts(json=of_command("why", "--json", "--now", str(NOW))), {"metadata": lambda _: {"json": partial(tells, code=0)}}
    ),
    "offsetlog verify": Read(
        here,
        parts(json=of_command("verify", "--json", paths=lambda place: [place.log]), all=of_command("verify", "--json")),
        {"a record": lambda _: {"json": verifies, "all": verifies}},
    ),
    "offsetlog settings": Read(
        here, parts(json=of_command("settings", "--json")), {"settings": lambda _: {"json": settings_of_others}}
    ),
    "offsetlog serve": Read(here, served_by_command, {"a record": lambda _: {84: is_corrupt_message, "told": is_logged}}),
    "offsetlog completions": Read(here, parts(bash=of_command("completions", "bash", paths=lambda _: []))),
}
