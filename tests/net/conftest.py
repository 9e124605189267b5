"""What is served, once a run of the tests: each of the golden directories in a process of `offsetlog serve`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# What real brokers and consumers said, and how a broker is started, lie beside the tests of others.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "broker"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from asking import UNCLEAN_LOG_DIRS, commits
from client_programs import CLIENTS, Client
from clients import READING_SECONDS
from damaged import Damaged, damaged
from golden import CLEAN, CLEAN_LOG_DIRS, OLD_LOG_DIRS, named
from kafka.errors import KafkaError
from served import GoldenBroker, Kafka, serving  # the path comes first

from kafka import KafkaAdminClient

# For whoever changes a client program: the same questions to a real broker, where there is one.
BROKER_INSTEAD = os.environ.get("OFFSETLOG_NET_AGAINST") == "broker"


# Members and missing partitions that clients wait for, seconds each: `make test` has one client for each, `make proof` some, `make soak` all.
WAITING = {
    "test_a_group_goes_on_where_it_was",
    "test_a_group_of_two",
    "test_a_group_that_committed_under_a_later_epoch_reads_on",
    "test_damage_stops_a_client_loudly",
    "test_kcat_in_a_group_of_two",
    "test_members_that_come_and_go_together",
    "test_partitions_beside_a_missing_one_are_read",
}
ONE = {"confluent-kafka", "confluent-kafka-g-plain"}
SOME = {"", "aiokafka", "confluent-kafka", "java-4.3.0", "kafka-python"}
# An old client joins a group by older requests than the others do: one of them is in the proof as well.
MORE = {"test_a_group_of_two[java-2.8.2-g-plain]"}
# Ten seconds to two minutes each, beside others that show nearly the same.
LONG = {
    "test_a_broker_is_understood_the_same",
    "test_a_real_broker_answers_as_it_was_recorded",
    "test_a_stream_of_a_directory_that_grows",
    "test_damage_fails_a_query",
    "test_franz_go_reads_topics_without_an_id",
    "test_kafka_configs",
    "test_kcat",
    "test_kcat_in_a_group_of_two",
    "test_console_consumers_in_a_group_of_two",
    "test_kafka_get_offsets_beside_a_missing_partition",
    "test_spark_reads_by_its_own_source",
    "test_stories",
    "test_suite[franz-go]",
    "test_suite[kafka-python]",
    "test_the_console_consumer",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but one client of these to the proof, and all but some to the soak."""
    here = Path(__file__).resolve().parent
    for item in items:
        if item.path.parent != here:
            continue
        name, _, case = item.name.removesuffix("]").partition("[")
        if name in WAITING and case not in ONE:
            item.add_marker(pytest.mark.proof)
        is_some = item.name in MORE or case.removesuffix("-g-plain") in SOME
        if item.name in LONG or (name in WAITING and not is_some):
            item.add_marker(pytest.mark.newest)


@pytest.fixture(scope="module", params=[pytest.param(c, id=c.name, marks=[] if c.is_quick else pytest.mark.proof) for c in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    """One client library after the other."""
    found: Client = request.param
    return found


def wait_for_groups(broker: GoldenBroker) -> None:
    """Until it leads the partitions of the offsets it knows of no group, and says so without an error."""
    end = time.monotonic() + READING_SECONDS
    known: set[str] = set()
    while not known >= commits().keys():
        assert time.monotonic() < end, known
        # It answers with an error while it loads them.
        with contextlib.suppress(KafkaError), contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
            known = {each["group_id"] for each in admin.list_groups()}


@pytest.fixture(scope="session")
def golden_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenBroker]:
    """A real 4.3.0 broker on copies of the golden directories."""
    broker = GoldenBroker(tmp_path_factory.mktemp("net") / "broker")
    broker.format()
    with broker.running():
        wait_for_groups(broker)
        yield broker


@pytest.fixture(scope="session")
def clean(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The 4.3.0 cluster that was stopped."""
    if BROKER_INSTEAD:
        yield request.getfixturevalue("golden_broker")
        return
    with serving([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], tmp_path_factory.mktemp("net") / "clean") as server:
        yield server


@pytest.fixture(scope="session")
def beside(golden_broker: GoldenBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The same cluster, told with the settings of the broker that it is compared with."""
    if BROKER_INSTEAD:
        yield golden_broker
        return
    paths = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]
    with serving(paths, tmp_path_factory.mktemp("net") / "beside", "--broker", str(golden_broker.properties)) as server:
        yield server


@pytest.fixture(scope="session")
def unclean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The 4.3.0 broker that was killed while it was written to."""
    with serving(UNCLEAN_LOG_DIRS, tmp_path_factory.mktemp("net") / "unclean") as server:
        yield server


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The three 2.8.2 brokers, with message formats 0, 1 and 2."""
    with serving(OLD_LOG_DIRS, tmp_path_factory.mktemp("net") / "old") as server:
        yield server


@pytest.fixture(scope="session")
def with_damage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """A topic with a damaged batch, and a sound one beside it."""
    folder = tmp_path_factory.mktemp("damage")
    (golden,) = named("g-codec-gzip-0")
    first = damaged(golden, folder / "disk")
    (sound,) = named("g-plain-0")
    sound.copy(folder / "disk", checkpoints=False)
    with serving([folder / "disk"], folder / "serve") as server:
        yield Damaged(server, golden, first)
