"""What other programs read of groups: Prometheus text, parsed by Prometheus' own client, and the file of Kafka's reset tool.

What Kafka's tool makes of that file is tried on a real broker, in `tests/broker/test_groups_beside_kafka.py`.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA
from test_group_lag_time import NOW, commit, commits, place_with

from offsetlog import Log, LogDir, UnreadPartitionsError

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "offsetlog", "groups", *arguments], capture_output=True, check=False, timeout=300)


def samples(text: str) -> Samples:
    """What Prometheus' parser finds, each once, all of one family together behind its help and its type."""
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    families = list(parser.text_string_to_metric_families(text))
    lines = text.splitlines()
    for kind in ("HELP", "TYPE"):
        named = [line.split()[2] for line in lines if line.startswith(f"# {kind} ")]
        assert named == [family.name for family in families]
    names = [name for name, _ in itertools.groupby(line.split("{")[0] for line in lines if not line.startswith("#"))]
    assert names == [family.name for family in families]
    found = Counter((sample.name, frozenset(sample.labels.items())) for family in families for sample in family.samples)
    assert set(found.values()) <= {1}
    assert {family.type for family in families} <= {"gauge"}
    assert all(family.documentation.endswith(".") for family in families)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def key(name: str, group: str, topic: str | None = None, partition: int | None = None) -> tuple[str, frozenset[tuple[str, str]]]:
    labels = {"consumergroup": group, "topic": topic, "partition": None if partition is None else str(partition)}
    return f"kafka_consumergroup_{name}", frozenset((label, value) for label, value in labels.items() if value is not None)


def state(group: str, state: str = "Empty") -> tuple[str, frozenset[tuple[str, str]]]:
    return "kafka_consumergroup_state", frozenset({("consumergroup", group), ("state", state)})


def test_the_samples_of_a_real_broker() -> None:
    """Commits as Kafka's dump tool decodes them, ends and records as a consumer saw them."""
    newest = {}
    lines = (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines):
        newest[tuple(line["key"].values())] = line["payload"]
    partitions = {(golden.topic, golden.partition): golden for golden in CLEAN_PARTITIONS}
    now = 1_795_234_000_000
    expected: Samples = {}
    for (group, topic, partition), value in newest.items():
        if value is None:
            continue
        golden, offset = partitions[topic, partition], value["offset"]
        expected[key("members", group)] = 0
        expected[state(group)] = 1
        expected[key("current_offset", group, topic, partition)] = offset
        expected[key("lag", group, topic, partition)] = golden.end - offset
        first = next((row.timestamp for row in golden.rows if row.offset >= offset), now)
        expected[key("lag_seconds", group, topic, partition)] = max(0, now - first) / 1000
        for name, summand in (("current_offset_sum", offset), ("lag_sum", golden.end - offset)):
            expected[key(name, group, topic)] = expected.get(key(name, group, topic), 0) + summand
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        text = logs.groups_prometheus(now=now)
        assert text == logs.groups_prometheus(now=datetime.fromtimestamp(now / 1000, UTC))
    assert samples(text) == expected
    assert len(expected) == 2 * (4 * 3 + 2 * 2 + 2)
    printed = run(*map(str, CLEAN_LOG_DIRS), "--prometheus", "--now", str(now))
    assert (printed.stdout.decode(), printed.returncode) == (text, 0)


@pytest.mark.parametrize("name", ['a "quoted" name', "back\\slash", "two\nlines", "\\n", "tab\tand é and 😀", "}", ",x=", "", "#"])
def test_names_come_back_as_they_are(name: str, tmp_path: Path) -> None:
    place = commits(tmp_path / "logs", [commit(name, "t", 0, 5)])
    with LogDir.open(place) as logs:
        found = samples(logs.groups_prometheus())
    assert found == {
        key("members", name): 0,
        state(name): 1,
        key("current_offset", name, "t", 0): 5,
        key("current_offset_sum", name, "t"): 5,
    }


def test_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    """A partition that is not here has no lag, and the topic no sum of lags; a record without a time no seconds; what is read 0."""
    place = place_with(tmp_path, 0, 1, 2)
    with Log.open(place / "t-0", "a") as log:
        log.append(b"x", timestamp=-1)
        log.append(b"y", timestamp=NOW - 2500)
        log.flush()
    with Log.open(place / "__consumer_offsets-49", "a") as log:
        log.append_records([commit("g000", "t", 7, 3)])
    with LogDir.open(place) as logs:
        found = samples(logs.groups_prometheus(now=NOW))
    lags = {at: value for at, value in found.items() if "lag" in at[0]}
    assert lags == {
        **{key("lag", f"g00{offset}", "t", 0): 2 - offset for offset in range(3)},
        **{key("lag_sum", f"g00{offset}", "t"): 2 - offset for offset in (1, 2)},
        key("lag_seconds", "g001", "t", 0): 2.5,
        key("lag_seconds", "g002", "t", 0): 0,
    }
    assert found[key("current_offset_sum", "g000", "t")] == 3


def test_a_damaged_partition_hides_no_other(tmp_path: Path) -> None:
    place = place_with(tmp_path, 1)
    with Log.open(place / "t-0", "a") as log:
        for _ in range(3):
            log.append(b"x" * 50, timestamp=NOW)
            log.flush()
    segment = min((place / "t-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[80] ^= 0xFF
    segment.write_bytes(content)
    for index in (place / "t-0").glob("*.index"):
        index.unlink()
    with LogDir.open(place) as logs, pytest.raises(UnreadPartitionsError) as caught:
        logs.groups_prometheus(now=NOW + 5000)
    assert isinstance(caught.value.partial, str)
    assert samples(caught.value.partial) == {
        key("members", "g001"): 0,
        state("g001"): 1,
        key("current_offset", "g001", "t", 0): 1,
        key("current_offset_sum", "g001", "t"): 1,
        # The damage hides the end of the log, not the record.
        key("lag_seconds", "g001", "t", 0): 5,
    }
    printed = run(str(place), "--prometheus", "--now", str(NOW + 5000))
    assert (printed.stdout.decode(), printed.returncode) == (caught.value.partial, 2)
    assert b"t-0: " in printed.stderr


def test_no_groups_are_no_text(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("t")
        assert logs.groups_prometheus() == ""
    printed = run(str(tmp_path), "--prometheus")
    assert (printed.stdout, printed.returncode) == (b"", 1)


def test_the_log_dirs_clock_is_asked(tmp_path: Path) -> None:
    place = place_with(tmp_path, 0)
    with LogDir.open(place, "a", clock=lambda: NOW + 1234) as logs:
        logs.log("t", 0).append(b"x", timestamp=NOW, flush=True)
        assert 'topic="t",partition="0"} 1.234\n' in logs.groups_prometheus()
        assert 'topic="t",partition="0"} 0.001\n' in logs.groups_prometheus(now=NOW + 1)


@pytest.mark.parametrize(
    ("one", "other"), list(itertools.combinations(["--prometheus", "--json", "--members", "--state", "--reset-csv"], 2))
)
def test_one_form_at_a_time(one: str, other: str, tmp_path: Path) -> None:
    assert run(str(tmp_path), one, other).returncode == 2


def reset_csv(place: Path, *arguments: str) -> tuple[bytes, str, int]:
    done = run(str(place), "--reset-csv", *arguments)
    return done.stdout, done.stderr.decode(), done.returncode


def test_the_file_of_one_group_and_of_several(tmp_path: Path) -> None:
    """Three columns or four; names that Kafka allows a topic as they are, others in quotation marks, with those in them twice."""
    offsets = [("b,c", "t", 10, 3), ("b,c", "t", 2, 2**63 - 1), ('d"\\\r é', "u", 0, 0), ("a", "t.-_9", 0, 1)]
    place = commits(tmp_path / "logs", [commit(*each) for each in offsets])
    csv, told, code = reset_csv(place, "-g", "b,c")
    assert (csv, code) == (b"t,2,9223372036854775807\nt,10,3\n", 0)
    assert "--reset-offsets --group 'b,c' --from-file FILE --dry-run" in told
    assert "it lacks" not in told
    csv, told, code = reset_csv(place)
    rows = ["a,t.-_9,0,1", '"b,c",t,2,9223372036854775807', '"b,c",t,10,3', '"d""\\\r é",u,0,0']
    assert (csv.decode(), code) == ("".join(f"{row}\n" for row in rows), 0)
    assert r"""--group a --group 'b,c' --group $'d"\\\x0d é' --from-file""" in told
    assert reset_csv(place, "--quiet") == (csv, "", 0)


def test_what_cannot_be_in_the_file_is_refused_by_name(tmp_path: Path) -> None:
    """Kafka would read the second half of such a line as another group; it would refuse the whole file for a negative number."""
    offsets = [("a\nb", "t", 0, 5), ("c", "t\nu", 0, 5), ("c", "t", 0, -1), ("c", "t", 1, 7)]
    place = commits(tmp_path / "logs", [commit(*each) for each in offsets])
    csv, told, code = reset_csv(place, "--quiet")
    assert (csv, code) == (b"t,1,7\n", 2)
    assert [line.partition(" is not in the file: ")[0] for line in told.splitlines()] == [
        r"offsetlog: group a\nb",
        "offsetlog: group c, topic t",
        r"offsetlog: group c, topic t\nu",
    ]
    assert reset_csv(place, "-g", "a\nb")[::2] == (b"", 2)
    assert reset_csv(place, "-g", "nobody")[::2] == (b"", 1)


def test_what_the_file_lacks_is_told() -> None:
    """Metadata and leader epochs of commits, counted."""
    places = list(map(str, CLEAN_LOG_DIRS))
    csv, told, code = reset_csv(Path(places[0]), places[1])
    assert (code, len(csv.splitlines())) == (0, 8)
    assert "it lacks what is beside them: 2 committed with metadata, 8 committed with a leader epoch" in told


def test_python_has_the_same_file(tmp_path: Path) -> None:
    """The command's bytes, what is missing in them, and what is refused."""
    offsets = [("a\nb", "t", 0, 5), ("c", "t\nu", 0, 5), ("c", "t", 1, 7), ("d", "t", 0, 3)]
    place = commits(tmp_path / "logs", [commit(*each) for each in offsets])
    with LogDir.open(place) as logs:
        file = logs.groups_reset_csv()
        assert (file.csv.encode(), file.groups, file.streams_groups) == (reset_csv(place)[0], ("c", "d"), ())
        assert [refused[:2] for refused in file.refused] == [("a\nb", None), ("c", "t\nu")]
        assert logs.groups_reset_csv("d").csv == "t,0,3\n"
        assert logs.groups_reset_csv(["d", "c"]).csv == file.csv
        assert logs.groups_reset_csv("none").csv == ""
        with pytest.raises(TypeError, match="groups"):
            logs.groups_reset_csv([3])  # type: ignore[list-item]  # as a mistake
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        file = logs.groups_reset_csv()
    assert (file.with_metadata, file.with_leader_epoch) == (2, 8)


def test_what_shows_no_lag_looks_at_no_other_partition(tmp_path: Path) -> None:
    """A damaged partition that a group reads is in nobody's way then."""
    place = commits(tmp_path / "logs", [commit("a", "g-plain", 0, 5)])
    damaged = place / "g-plain-0"
    damaged.mkdir()
    (damaged / "12.log").touch()
    assert run(str(place)).returncode == 2
    for option in ("--members", "--state", "--reset-csv"):
        done = run(str(place), option)
        assert done.returncode == 0, (option, done.stderr)
    with LogDir.open(place) as logs:
        assert logs.groups_reset_csv().csv == "g-plain,0,5\n"
        with pytest.raises(UnreadPartitionsError):
            logs.groups()
