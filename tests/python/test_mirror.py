"""``offsetlog.mirror``: what Python adds to mirroring, and every golden topic through ``offsetlog.Server``, byte for byte.

What a source may do meanwhile is in ``rust/offsetlog-net/src/mirror/tests``, ``tests/reliability`` and ``tests/broker``.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, OLD_LOG_DIRS

import offsetlog
from offsetlog import ConfigError, LogDir, LogDirError, LogLockedError, MirrorEvent, MirrorProgress, MirrorReport, Server, mirror

CERTIFICATES = Path("rust/offsetlog-net/tests/tls")
SOURCES = {
    "clean": CLEAN_LOG_DIRS,
    "unclean": tuple((DATA / "kafka-4.3.0/unclean").glob("log-dir-*")),
    "live": tuple((DATA / "kafka-4.3.0/live").glob("log-dir-*")),
    "2.8.2": OLD_LOG_DIRS,
    "3.9.2": (DATA / "kafka-3.9.2-zookeeper/log-dir",),
}
FRAME = struct.Struct(">qi")


class EnoughError(Exception):
    """Raised by callbacks here."""


def frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Position and last offset of each batch, by a parser of its own."""
    at = 0
    while at + 17 <= len(data):
        base, size = FRAME.unpack_from(data, at)
        if size <= 0 or at + 12 + size > len(data):
            return
        delta = struct.unpack_from(">i", data, at + 23)[0] if data[at + 16] == 2 else 0
        yield at, base + delta
        at += 12 + size


def log_bytes(partition: Path) -> bytes:
    """A partition's segments, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))


def until(ask: Callable[[int], MirrorReport], is_enough: Callable[[MirrorReport], object], give_up_ms: int = 1500) -> MirrorReport:
    """What a mirror says that gives up: with more patience, if it gave up before it got so far, as on a busy machine."""
    report = ask(give_up_ms)
    while not is_enough(report) and give_up_ms < 100_000:
        give_up_ms *= 4
        report = ask(give_up_ms)
    return report


def bytes_from(partition: Path, start: int, stop: int) -> bytes:
    """The batches that reach from `start` on, up to `stop`."""
    data = log_bytes(partition)
    places = [(at, last) for at, last in frames(data) if start <= last < stop]
    if not places:
        return b""
    end = places[-1][0]
    return data[places[0][0] : end + 12 + FRAME.unpack_from(data, end)[1]]


def once(kafka: Server, into: Path, **options: object) -> MirrorReport:
    return mirror(kafka.bootstrap_servers, into, once=True, **options)  # type: ignore[arg-type]  # each by its name


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_every_golden_topic_is_copied_byte_for_byte(kind: str, tmp_path: Path) -> None:
    paths = SOURCES[kind]
    with LogDir.open(paths) as source, Server(paths) as kafka:
        topics = source.topics()
        # Internal ones are copied if they are named.
        report = once(kafka, tmp_path / "copy", topics=sorted(topics))
        assert report.is_complete, report
        assert not report.has_losses
        counts = {(each.topic, each.partition): each for each in report.partitions}
        assert counts.keys() == set(source.partitions())
        with LogDir.open(tmp_path / "copy") as copy:
            assert set(copy.partitions()) == set(source.partitions())
        compared = 0
        for at, each in counts.items():
            with source.log(*at) as log:
                theirs = bytes_from(Path(log.path), log.log_start_offset, log.log_end_offset)
                assert each.log_end_offset == log.log_end_offset, at
                topic_id = log.topic_id
            ours = log_bytes(tmp_path / "copy" / f"{at[0]}-{at[1]}")
            assert ours == theirs, at
            compared += len(ours)
            with LogDir.open(tmp_path / "copy") as copy, copy.log(*at) as log:
                assert topic_id is None or log.topic_id == topic_id
        # The topics of the cluster with ZooKeeper are empty.
        assert compared == report.bytes
        assert compared > 1000 or kind == "3.9.2"
        again = once(kafka, tmp_path / "copy", topics=sorted(topics))
        assert (again.is_complete, again.batches) == (True, 0)
    assert offsetlog.verify(tmp_path / "copy").errors == 0


@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_source_is_copied_up_to_the_damage(number: int, tmp_path: Path) -> None:
    path = DATA / f"kafka-4.3.0/torn/log-dir-{number}"
    with LogDir.open(path) as source, Server(path) as kafka:
        # Ended by its patience where a broker answers CORRUPT_MESSAGE.
        report = until(
            lambda patience: once(kafka, tmp_path / "copy", give_up_ms=patience),
            lambda it: sum(each.problem is None for each in it.partitions) > len(it.partitions) // 2,
            3000,
        )
        complete = 0
        for each in report.partitions:
            with source.log(each.topic, each.partition) as log:
                theirs = log_bytes(Path(log.path))
            ours = log_bytes(tmp_path / "copy" / f"{each.topic}-{each.partition}")
            assert theirs.startswith(ours), each
            if each.problem is None:
                complete += 1
                assert each.log_end_offset == each.high_watermark
        assert complete > len(report.partitions) // 2


@pytest.mark.parametrize("follows", [False, True])
def test_records_that_the_source_deleted_are_deleted_here_if_asked(tmp_path: Path, *, follows: bool) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    with LogDir.open(source, "a") as logs:
        logs.create_topic("orders", partitions=1, config={"segment.bytes": 1 << 20})
        for _ in range(5):
            logs.log("orders", 0).append_records([(None, bytes(400_000))] * 2)
    with Server(source) as kafka:
        once(kafka, copy, follow_deletes=follows)
    with LogDir.open(source, "a") as logs:
        logs.log("orders", 0).delete_records_before(5)
    with Server(source) as kafka:
        report = once(kafka, copy, follow_deletes=follows)
    assert (report.is_complete, report.has_losses) == (True, False)
    assert [event.kind for event in report.events] == ["deleted-records"]
    with LogDir.open(copy) as logs:
        log = logs.log("orders", 0)
        assert log.log_start_offset == (5 if follows else 0)
        # A segment holds one batch of two records.
        segments = sorted(path.name for path in Path(log.path).glob("*.log"))
        assert len(segments) == (3 if follows else 5), segments
        assert log.scan().count() == (5 if follows else 10)


def test_what_it_did_is_told_and_groups_go_along(tmp_path: Path) -> None:
    told: list[MirrorProgress] = []
    events: list[MirrorEvent] = []
    with Server([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]) as kafka:
        report = once(kafka, tmp_path / "copy", topics=["g-plain", "g-codec-*"], progress=told.append, event=events.append)
    assert {each.topic for each in report.partitions} == {
        "g-plain",
        *(f"g-codec-{it}" for it in ("gzip", "lz4", "none", "snappy", "zstd")),
    }
    assert told[-1].bytes == report.bytes > 0
    assert told[-1].partitions_done == told[-1].partitions == len(report.partitions)
    assert told[-1].lag == 0
    assert [each.bytes for each in told] == sorted(each.bytes for each in told)
    assert tuple(events) == report.events
    assert {event.kind for event in events} == {"new"}
    assert {event.topic for event in events} == {each.topic for each in report.partitions}
    assert all(each.lag == 0 and each.problem is None for each in report.partitions)
    with LogDir.open(CLEAN_LOG_DIRS) as source, LogDir.open(tmp_path / "copy") as copy:
        names = {each.topic for each in report.partitions}
        wanted = {
            (group.group_id, offset.topic, offset.partition, offset.offset)
            for group in source.groups()
            for offset in group.offsets
            if offset.topic in names
        }
        found = {
            (group.group_id, offset.topic, offset.partition, offset.offset) for group in copy.groups() for offset in group.offsets
        }
        assert found == wanted != set()
        assert report.groups == len({group for group, *_ in wanted})
        assert report.committed_offsets == len(wanted)
    with Server(CLEAN_LOG_DIRS) as kafka:
        assert once(kafka, tmp_path / "none", topics="g-plain", groups=False).groups == 0


@pytest.mark.parametrize("callback", ["progress", "event"])
def test_what_a_callback_raises_ends_it_and_the_next_call_goes_on(callback: str, tmp_path: Path) -> None:
    calls = []

    def enough(told: object) -> None:
        calls.append(told)
        raise EnoughError(len(calls))

    with Server(CLEAN_LOG_DIRS) as kafka:
        with pytest.raises(EnoughError, match=r"^1$"):
            mirror(kafka.bootstrap_servers, tmp_path, **{callback: enough})  # type: ignore[arg-type]  # one of the two
        assert len(calls) == 1
        # Closed: nobody holds a lock, and what is there is whole.
        with LogDir.open(tmp_path, "a"):
            pass
        assert offsetlog.verify(tmp_path).errors == 0
        report = once(kafka, tmp_path)
    assert report.is_complete


def test_ctrl_c_ends_it_with_everything_on_the_disk(tmp_path: Path) -> None:
    script = """
        import sys
        from offsetlog import LogDir, mirror

        def said(progress):
            if progress.partitions and progress.partitions == progress.partitions_done:
                print("copied", flush=True)

        try:
            mirror(sys.argv[1], sys.argv[2], progress=said)
        except KeyboardInterrupt:
            with LogDir.open(sys.argv[2], "a") as copy:
                print("interrupted", copy.log("g-plain", 0).log_end_offset)
    """
    with Server(CLEAN_LOG_DIRS) as kafka:
        command = [sys.executable, "-c", textwrap.dedent(script), kafka.bootstrap_servers, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "copied\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.read().splitlines()[-1] == "interrupted 200"
            assert process.wait(300) == 0


def test_a_signal_handler_that_raises_ends_it(tmp_path: Path) -> None:
    def handler(*_: object) -> None:
        raise EnoughError

    before = signal.signal(signal.SIGUSR1, handler)
    copied = threading.Event()

    def progress(done: MirrorProgress) -> None:
        if done.partitions and done.partitions == done.partitions_done:
            copied.set()

    def interrupt() -> None:
        assert copied.wait(300)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt, daemon=True)
    try:
        thread.start()
        with Server(CLEAN_LOG_DIRS) as kafka, pytest.raises(EnoughError):
            mirror(kafka.bootstrap_servers, tmp_path, topics="g-plain", progress=progress)
    finally:
        thread.join(300)
        signal.signal(signal.SIGUSR1, before)
    with LogDir.open(tmp_path, "a") as copy:
        assert copy.log("g-plain", 0).log_end_offset == 200


def test_python_runs_meanwhile_and_another_mirror_of_the_directory_is_refused(tmp_path: Path) -> None:
    over = threading.Event()
    begun = threading.Event()
    raised: list[BaseException] = []

    def progress(_: MirrorProgress) -> None:
        begun.set()
        if over.is_set():
            raise EnoughError

    def run() -> None:
        try:
            mirror(kafka.bootstrap_servers, tmp_path, topics="g-plain", progress=progress)
        except EnoughError as error:
            raised.append(error)

    with Server(CLEAN_LOG_DIRS) as kafka:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert begun.wait(300)
            with pytest.raises(LogLockedError):
                once(kafka, tmp_path)
        finally:
            over.set()
            thread.join(300)
    assert [type(error) for error in raised] == [EnoughError]


def test_a_directory_mirrors_one_cluster_and_nothing_else(tmp_path: Path) -> None:
    with Server(CLEAN_LOG_DIRS) as kafka:
        once(kafka, tmp_path / "copy", topics="g-plain")
    with Server(OLD_LOG_DIRS[0]) as kafka, pytest.raises(LogDirError, match="a mirror of cluster"):
        once(kafka, tmp_path / "copy")
    (tmp_path / "other" / "orders-0").mkdir(parents=True)
    with Server(CLEAN_LOG_DIRS) as kafka, pytest.raises(LogDirError, match="a mirror needs a directory of its own"):
        once(kafka, tmp_path / "other")


def test_tls_and_users(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann=secret\n")
    own, key = CERTIFICATES / "server.pem", CERTIFICATES / "server.key"
    login = 'org.apache.kafka.common.security.{0}.{1}LoginModule required username="ann" password="{2}";'
    with Server(CLEAN_LOG_DIRS, tls_certificate=own, tls_key=key, users=users) as kafka:
        address = kafka.bootstrap_servers.replace("127.0.0.1", "localhost")
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login.format("scram", "Scram", "secret"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
        }
        assert mirror(address, tmp_path / "mapping", topics="g-plain", once=True, config=settings).is_complete
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in {**settings, "bootstrap.servers": address}.items()))
        assert mirror([], tmp_path / "file", topics="g-plain", once=True, config=file).is_complete
        wrong = {**settings, "sasl.jaas.config": login.format("scram", "Scram", "other")}
        report = until(
            lambda patience: mirror(address, tmp_path / "wrong", once=True, config=wrong, give_up_ms=patience), lambda it: it.events
        )
        assert not report.is_complete
        assert not report.partitions
        (event,) = report.events
        assert (event.kind, "no broker answers yet" in event.message) == ("problem", True)


@pytest.mark.parametrize("names_types", [True, False])
def test_pkcs12_stores_as_java_has_them(tmp_path: Path, *, names_types: bool) -> None:
    own, key, authority = (CERTIFICATES / name for name in ("server.pem", "server.key", "ca.pem"))
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(CERTIFICATES / "ca.p12"),
        "ssl.truststore.password": "secret",
        "ssl.keystore.location": str(CERTIFICATES / "client.p12"),
        "ssl.keystore.password": "secret",
        "ssl.key.password": "secret",
    }
    if names_types:
        settings |= {"ssl.truststore.type": "PKCS12", "ssl.keystore.type": "PKCS12"}
    with Server(CLEAN_LOG_DIRS, tls_certificate=own, tls_key=key, tls_client_ca=authority) as kafka:
        address = kafka.bootstrap_servers.replace("127.0.0.1", "localhost")
        assert mirror(address, tmp_path / "copy", topics="g-plain", once=True, config=settings).is_complete
        # PEM beside PKCS12.
        mixed = {**settings, "ssl.truststore.location": str(authority), "ssl.truststore.type": "PEM"}
        del mixed["ssl.truststore.password"]
        assert mirror(address, tmp_path / "mixed", topics="g-plain", once=True, config=mixed).is_complete
        # Without a certificate the server lets nobody in.
        stranger = {name: value for name, value in settings.items() if not name.startswith(("ssl.key",))}
        assert not mirror(address, tmp_path / "none", once=True, config=stranger, give_up_ms=1000).is_complete


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"bootstrap": "kafka"}, ConfigError, "HOST:PORT expected"),
        ({"bootstrap": []}, ConfigError, "no broker given"),
        ({"config": {"group.id": "x"}}, ConfigError, "group.id is no setting of a mirror"),
        ({"config": {"sasl.mechanism": "GSSAPI", "security.protocol": "SASL_PLAINTEXT"}}, ConfigError, "GSSAPI"),
        ({"config": {"client.id": b"x"}}, TypeError, "client.id'] must be text"),
        ({"config": {5: "x"}}, ConfigError, "5 is no setting of a mirror"),
        ({"config": 5}, TypeError, "config must be a mapping or a path"),
        ({"config": "missing.properties"}, FileNotFoundError, "missing.properties"),
        ({"topics": [5]}, TypeError, "topics"),
        ({"fetch_max_bytes": 0}, ConfigError, "at least 1"),
        ({"fetch_max_bytes": 1 << 31}, ConfigError, "must be below"),
        ({"refresh_ms": "1"}, TypeError, "refresh_ms"),
        ({"give_up_ms": 0}, ConfigError, "at least 1"),
        ({"progress": 5}, TypeError, "progress must be callable"),
        ({"event": 5}, TypeError, "event must be callable"),
        ({"into": b"x"}, TypeError, "path"),
        ({"nothing": 5}, TypeError, "nothing"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, object], error: type[Exception], expected: str, tmp_path: Path) -> None:
    given: dict[str, object] = {"bootstrap": "127.0.0.1:1", "into": tmp_path / "copy", "once": True, "give_up_ms": 100, **options}
    with pytest.raises(error, match=expected):
        mirror(**given)  # type: ignore[arg-type]  # wrong on purpose
    assert not (tmp_path / "copy").exists()


def test_brokers_that_do_not_answer_are_given_up(tmp_path: Path) -> None:
    # It ends, or the test never does.
    report = mirror("127.0.0.1:1", tmp_path, once=True, give_up_ms=500)
    assert not report.is_complete
    assert report.cluster_id is None
