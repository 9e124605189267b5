"""`offsetlog serve`, the command: what its options select, keep, decide and refuse, as docs/serving.md and docs/cli.md say it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import ssl
import struct
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.request import urlopen

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, Golden, expected_names
from kafka_wire import Wire
from pages import ROOT
from serve_process import ServeProcess, names, refused
from symptom_claims import checkpoint, shown_if_aborted
from writing import tree

from offsetlog import Log

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that newer Pythons call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import UnknownError
    from kafka.structs import OffsetAndMetadata

    from kafka import KafkaConsumer, TopicPartition

UNCLEAN = DATA / "kafka-4.3.0" / "unclean"
UNCLEAN_LOG_DIRS = (UNCLEAN / "log-dir-1", UNCLEAN / "log-dir-2")
METADATA = CLEAN / "metadata-dir"
CERTIFICATES = ROOT / "rust" / "offsetlog-net" / "tests" / "tls"
TLS = ("--tls-cert", CERTIFICATES / "server.pem", "--tls-key", CERTIFICATES / "server.key")
PLACE = TopicPartition("g-plain", 0)
SECONDS = 300


class Listening(Protocol):
    """What a client needs to know of a server."""

    @property
    def address(self) -> str:
        """For `bootstrap.servers`."""


@contextmanager
def consumer(server: Listening, **settings: object) -> Iterator[KafkaConsumer]:
    """A real consumer that commits when it is told to."""
    given = {"enable_auto_commit": False, "auto_offset_reset": "none", "fetch_max_wait_ms": 50, **settings}
    with closing(KafkaConsumer(bootstrap_servers=server.address, **given)) as found:
        yield found


def read(found: KafkaConsumer, place: TopicPartition, offset: int, end: int) -> list[int]:
    """The offsets of all records from there on, up to an end that the consumer reaches."""
    found.assign([place])
    found.seek(place, offset)
    seen: list[int] = []
    until = time.monotonic() + SECONDS
    while found.position(place) < end:
        assert time.monotonic() < until, (found.position(place), end)
        seen += [record.offset for record in found.poll(100).get(place, [])]
    return seen


def of_dead_cluster(group: str, place: TopicPartition) -> int:
    """What a group had committed, by Kafka's own decoder; the last record of a key holds."""
    found = 0
    for line in (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines():
        commit = json.loads(line)
        if commit["key"] == {"group": group, "topic": place.topic, "partition": place.partition}:
            found = int(commit["payload"]["offset"])
    return found


def tail(path: Path) -> str:
    """How errors name a path: with the folder that it is in."""
    return f"{path.parent.name}/{path.name}"


def committed(server: ServeProcess, group: str, place: TopicPartition = PLACE) -> int | None:
    """What a group has committed, by a client that begins anew."""
    with consumer(server, group_id=group) as found:
        offset: int | None = found.committed(place)
        return offset


def commit(server: ServeProcess, group: str, offset: int) -> None:
    with consumer(server, group_id=group) as found:
        found.assign([PLACE])
        found.commit({PLACE: OffsetAndMetadata(offset, "", -1)})


# --- What is served.


def test_all_that_is_here_is_served_up_to_its_last_whole_batch(tmp_path: Path) -> None:
    with ServeProcess(tmp_path, *UNCLEAN_LOG_DIRS) as server:
        told = server.partitions()
    assert told.keys() == names(UNCLEAN_LOG_DIRS)
    for name in expected_names("kafka-4.3.0-unclean"):
        golden = Golden(DATA / "expected" / "kafka-4.3.0-unclean", Path(str(told[name]["path"])))
        assert (told[name]["log_start_offset"], told[name]["log_end_offset"]) == (golden.start, golden.end), name


def test_until_the_high_watermark(tmp_path: Path) -> None:
    """Each partition ends where the killed leader's checkpoint does. A client that had read further waits there."""
    marks: dict[str, int] = {}
    for log_dir in UNCLEAN_LOG_DIRS:
        marks |= checkpoint(log_dir / "replication-offset-checkpoint")
    of_broker = {name: Golden(DATA / "expected" / "kafka-4.3.0-unclean", Path(name)) for name in marks}
    ends = {name: golden.end for name, golden in of_broker.items()}
    # The checkpoint may be older than what retention deleted since: as at a broker, no high watermark is below the log's start.
    wanted = {name: max(mark, of_broker[name].start) for name, mark in marks.items()}
    assert wanted != marks
    assert sum(marks[name] < ends[name] for name in marks) >= 10
    with ServeProcess(tmp_path, *UNCLEAN_LOG_DIRS, "--until", "high-watermark") as server:
        assert {name: each["log_end_offset"] for name, each in server.partitions().items()} == wanted
        with consumer(server) as found:
            offsets = read(found, PLACE, 0, marks["g-plain-0"])
            assert offsets == list(range(marks["g-plain-0"]))
            found.seek(PLACE, ends["g-plain-0"])
            assert found.poll(300) == {}
            assert found.position(PLACE) == ends["g-plain-0"]


def test_of_several_replicas_it_says_which_is_served_and_why_no_other(tmp_path: Path) -> None:
    stale, best = tmp_path / "a" / "g-plain-0", tmp_path / "b" / "g-plain-0"
    for path in (stale, best):
        shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", path)
    with Log.open(best, "a") as log:
        log.append(b"more")
    with ServeProcess(tmp_path, stale.parent, best.parent) as server:
        (told,) = server.partitions().values()
    assert Path(told["path"]) == best
    (other,) = told["others"]
    assert (list(other), Path(other["path"])) == (["path", "reason"], stale)
    assert other["reason"].startswith("ends at offset 200"), other
    with ServeProcess(tmp_path, stale.parent, best.parent, json=False) as server:
        assert f"\n  g-plain-0: {best}, not {stale}: {other['reason']}\n" in server.said()


def test_a_partition_that_the_checkpoint_lacks_ends_at_its_last_whole_batch(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(UNCLEAN / "log-dir-1", log_dir)
    file = log_dir / "replication-offset-checkpoint"
    version, count, *entries = file.read_text().splitlines()
    left = [entry for entry in entries if not entry.startswith("g-plain ")]
    assert len(left) == int(count) - 1
    file.write_text("\n".join([version, str(len(left)), *left, ""]))
    with ServeProcess(tmp_path, log_dir, "--until", "high-watermark") as server:
        told = server.partitions()
    assert told["g-plain-0"]["log_end_offset"] == Golden(DATA / "expected" / "kafka-4.3.0-unclean", Path("g-plain-0")).end
    assert told["g-codec-lz4-0"]["log_end_offset"] == checkpoint(file)["g-codec-lz4-0"]


def test_topics_are_selected(tmp_path: Path) -> None:
    with ServeProcess(tmp_path, *CLEAN_LOG_DIRS, METADATA, "-t", "g-plain", "--topic", "g-time") as server:
        assert [topic["topic"] for topic in server.served["topics"]] == ["g-plain", "g-time"]
        with consumer(server) as found:
            assert found.topics() == {"g-plain", "g-time"}
    error = refused(*CLEAN_LOG_DIRS, "-t", "g-plain", "-t", "g-plian", "--listen", "127.0.0.1:0")
    assert re.fullmatch(r"offsetlog: .*no topic g-plian is here\n", error), error


def test_the_metadata_supplies_ids_and_what_is_missing(tmp_path: Path) -> None:
    """One of two log dirs. A partition number without a directory is listed as offline, also the last one of a topic."""
    with ServeProcess(tmp_path, CLEAN / "log-dir-1", METADATA, "-t", "g-plain", "-t", "g-empty") as server:
        last, topic = server.served["topics"]
    assert [(each["partition"], each["path"] is None) for each in last["partitions"]] == [(0, False), (1, True)]
    text = (CLEAN / "log-dir-1" / "g-plain-0" / "partition.metadata").read_text()
    assert topic["topic_id"] == text.rpartition("topic_id: ")[2].strip()
    missing = [each for each in topic["partitions"] if each["path"] is None]
    assert [(each["partition"], each["log_end_offset"]) for each in missing] == [(1, None)]
    assert missing[0]["problem"]


# --- Open transactions.


def open_ones() -> list[Golden]:
    """Partitions in which a broker left a transaction open."""
    found = [golden for golden in CLEAN_PARTITIONS if golden.name in expected_names("kafka-4.3.0-clean")]
    return [golden for golden in found if golden.last_stable_offset < golden.end]


@pytest.mark.slow
def test_open_transactions_wait_or_end_as_decided(tmp_path: Path) -> None:
    """Nobody had prepared a commit: it is shown as aborted, and what others committed behind its start is read. Nothing is written."""
    (golden,) = open_ones()
    place = TopicPartition(golden.topic, golden.partition)
    before = tree(CLEAN)
    for words, end, rows in [
        ((), golden.last_stable_offset, golden.committed),
        (("--open-transactions", "wait"), golden.last_stable_offset, golden.committed),
        (("--open-transactions", "decide"), golden.end, shown_if_aborted(golden)),
    ]:
        with ServeProcess(tmp_path, *CLEAN_LOG_DIRS, METADATA, *words) as server:
            assert server.partitions()[golden.name]["last_stable_offset"] == end
            assert server.partitions()[golden.name]["log_end_offset"] == golden.end
            with consumer(server, isolation_level="read_committed") as found:
                assert read(found, place, golden.start, end) == [row.offset for row in rows]
    assert tree(CLEAN) == before


def test_without_the_coordinators_records_nothing_is_decided_unless_asked(tmp_path: Path) -> None:
    """Nobody can tell how the transaction ends, so the server does not start; all are aborted only if that is asked for."""
    (golden,) = open_ones()
    words = (golden.directory, "--open-transactions", "decide")
    error = refused(*words, "--listen", "127.0.0.1:0")
    assert "no partition of __transaction_state is here" in error, error
    assert "--without-state" in error
    with ServeProcess(tmp_path, *words, "--without-state") as server:
        assert server.partitions()[golden.name]["last_stable_offset"] == golden.end
    error = refused(golden.directory, "--without-state")
    assert error == "offsetlog: --without-state goes with --open-transactions decide\n"


# --- Groups.


@pytest.mark.slow
def test_commits_are_there_after_a_kill_with_a_directory_of_groups(tmp_path: Path) -> None:
    """And the groups of the dead cluster are there again, with what was committed here since."""
    words = (*CLEAN_LOG_DIRS, METADATA, "--groups", tmp_path / "groups")
    before = tree(CLEAN)
    first, second = PLACE, TopicPartition("g-plain", 1)
    old = {place: of_dead_cluster("g-group-2", place) for place in (first, second)}
    assert old == {first: 19, second: 200}
    with ServeProcess(tmp_path, *words) as server:
        assert committed(server, "g-group-2") == old[first]
        assert committed(server, "new") is None
        commit(server, "new", 17)
        commit(server, "g-group-2", 63)
        server.kill()
    with ServeProcess(tmp_path, *words) as server:
        assert (committed(server, "new"), committed(server, "g-group-2")) == (17, 63)
        assert committed(server, "g-group-2", second) == old[second]
    with ServeProcess(tmp_path, *words[:-2]) as server:
        assert (committed(server, "new"), committed(server, "g-group-2")) == (None, old[first])
    assert tree(CLEAN) == before


def test_one_server_at_a_time_has_a_directory_of_groups(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    words = (CLEAN / "log-dir-1", "-t", "g-plain", "--groups", groups)
    with ServeProcess(tmp_path, *words) as server:
        commit(server, "new", 17)
        error = refused(*words, "--listen", "127.0.0.1:0")
        assert re.fullmatch(rf"offsetlog: process {server.process.pid} writes this log; .*\.offsetlog\.lock\n", error), error
        commit(server, "new", 18)
        assert committed(server, "new") == 18


@pytest.mark.slow
def test_groups_are_in_no_log_dir_of_a_broker(tmp_path: Path) -> None:
    """Neither in one that is served, nor inside or around one, nor in one that is not served. No file there is changed."""
    served, other = tmp_path / "served", tmp_path / "other"
    for log_dir in (served, other):
        shutil.copytree(CLEAN / "log-dir-1", log_dir)
    topics = tmp_path / "topics"
    shutil.copytree(CLEAN / "log-dir-1" / "g-idem-0", topics / "g-idem-0")
    before = tree(tmp_path)
    for groups in (served, served / "groups", other, tmp_path, topics):
        error = refused(served, "-t", "g-plain", "--listen", "127.0.0.1:0", "--groups", groups)
        assert error.startswith("offsetlog: "), error
        assert tail(groups) in error, error
        after = tree(tmp_path)
        if groups == topics:
            # It might be one of ours until it is looked at, which takes its locks.
            after.pop("topics/.lock")
            after.pop("topics/offsetlog-shared.lock")
        assert after == before, groups


@pytest.mark.parametrize("named", [(METADATA,), ("--metadata", METADATA)], ids=["a path", "--metadata"])
def test_groups_whose_offsets_nobody_knows_are_an_error_unless_told(named: tuple[str | Path, ...], tmp_path: Path) -> None:
    """Half of `__consumer_offsets` is on the other disk, by the cluster's metadata."""
    words = (CLEAN / "log-dir-1", *named)
    with ServeProcess(tmp_path, *words) as server:
        assert committed(server, "g-group-2") == of_dead_cluster("g-group-2", PLACE)
        with pytest.raises(UnknownError):
            committed(server, "g-group-1")
        event = server.event("group-unknown")
        assert event["level"] == "error"
        assert "g-group-1" in event["text"]
        assert "__consumer_offsets-1" in event["text"]
    with ServeProcess(tmp_path, *words, "--without-offsets") as server:
        assert committed(server, "g-group-1") is None
        assert committed(server, "g-group-2") == of_dead_cluster("g-group-2", PLACE)


# --- Addresses.


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), ["--tls-cert", "--users", "--insecure"]),
        (TLS, ["--users", "--insecure"]),
        (("--users", "USERS"), ["--tls-cert", "--insecure"]),
        (("--listen", "127.0.0.1:0", "--advertise", "127.0.0.1:0"), ["--tls-cert", "--users", "--insecure"]),
    ],
    ids=["neither", "TLS", "users", "one of two, advertised"],
)
def test_an_address_for_others_needs_tls_and_users(words: tuple[str | Path, ...], wanted: list[str], tmp_path: Path) -> None:
    """It is refused before anything is bound or read, with what is missing."""
    (tmp_path / "users").write_text("ann=secret\n")
    given = [tmp_path / "users" if word == "USERS" else word for word in words]
    error = refused(tmp_path / "missing", *given, "--listen", "0.0.0.0:0")
    assert error.startswith("offsetlog: 0.0.0.0:0 can be reached by other machines"), error
    named_in_it = {option for option in ("--tls-cert", "--users", "--insecure") if option in error}
    assert named_in_it == set(wanted)


def test_metrics_for_others_are_refused_too(tmp_path: Path) -> None:
    error = refused(tmp_path / "missing", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0")
    assert error.startswith("offsetlog: metrics at 0.0.0.0:0 can be read by other machines"), error
    assert "--insecure" in error


def test_insecure_allows_it_and_clients_are_told_where_to_connect(tmp_path: Path) -> None:
    """A client cannot use 0.0.0.0, so it is told another address; port 0 means the one that is listened at."""
    words = (CLEAN / "log-dir-1", "-t", "g-plain", "--insecure", "--listen", "0.0.0.0:0")
    error = refused(*words)
    assert "--advertise" in error
    with ServeProcess(tmp_path, *words, "--advertise", "127.0.0.1:0") as server:
        (listening,) = server.served["listen"]
        port = int(listening.removeprefix("0.0.0.0:"))
        assert server.address == f"127.0.0.1:{port}"
        assert (server.served["encrypted"], server.served["sasl"]) == (False, False)
        with consumer(server) as found:
            assert read(found, PLACE, 190, 200) == list(range(190, 200))


def test_tls_and_users_allow_it(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ann=secret\n")
    words = (CLEAN / "log-dir-1", "-t", "g-plain", *TLS, "--users", tmp_path / "users", "--listen", "0.0.0.0:0")
    with ServeProcess(tmp_path, *words, "--advertise", "localhost:0") as server:
        assert (server.served["encrypted"], server.served["sasl"]) == (True, True)
        safe = {
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=CERTIFICATES / "ca.pem"),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "ann",
            "sasl_plain_password": "secret",
        }
        with consumer(server, **safe) as found:
            assert read(found, PLACE, 190, 200) == list(range(190, 200))
        assert "secret" not in server.said()


def test_several_addresses(tmp_path: Path) -> None:
    words = (CLEAN / "log-dir-1", "-t", "g-plain", "--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0")
    with ServeProcess(tmp_path, *words) as server:
        assert [address.partition(":")[0] for address in server.served["listen"]] == ["127.0.0.1", "127.0.0.2"]
        assert server.served["listen"][0] == server.address
        for address in server.served["listen"]:
            assert Wire(address).ask(18, 0, b"")[:2] == struct.pack(">h", 0)


# --- Its ends.


@pytest.mark.parametrize(("with_signal", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=str)
def test_it_ends_by_a_signal(with_signal: signal.Signals, code: int, tmp_path: Path) -> None:
    with ServeProcess(tmp_path, CLEAN / "log-dir-1", "-t", "g-idem", json=False) as server:
        assert server.stop(with_signal) == code
        assert server.logged() == ""


def big_log_dir(folder: Path) -> int:
    """A topic of one partition with more than the buffers of two sockets hold, and one without records. The size of the first one's log."""
    for topic, count in (("big", 80), ("quiet", 0)):
        with Log.open(folder / f"{topic}-0", "a") as log:
            for _ in range(count):
                log.append(bytes(500_000))
    size = (folder / "big-0" / "00000000000000000000.log").stat().st_size
    assert size > 40_000_000
    return size


def fetch(topic: str, wait_ms: int) -> bytes:
    """Fetch 4 of all of a topic with one partition, with its length in front."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, 1 << 30, 0)
    body += struct.pack(f">ih{len(topic)}siiqi", 1, len(topic), topic.encode(), 1, 0, 0, 1 << 30)
    request = struct.pack(">hhih", 1, 4, 7, -1) + body
    return struct.pack(">i", len(request)) + request


def received(client: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    got = bytearray()
    with suppress(ConnectionResetError):
        while part := client.recv(1 << 20):
            got += part
    return bytes(got)


@pytest.mark.parametrize(("with_signal", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=str)
def test_a_signal_ends_it_under_load(with_signal: signal.Signals, code: int, tmp_path: Path) -> None:
    """Long polls end without an answer. What is on its way comes whole to a client that reads; one that does not is closed, and sees it."""
    log_dir = tmp_path / "log-dir"
    size = big_log_dir(log_dir)
    with ServeProcess(tmp_path, log_dir, "--metrics", "127.0.0.1:0") as server:
        clients = [Wire(server.address).socket for _ in range(6)]
        polls, reads, stuck = clients[:3], clients[3:5], clients[5]
        for client in polls:
            client.sendall(fetch("quiet", 2**31 - 1))
        for client in [*reads, stuck]:
            client.sendall(fetch("big", 0))
        # The length, and then as much as nobody's buffers hold is still to come.
        lengths = [struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0] for client in [*reads, stuck]]
        assert min(lengths) > size
        until = time.monotonic() + SECONDS
        while b"requests_waiting 3" not in urlopen(f"http://{server.served['metrics']}/metrics").read():
            assert time.monotonic() < until, "the long polls are not there"
            time.sleep(0.01)
        server.process.send_signal(with_signal)
        with ThreadPoolExecutor() as threads:
            got = list(threads.map(received, [*polls, *reads]))
        assert got[:3] == [b""] * 3
        assert [len(answer) for answer in got[3:]] == lengths[:2]
        assert server.process.wait(SECONDS) == code
        # It has read nothing until now: what comes ends before the length that was told, so that no client takes it for an answer.
        assert len(received(stuck)) < lengths[2]
        with pytest.raises(ConnectionRefusedError):
            Wire(server.address)


def test_without_paths_and_with_wrong_ones_it_does_not_start(tmp_path: Path) -> None:
    assert "PATH" in refused()
    assert tail(tmp_path / "missing") in refused(tmp_path / "missing", "--listen", "127.0.0.1:0")
    (tmp_path / "empty").mkdir()
    assert tail(tmp_path / "empty") in refused(tmp_path / "empty", "--listen", "127.0.0.1:0")
    assert list((tmp_path / "empty").iterdir()) == []
