"""What ``docs/verbs.md`` says of whose settings a verb goes by is tried: what is appended shows it by its codec, much by what stays the same.

For the rest the tests that show it are named, verb by verb.
"""

from __future__ import annotations

import base64
from pathlib import Path

import metadata_records
import pytest
import verbs_page
from stored_records import Stored, of_partition
from test_known_replicas import Place
from test_verbs_again import CHANGING, copy_of, succeeded
from test_verbs_failures import contents
from verb_calls import CALLS, SETTINGS, made
from verbs_page import Row

from offsetlog import Log, LogDir

MINE, TOPICS = "python/test_settings_of_verbs.py", "python/test_topics.py"
CLUSTER, UNKNOWN = "python/test_cluster.py", "python/test_restore_unknown.py"
WHOSE = "python/test_whose_settings.py"
OF_UPKEEP = {
    f"{MINE}::test_upkeep_in_a_brokers_log_dir_goes_by_the_highest_layer",
    f"{MINE}::test_upkeep_alone_goes_by_the_stored_settings_alone",
}
# By recovery, by salvage and conversion, by a mirror: the call of Python and the command are tried in one.
OF_INDEXES = {
    f"{MINE}::test_recovery_makes_the_indexes_by_the_stored_interval",
    f"{MINE}::test_recovery_makes_no_index_larger_than_the_stored_settings_let_it_be",
}
OF_COPIES = {
    f"{MINE}::test_a_copy_has_the_settings_of_the_old_one_and_is_cut_by_them",
    f"{MINE}::test_a_copy_of_what_has_no_settings_has_none",
}
OF_MIRRORS = {f"{MINE}::test_a_mirror_has_the_topics_settings_and_does_nothing_by_them"}
OF_NEW_ONES = {
    f"{MINE}::test_new_settings_are_stored_and_the_next_append_goes_by_them",
    f"{MINE}::test_new_settings_in_a_brokers_log_dir_change_nothing_there",
}
OF_DELETED = {f"{MINE}::test_a_deleted_topic_waits_as_long_as_the_log_dirs_defaults_say"}

# What a cell says -> how it shows; or, of each verb that it is said of, the tests that show it.
SAID: dict[str, str | dict[str, set[str]]] = {
    "*own settings*": "own",
    "*own settings*, then `defaults=`": "own",
    "*own settings*; `--config` is stored": "own",
    "none: batches stay as they are": "as they are",
    "none": "none",
    "none; retention and `cleanup.policy`, the topic's own, the dynamic ones and those of `--broker`, only to tell what would go": "none",
    "asked for, whatever the policy says; `delete.retention.ms` counts": "none",
    "given ones are stored": {
        "Log.open": {"python/test_append_settings.py::test_config_is_stored_and_kept"},
        "LogDir.create_topic": {f"{MINE}::test_each_partition_of_a_new_topic_stores_what_was_given"},
        "offsetlog create": {f"{MINE}::test_each_partition_of_a_new_topic_stores_what_was_given"},
    },
    "`defaults=` hold and are not stored": {
        "LogDir.open": {f"{MINE}::test_defaults_hold_while_they_are_given_and_nowhere_afterwards"}
    },
    "as of the log dir": {
        "LogDir.log": {
            f"{TOPICS}::test_a_topic_has_its_id_and_defaults_are_not_stored",
            "python/test_verbs_settings.py::test_in_a_brokers_log_dir_the_highest_layer_holds",
        }
    },
    "stored ones, for indexes": {"recover": OF_INDEXES, "offsetlog recover": OF_INDEXES},
    "those stored with the old one": {"salvage": OF_COPIES, "offsetlog salvage": OF_COPIES},
    "the topics' own, from the metadata among the sources; without it Kafka's own for internal topics, and what is "
    "unknown is told; retention that would delete at once or soon, or that nobody knows, is set to -1 in a new cluster, and a topic that "
    "was not compacted gets `cleanup.policy=delete` where the brokers compact; elsewhere both are told": {
        "restore": {
            "python/test_restore_new_cluster.py::test_a_new_cluster_gets_its_topics_before_it_starts",
            "python/test_restore_new_cluster.py::test_retention_does_not_delete_what_was_just_restored",
            "python/test_restore_new_cluster.py::test_retention_that_nobody_knows_deletes_nothing",
            "python/test_restore_retention.py::test_retention_is_what_holds_on_the_broker",
            "python/test_restore_retention.py::test_records_that_are_due_within_hours_are_told",
            "python/test_restore_retention.py::test_in_a_new_cluster_whose_brokers_compact_the_topic_does_not",
            "python/test_restore_retention.py::test_a_stopped_brokers_topic_that_compacts_is_told",
            f"{UNKNOWN}::test_kafkas_own_topics_get_kafkas_own_settings",
            f"{UNKNOWN}::test_topics_without_metadata_are_told",
        },
        "offsetlog restore": {
            f"{MINE}::test_restoring_from_a_shell_gives_a_new_cluster_the_same_settings",
            f"{MINE}::test_restoring_from_a_shell_tells_of_retention_that_deletes_on_a_stopped_broker",
        },
    },
    "the topics' own are copied from the source; DIR deletes nothing, but with `follow_deletes` what the source deleted, and compacts nothing": {
        "mirror": OF_MIRRORS | {"python/test_mirror.py::test_records_that_the_source_deleted_are_deleted_here_if_asked"},
        "offsetlog mirror": OF_MIRRORS,
    },
    "given ones, else those stored with the old one": {
        "convert": OF_COPIES | {"python/test_convert.py::test_settings_are_copied_or_given"},
        "offsetlog convert": OF_COPIES | {f"{MINE}::test_the_command_converts_by_the_settings_that_it_is_given"},
    },
    "`segment.bytes`, `segment.index.bytes`, `preallocate`": {
        "Log.roll": {f"{MINE}::test_a_roll_makes_the_new_segment_by_the_settings_of_now"}
    },
    "stored, and hold from now; `offsetlog settings` changes those it names, in each partition, beside what that has": {
        "Log.config": OF_NEW_ONES | {"python/test_append_settings.py::test_config_can_change_while_the_log_is_open"},
        "LogDir.set_topic_config": OF_NEW_ONES,
        "offsetlog settings": OF_NEW_ONES | {f"{WHOSE}::test_partitions_keep_what_they_have_of_their_own"},
    },
    "*known settings*": {
        "Log.maintain": OF_UPKEEP | {f"{CLUSTER}::test_one_log_is_refused_as_well"},
        "LogDir.maintain": OF_UPKEEP
        | {
            f"{CLUSTER}::test_each_layer_stands_above_the_next",
            f"{CLUSTER}::test_without_the_cluster_every_partition_is_refused_and_nothing_changes",
            f"{CLUSTER}::test_options_stand_above_all_for_the_topics_named",
        },
        "offsetlog maintain": OF_UPKEEP | {"python/test_dry_runs.py::test_the_command_plans_what_it_does"},
    },
    "`file.delete.delay.ms` of `defaults=`; from a shell a minute": {
        "LogDir.delete_topic": OF_DELETED,
        "offsetlog delete": {f"{MINE}::test_what_is_deleted_from_a_shell_waits_a_minute"},
    },
    "`file.delete.delay.ms` of `defaults=`": {
        "LogDir.remove_deleted": OF_DELETED | {f"{MINE}::test_what_others_left_to_be_deleted_waits_as_long_as_the_defaults_say"}
    },
}
NAMED = {told: how for told, how in SAID.items() if isinstance(how, dict)}
KINDS = {verb: SAID.get(row.cells["settings"]) for row in CHANGING for verb in row.verbs if row.cells["settings"] not in NAMED}
# A marker is never compressed.
MARKERS = {"Log.append_marker", "end_transaction", "offsetlog end-transaction"}
OTHERS = {**SETTINGS, "compression.type": "gzip", "retention.ms": 1, "delete.retention.ms": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("settings"))


@pytest.mark.parametrize("told", NAMED)
def test_each_verb_of_a_cell_has_tests_that_are_there(told: str) -> None:
    verbs = {verb for row in CHANGING if row.cells["settings"] == told for verb in row.verbs}
    assert set(NAMED[told]) == verbs, f"of each verb of which is said {told!r}, say which tests show it"
    for verb, tests in NAMED[told].items():
        assert tests, verb
        assert not verbs_page.missing_tests(tests)


def with_others(whole: Path, root: Path) -> Path:
    """The same, with other settings stored."""
    copy_of(whole, root)
    for name in ("t-0", "txn-0", "keys-0"):
        Log.open(root / "logs" / name, "a", OTHERS).close()
    return root


def added(root: Path, verb: str, number: int) -> list[Stored]:
    """The records that a call adds."""
    tried = CALLS[verb][number]
    paths = sorted({path.parent for path in root.glob("logs/*-0/*.log")})
    before = {path: len(of_partition(path)) for path in paths}
    with tried.opens(root) as handle:
        succeeded(tried.call(handle))
    return [record for path in paths for record in of_partition(path)[before[path] :]]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_is_told_of(row: Row) -> None:
    told = row.cells["settings"]
    assert told in SAID, f"nothing says how settings of which is said {told!r} are tried"
    assert set(row.verbs) <= set(CALLS)


def of_kinds(*kinds: str) -> list[object]:
    return [
        pytest.param(verb, number, id=f"{verb}-{number}")
        for verb, kind in KINDS.items()
        if kind in kinds
        for number in range(len(CALLS[verb]))
    ]


@pytest.mark.parametrize(("verb", "number"), of_kinds("own", "as they are"))
def test_what_is_appended_has_the_codec_of_the_stored_settings(verb: str, number: int, whole: Path, tmp_path: Path) -> None:
    plain = added(copy_of(whole, tmp_path / "plain"), verb, number)
    assert plain
    assert {record.codec for record in plain} == {"none"}
    others = added(with_others(whole, tmp_path / "others"), verb, number)
    codec = "gzip" if KINDS[verb] == "own" and verb not in MARKERS else "none"
    assert {record.codec for record in others} == {codec}
    if verb not in MARKERS:
        assert [record.value for record in others] == [record.value for record in plain]


@pytest.mark.parametrize(("verb", "number"), of_kinds("none"))
def test_what_asks_for_no_settings_does_the_same_with_others(verb: str, number: int, whole: Path, tmp_path: Path) -> None:
    found = []
    for root in (copy_of(whole, tmp_path / "plain"), with_others(whole, tmp_path / "others")):
        tried = CALLS[verb][number]
        with tried.opens(root) as handle:
            tried.call(handle)
        # Without what is stored as settings. What opening appends for some of them may be compressed.
        state = {name: of for name, of in contents(root).items() if isinstance(of, tuple)}
        found.append({name: (of[0], [record[:3] for record in of[1]]) for name, of in state.items()})
    assert found[0] == found[1]


LAYERS = ("given", "topic", "broker", "every broker", "server.properties")


@pytest.mark.parametrize("highest", range(len(LAYERS) + 1))
def test_in_a_brokers_log_dir_the_highest_layer_holds(highest: int, tmp_path: Path) -> None:
    """Each layer below says something else."""
    place = Place(tmp_path / "kafka")
    with Log.open(place.log) as log:
        assert log.topic_id is not None
        topic_id = base64.urlsafe_b64decode(log.topic_id + "==")

    def codec(layer: int) -> str | None:
        return None if layer < highest else "gzip" if layer == highest else "zstd"

    records = [metadata_records.topic("g-plain", topic_id), metadata_records.partition(topic_id, 0, [1])]
    for layer, (kind, name) in ((1, ("topic", "g-plain")), (2, ("broker", "1")), (3, ("broker", ""))):
        if (value := codec(layer)) is not None:
            records.append(metadata_records.config(kind, name, "compression.type", value))
    metadata = metadata_records.write(tmp_path / "cluster", records)
    properties = tmp_path / "server.properties"
    properties.write_text(f"compression.type={codec(4)}\n" if codec(4) else "")
    with LogDir.open(place.dir, "a", metadata=metadata, broker=properties) as log_dir:
        log = log_dir.log("g-plain", 0)
        if codec(0):
            log.config = {"compression.type": "gzip"}
        end = log.append(b"x" * 1000)
    (record,) = [record for record in of_partition(place.log) if record.offset >= end]
    # Kafka's default keeps what a producer sends.
    assert record.codec == ("gzip" if highest < len(LAYERS) else "none")
