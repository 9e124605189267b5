"""What recovery cut off and kept in ``offsetlog-cut``: every reading verb opens it, and a verb that cannot says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from frames import frames, logs
from golden import DATA, Golden, Row, named, row, rows
from rescue_sources import producers
from test_convert import as_current
from test_no_trace import traces
from test_on_corrupt import PARTITIONS as TORN
from test_transactions import dumped

from offsetlog import (
    Log,
    LogDir,
    OffsetLogError,
    Server,
    adopt,
    convert,
    end_transaction,
    identity,
    metadata_as_commands,
    metadata_as_yaml,
    recover,
    restore,
    salvage,
)
from offsetlog._offsetlog import run_cli

OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"
COMMITS = DATA / "expected/kafka-4.3.0-clean/committed-offsets.jsonl"


class Kept(NamedTuple):
    """A kept file without damage, and the records that the consumer saw of its part of the log."""

    path: Path
    golden: Golden
    rows: tuple[Row, ...]

    @property
    def first(self) -> int:
        return next(frames(self.path)).base_offset or 0

    @property
    def end(self) -> int:
        return max(frame.last_offset for frame in frames(self.path)) + 1


def split(directory: Path) -> None:
    """Make the first segment two: its first batch, and all behind it, as if the broker had rolled there; without indexes."""
    first = logs(directory)[0]
    batch, second, *_ = frames(first)
    data = first.read_bytes()
    first.write_bytes(data[: batch.size_bytes])
    (directory / f"{second.base_offset:020}.log").write_bytes(data[batch.size_bytes :])
    for file in [path for path in directory.iterdir() if path.suffix in {".index", ".timeindex", ".snapshot"}]:
        file.unlink()


def kept(golden: Golden, into: Path, *, in_two: bool = False) -> Kept:
    """The last segment, which recovery kept because a batch of the first one is damaged; nothing in it is."""
    path = cut_off(golden.copy(into), in_two=in_two)[-1]
    begin = next(frames(path)).base_offset or 0
    return Kept(path, golden, tuple(seen for seen in golden.rows if seen.offset >= begin))


def cut_off(directory: Path, *, in_two: bool) -> list[Path]:
    """What recovery keeps of a log whose first batch is damaged: the rest of its segment, which begins with that, and the others."""
    if in_two:
        split(directory)
    first = logs(directory)[0]
    data = bytearray(first.read_bytes())
    data[next(frames(first)).size_bytes - 1] ^= 0xFF
    first.write_bytes(data)
    paths = [Path(cut.kept) for cut in recover(directory).cut if cut.kept is not None]
    assert {path.parent.name for path in paths} == {"offsetlog-cut"}
    return paths


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return kept(TORN["g-torn-none-0"], tmp_path_factory.mktemp("kept") / "old")


@pytest.fixture(scope="module")
def transactional(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """In its last segment one transaction is open."""
    (golden,) = named("g-txn-0")
    return kept(golden, tmp_path_factory.mktemp("kept") / "old")


@pytest.fixture(autouse=True)
def as_it_was(plain: Kept, transactional: Kept) -> Iterator[None]:
    """No verb leaves a trace on a kept file, or beside it."""
    folders = [each.path.parents[2] for each in (plain, transactional)]
    before = [traces(folder) for folder in folders]
    yield
    assert [traces(folder) for folder in folders] == before


Shell = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str]) -> Shell:
    """The command in this process: its code, its JSON lines, and what it said beside them."""

    def run(*words: object) -> tuple[int, list[dict[str, Any]], str]:
        code = run_cli(["offsetlog", *map(str, words), "--json"], [])
        out, err = capfd.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return run


def test_time(plain: Kept, shell: Shell) -> None:
    """The first record at a time or later, as the consumer saw it."""
    for when in (0, *(seen.timestamp + step for seen in plain.rows[::5] for step in (0, 1)), 2**50):
        found = next((seen for seen in plain.rows if seen.timestamp >= when), None)
        code, lines, _ = shell("time", when, plain.path)
        assert code == (1 if found is None else 0)
        assert [(line["offset"], line["timestamp"]) for line in lines] == [(found.offset, found.timestamp) if found else (None, None)]
        with Log.open(plain.path) as log:
            answer = log.offset_for_timestamp(when)
        assert (answer and (answer.offset, answer.timestamp)) == (found and (found.offset, found.timestamp))


def test_explain(plain: Kept, shell: Shell) -> None:
    """Segment, batch and record, by the file's own headers."""
    for seen in plain.rows[::5]:
        batch = next(frame for frame in frames(plain.path) if frame.last_offset >= seen.offset)
        code, (line,), _ = shell("explain", seen.offset, plain.path)
        assert code == 0
        assert (line["topic"], line["segment"]["base_offset"], line["index"]["state"]) == (plain.golden.topic, plain.first, "missing")
        assert (line["batch"]["position"], line["batch"]["size_bytes"]) == (batch.position, batch.size_bytes)
        assert (line["record"]["timestamp"], line["record"]["value_bytes"]) == (seen.timestamp, len(seen.value or b""))
        with Log.open(plain.path) as log:
            assert f"position {batch.position}" in str(log.locate(seen.offset))
    code, lines, err = shell("explain", plain.first - 1, plain.path)
    assert (code, lines) == (1, [])
    assert err


def test_producers(plain: Kept, transactional: Kept, shell: Shell) -> None:
    """Of the batches in the file; a transaction begins with the first of its batches that is here."""
    for file in (plain, transactional):
        code, lines, _ = shell("producers", file.path)
        assert code == 0
        found = {line["producer_id"]: (line["producer_epoch"], line["last_sequence"], line["last_offset"]) for line in lines}
        assert found == producers(frames(file.path))
    code, (line,), _ = shell("producers", transactional.path, "--open")
    begun = next(frame for frame in frames(transactional.path) if frame.producer_id == 1000)
    assert (code, line["producer_id"], line["transaction_first_offset"]) == (0, 1000, begun.base_offset)
    # Whether it is ongoing only __transaction_state knows.
    assert line["standing"] == "unknown"
    with LogDir.open(transactional.path) as log_dir:
        assert [each.producer_id for each in log_dir.producers() if each.transaction_first_offset is not None] == [1000]


def coordinator(group: str) -> int:
    """The partition of two that a name is stored in: Java's ``String.hashCode``, without its sign."""
    found = 0
    for letter in group:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return (found & 0x7FFFFFFF) % 2


@pytest.mark.parametrize("number", [0, 1])
def test_groups(number: int, tmp_path: Path, shell: Shell) -> None:
    """Commits of a kept part of ``__consumer_offsets``, as Kafka's decoder printed them."""
    (golden,) = named(f"__consumer_offsets-{number}")
    file = kept(golden, tmp_path, in_two=True)
    expected: dict[tuple[str, str, int], int] = {}
    for commit in map(json.loads, COMMITS.read_text().splitlines()):
        key = commit["key"]
        if coordinator(key["group"]) == number:
            expected.pop((key["group"], key["topic"], key["partition"]), None)
            if commit["payload"] is not None:
                expected[key["group"], key["topic"], key["partition"]] = commit["payload"]["offset"]
    assert expected
    code, lines, err = shell("groups", file.path)
    assert code == 0, err
    assert {
        (line["group"], each["topic"], each["partition"]): each["offset"] for line in lines for each in line["offsets"]
    } == expected
    with LogDir.open(file.path) as log_dir:
        assert {group.group_id for group in log_dir.groups()} == {line["group"] for line in lines}


def test_transactions(tmp_path: Path, shell: Shell) -> None:
    """Of a kept part of ``__transaction_state``, as Kafka's tool printed it."""
    (golden,) = named("__transaction_state-1")
    file = kept(golden, tmp_path, in_two=True)
    expected = {name: each for name, each in dumped().items() if each.offset >= file.first}
    code, lines, err = shell("transactions", file.path)
    assert code == 0, err
    assert {line["transactional_id"]: (line["state"], line["producer_id"]) for line in lines} == {
        name: (each.state, each.producer_id) for name, each in expected.items()
    }
    with LogDir.open(file.path) as log_dir:
        assert {each.transactional_id: each for each in log_dir.transactions()} == expected


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("groups", "no groups here; they are in the log dirs that hold __consumer_offsets"),
        ("transactions", "no transactional ids here; they are in the log dirs that hold __transaction_state"),
        ("metadata", "no __cluster_metadata-0 here; it is in metadata.log.dir"),
    ],
)
def test_a_kept_part_of_another_topic_says_where_to_look(verb: str, text: str, plain: Kept, shell: Shell) -> None:
    code, lines, err = shell(verb, plain.path)
    assert (code, lines) == (1, [])
    assert text in err


def test_salvage(plain: Kept, shell: Shell, tmp_path: Path) -> None:
    """A sound log of it, which begins where the file does."""
    code, (line,), err = shell("salvage", plain.path, "--into", tmp_path / "shell")
    assert (code, line["records"], line["losses"]) == (0, len(plain.rows), []), err
    report = salvage(plain.path, tmp_path / "python" / plain.golden.name)
    for path in (line["path"], report.path):
        with Log.open(path) as log:
            assert rows(log.scan()) == plain.rows
            assert (log.log_start_offset, log.log_end_offset) == (plain.first, plain.end)
            assert not log.verify().damaged


def test_a_server_serves_it(plain: Kept) -> None:
    with Server([plain.path]) as server:
        assert server.running
        assert not server.events()


def test_why(plain: Kept, transactional: Kept, shell: Shell) -> None:
    """What the file lacks, settings, is unknown; where ``read_committed`` ends is known of its batches."""
    begun = next(frame for frame in frames(transactional.path) if frame.producer_id == 1000)
    for file, expected in ((plain, {}), (transactional, {"read_committed": begun.base_offset})):
        code, lines, err = shell("why", file.path)
        assert code == 0, err
        assert {line["question"]: line["offset"] for line in lines if line["question"] != "deletion"} == expected
        assert {line["question"] for line in lines} == {"deletion", *expected}
        with LogDir.open(file.path) as log_dir:
            assert [each.sentence for each in log_dir.why()] == [line["sentence"] for line in lines]


def test_settings(plain: Kept, shell: Shell) -> None:
    """Nobody stored any with it."""
    code, _, err = shell("settings", plain.path, "-t", plain.golden.topic)
    assert code == 0, err
    with LogDir.open(plain.path) as log_dir:
        assert log_dir.topic_config(plain.golden.topic).to_dict() == {}


def test_convert(plain: Kept, shell: Shell, tmp_path: Path) -> None:
    """A log of today's format with all records of the file."""
    code, _, err = shell("convert", plain.path, tmp_path / "shell" / plain.golden.name)
    assert code == 0, err
    convert(plain.path, tmp_path / "python" / plain.golden.name)
    for place in ("shell", "python"):
        with Log.open(tmp_path / place / plain.golden.name) as log:
            assert list(map(row, log.scan())) == [as_current(seen, 0) for seen in plain.rows]


INSTEAD = "a file that was set aside from g-torn-none-0; give a folder: `offsetlog salvage FILE --into DIR` makes a log"
# Others take directories: a file is refused, and nothing is made.
REFUSALS: dict[str, tuple[tuple[str, ...], Callable[[Path, Path], object], str]] = {
    "restore": (("restore", "{file}", "--into", "{into}"), restore, INSTEAD),
    "metadata": (("metadata", "--directories", "{file}"), lambda file, _: identity(file), INSTEAD),
    "metadata_as_commands": (("metadata", "--as-commands", "{file}"), lambda file, _: metadata_as_commands(file), INSTEAD),
    "metadata_as_yaml": (("metadata", "--as-yaml", "{file}"), lambda file, _: metadata_as_yaml(file), INSTEAD),
    "adopt": (
        ("adopt", "{file}", "--topic-id", OTHER_ID, "--dry-run"),
        lambda file, _: adopt(file, topic_id=OTHER_ID, dry_run=True),
        "not a log dir",
    ),
    "recover": (("recover", "{file}", "--dry-run"), lambda file, _: recover(file, dry_run=True), "is not topic-partition"),
    "append": (("append", "{file}"), lambda file, _: Log.open(file, "a"), "is not topic-partition"),
    "end-transaction": (
        ("end-transaction", "g-torn-none-0", "0", "{file}", "--abort", "--dry-run"),
        lambda file, _: end_transaction(file, "g-torn-none", 0, 0, commit=False, dry_run=True),
        "producer 0 has no open transaction in g-torn-none-0",
    ),
}


@pytest.mark.parametrize("verb", REFUSALS)
def test_what_takes_directories_refuses_the_file(verb: str, plain: Kept, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words, call, text = REFUSALS[verb]
    into = tmp_path / "into"
    code = run_cli(["offsetlog", *(word.format(file=plain.path, into=into) for word in words)], [])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert text in err
    assert plain.path.name in err or plain.path.parent.name in err or plain.golden.name in err
    with pytest.raises((OffsetLogError, OSError), match=text):
        call(plain.path, into)
    assert not into.exists()
