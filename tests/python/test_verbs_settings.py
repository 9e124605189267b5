"""What ``docs/verbs.md`` says of whose settings a verb goes by is tried: what is appended shows it by its codec, the rest by what stays the same.

Upkeep's own settings, layer by layer, are tried in ``test_cluster.py``; those that new directories get where each is made.
"""

from __future__ import annotations

import base64
from pathlib import Path

import metadata_records
import pytest
from stored_records import Stored, of_partition
from test_known_replicas import Place
from test_verbs_again import CHANGING, copy_of, succeeded
from test_verbs_failures import contents
from verb_calls import CALLS, SETTINGS, made
from verbs_page import Row

from offsetlog import Log, LogDir

# What a cell says -> how it shows; `None` where other tests try it.
SAID: dict[str, str | None] = {
    "*own settings*": "own",
    "*own settings*, then `defaults=`": "own",
    "*own settings*; `--config` is stored": "own",
    "none: batches stay as they are": "as they are",
    "none": "none",
    "asked for, whatever the policy says; `delete.retention.ms` counts": "none",
    "given ones are stored": None,
    "`defaults=` hold and are not stored": None,
    "as of the log dir": None,
    "stored ones, for indexes": None,
    "those stored with the old one": None,
    "the topics' own, from the metadata among the sources; without it Kafka's own for internal topics, and what is "
    "unknown is told; retention that would delete at once, or that nobody knows, is set to -1 in a new cluster, and told of elsewhere": None,
    "the topics' own are copied from the source; DIR deletes nothing, but with `follow_deletes` what the source deleted, and compacts nothing": None,
    "given ones, else those stored with the old one": None,
    "`segment.bytes`, `segment.index.bytes`, `preallocate`": None,
    "stored, and hold from now; a broker keeps its own": None,
    "*known settings*": None,
    "`file.delete.delay.ms` of `defaults=`": None,
}
KINDS = {verb: SAID.get(row.cells["settings"]) for row in CHANGING for verb in row.verbs}
# A marker is never compressed.
MARKERS = {"Log.append_marker", "end_transaction", "offsetlog end-transaction"}
OTHERS = {**SETTINGS, "compression.type": "gzip", "retention.ms": 1, "delete.retention.ms": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("settings"))


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
