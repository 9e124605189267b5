"""The rescue verbs in an environment that has this package and nothing else: no other distribution, no Java, no clone.

`pip install offsetlog` is enough for them. What they must say is what Kafka said of the golden directories.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, Golden, named
from pages import ROOT
from restoring import formatted, metadata_of
from test_convert import check
from test_on_corrupt import ALL, PARTITIONS as TORN, touched
from test_salvage import promised
from writing import times, tree

import offsetlog
from offsetlog import _offsetlog

pytestmark = pytest.mark.slow

METADATA = CLEAN / "metadata-dir"
DISKS = (*CLEAN_LOG_DIRS, METADATA)
MODULE = Path(_offsetlog.__file__)
OF_OTHERS = ("pyarrow", "pyspark", "pandas", "polars", "duckdb", "numpy", "py4j", "pytest", "pip", "setuptools")


class Bare(NamedTuple):
    """An environment of its own."""

    root: Path

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a program of it, with nothing else on the path and no variable of ours."""
        program = self.root / "bin" / str(command[0])
        words = [str(program), *map(str, command[1:])]
        return subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=300, cwd=self.root, env={"PATH": str(self.root / "bin")}
        )

    def offsetlog(self, *words: object, code: int = 0) -> str:
        done = self.run("offsetlog", *words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def lines(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.offsetlog(*words, "--json", code=code).splitlines()]


def wheel() -> Path:
    """The wheel of the package that the tests run with."""
    for path in (ROOT / "dist").glob("*.whl"):
        with zipfile.ZipFile(path) as packed:
            if packed.read(f"offsetlog/{MODULE.name}") == MODULE.read_bytes():
                return path
    message = "no wheel in dist/ has the module that these tests run with: run `make wheel`, and install it"
    raise FileNotFoundError(message)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """A new environment into which pip has put the wheel."""
    root = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True, timeout=120)
    (site,) = root.glob("lib/python*/site-packages")
    # From nowhere else: what the wheel would need beside itself is missed here.
    pip = [sys.executable, "-m", "pip", "--python", str(root / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheel())], check=True, timeout=120)
    assert (site / "offsetlog" / MODULE.name).read_bytes() == MODULE.read_bytes()
    return Bare(root)


def test_nothing_else_is_there(bare: Bare) -> None:
    """Else the tests below show less than they say."""
    program = f"""
import importlib.metadata, importlib.util, json, shutil, sys
import offsetlog
found = [name for name in {OF_OTHERS!r} if importlib.util.find_spec(name)]
installed = sorted({{each.name for each in importlib.metadata.distributions()}})
print(json.dumps([found, installed, [shutil.which(name) for name in ("java", "kafka-topics.sh", "spark-submit")], offsetlog.__file__, sys.path]))
"""
    done = bare.run("python", "-c", program)
    assert done.returncode == 0, done.stderr
    found, installed, programs, file, path = json.loads(done.stdout)
    assert (found, installed, programs) == ([], ["offsetlog"], [None, None, None])
    assert Path(file).is_relative_to(bare.root)
    assert not any(Path(each).is_relative_to(Path(offsetlog.__file__).parents[1]) for each in path if each)


@pytest.fixture(autouse=True)
def unchanged() -> Any:  # noqa: ANN401  # a fixture
    """No verb here changes a golden directory."""
    before = [(tree(place), times(place)) for place in DISKS]
    yield
    assert [(tree(place), times(place)) for place in DISKS] == before


def last_commits() -> dict[tuple[str, str, int], int]:
    """The offsets of each group as Kafka's own tool decodes the commits."""
    newest: dict[tuple[str, str, int], int] = {}
    lines = (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines):
        key = line["key"]
        newest.pop(tuple(key.values()), None)
        if line["payload"] is not None:
            newest[tuple(key.values())] = line["payload"]["offset"]
    return newest


def sent(golden: Golden) -> int:
    return golden.counts[0]


def test_restore_into_a_new_cluster(bare: Bare, tmp_path: Path) -> None:
    into = formatted(tmp_path / "new")
    _, *found, report = bare.lines("restore", *DISKS, "--into", into, "--new-cluster")
    assert {f"{each['topic']}-{each['partition']}": each["state"] for each in found} == {
        golden.name: "restored" for golden in CLEAN_PARTITIONS
    }
    assert report["target"] == "new-cluster"
    for golden in CLEAN_PARTITIONS:
        check(golden, into / golden.name)


def test_restore_without_metadata(bare: Bare, tmp_path: Path) -> None:
    _, *found, report = bare.lines("restore", *CLEAN_LOG_DIRS, "--into", tmp_path / "new")
    assert {f"{each['topic']}-{each['partition']}": each["records"] for each in found} == {
        golden.name: sent(golden) for golden in CLEAN_PARTITIONS
    }
    assert (report["target"], report["missing"]) == ("folder", [])
    for golden in CLEAN_PARTITIONS:
        check(golden, tmp_path / "new" / golden.name)


def test_salvage(bare: Bare, tmp_path: Path) -> None:
    golden = TORN["g-torn-flip-old-0"]
    ((first, behind),) = touched(golden)
    (line,) = bare.lines("salvage", golden.directory, "--into", tmp_path, code=3)
    assert line["records"] == len(ALL) - (behind - first)
    (loss,) = line["losses"]
    assert (loss["first_offset"], loss["last_offset"]) == (first, behind - 1)
    short = TORN["g-torn-cut-batch-0"]
    text = bare.offsetlog("salvage", short.directory, "--into", tmp_path, code=3)
    assert f"lost: offsets {short.end} to {promised(short) - 1}" in text


def test_recover_dry_run(bare: Bare) -> None:
    golden = TORN["g-torn-flip-old-0"]
    ((first, behind),) = touched(golden)
    before = tree(golden.directory)
    (line,) = bare.lines("recover", golden.directory, "--dry-run", code=3)
    assert line["log_end_offset"] == first == golden.end
    assert [(cut["first_offset"], cut["last_offset"]) for cut in line["cut"]] == [(behind, 63), (64, 95)]
    assert tree(golden.directory) == before


def test_why_and_producers(bare: Bare, tmp_path: Path) -> None:
    broker = tmp_path / "server.properties"
    broker.write_text("process.roles=broker\nnode.id=1\n")
    found = bare.lines("why", *DISKS, "--broker", broker)
    answers = {(each["topic"], each["partition"], each["question"]): each for each in found}
    assert {(topic, number) for topic, number, _ in answers} >= {(golden.topic, golden.partition) for golden in CLEAN_PARTITIONS}
    retained = answers["g-retained", 0, "deletion"]
    assert (retained["reason"], retained["settings"][0]["from"]) == ("unlimited", "topic")
    held = {key: each["offset"] for key, each in answers.items() if key[2] == "read_committed"}
    (open_one,) = (golden for golden in CLEAN_PARTITIONS if golden.last_stable_offset < golden.end)
    assert held == {(open_one.topic, open_one.partition, "read_committed"): open_one.last_stable_offset}
    (line,) = bare.lines("producers", *DISKS, "--open")
    assert (line["topic"], line["transaction_first_offset"], line["transactional_id"]) == (
        "g-txn",
        open_one.last_stable_offset,
        "g-tx-open",
    )


def test_end_transaction_dry_run(bare: Bare) -> None:
    (golden,) = named("g-txn-0")
    (line,) = bare.lines("end-transaction", golden.name, 1000, *CLEAN_LOG_DIRS, "--metadata", METADATA, "--abort", "--dry-run")
    assert (line["dry_run"], line["marker_offset"], line["last_stable_offset_before"]) == (True, None, golden.last_stable_offset)
    # The coordinator has not decided it.
    done = bare.run(
        "offsetlog", "end-transaction", golden.name, 1000, *CLEAN_LOG_DIRS, "--metadata", METADATA, "--commit", "--dry-run"
    )
    assert done.returncode == 2
    assert "Ongoing" in done.stderr


def test_metadata_and_groups(bare: Bare) -> None:
    topics = {line["topic"]: line for line in bare.lines("metadata", METADATA)}
    assert {(golden.topic, golden.partition) for golden in CLEAN_PARTITIONS} <= {
        (name, each["partition"]) for name, line in topics.items() for each in line["partitions"]
    }
    assert {name: line["topic_id"] for name, line in topics.items()} == {
        topic.name: topic.topic_id for topic in metadata_of([METADATA]).topics
    }
    script = bare.offsetlog("metadata", METADATA, "--as-commands")
    assert "--create --topic g-plain --partitions 3 --replication-factor 1" in script
    found = {
        (group["group"], each["topic"], each["partition"]): each["offset"]
        for group in bare.lines("groups", *CLEAN_LOG_DIRS)
        for each in group["offsets"]
    }
    assert found == last_commits()


def test_adopt_dry_run(bare: Bare, tmp_path: Path) -> None:
    place = tmp_path / "log-dir"
    (golden,) = named("g-plain-0")
    directory = golden.copy(place)
    shutil.copy(golden.directory.parent / "meta.properties", place)
    (directory / "partition.metadata").unlink()
    before = tree(place)
    (line,) = bare.lines("adopt", directory, "--metadata", METADATA, "--log-dir", CLEAN_LOG_DIRS[1], "--dry-run")
    assert (line["topic_id_before"], line["records"], line["log_end_offset"]) == (None, sent(golden), golden.end)
    assert f"topic_id: {line['topic_id']}" in (golden.directory / "partition.metadata").read_text()
    assert tree(place) == before


CALLS = """
import json, sys
from offsetlog import LogDir, adopt, end_transaction, identity, metadata_as_commands, recover, restore, salvage
disks, metadata, torn, into, copy = json.loads(sys.argv[1])
plan = restore([*disks, metadata], into, topics="g-plain", dry_run=True)
with LogDir.open([*disks, metadata]) as log_dir:
    counts = [len(log_dir.why()), len(log_dir.producers()), len(log_dir.groups()), len(log_dir.metadata().topics)]
print(json.dumps([
    [each.state for each in plan.partitions],
    salvage(torn, into + "/" + torn.rpartition("/")[2], dry_run=True).records,
    recover(torn, dry_run=True).log_end_offset,
    end_transaction(disks, "g-txn", 0, 1000, commit=False, dry_run=True).last_stable_offset_before,
    adopt(copy, log_dirs=disks[1:], metadata=metadata, dry_run=True)[0].records,
    sorted({row.outcome for row in identity(*disks, metadata)}),
    metadata_as_commands(metadata).count("--create"),
    counts,
    sorted(name for name in ("pyarrow", "pyspark", "pandas") if name in sys.modules),
]))
"""


def test_the_same_from_python(bare: Bare, tmp_path: Path) -> None:
    golden, (plain,) = TORN["g-torn-flip-old-0"], named("g-plain-0")
    copy = plain.copy(tmp_path / "log-dir")
    shutil.copy(plain.directory.parent / "meta.properties", tmp_path / "log-dir")
    (copy / "partition.metadata").unlink()
    ((first, behind),) = touched(golden)
    given = [list(map(str, CLEAN_LOG_DIRS)), *map(str, (METADATA, golden.directory, tmp_path / "new", copy))]
    done = bare.run("python", "-c", CALLS, json.dumps(given))
    assert done.returncode == 0, done.stderr
    states, salvaged, end, stable, adopted, outcomes, created, counts, heavy = json.loads(done.stdout)
    assert states == ["planned"] * 3
    assert (salvaged, end) == (len(ALL) - (behind - first), golden.end)
    assert (stable, adopted) == (named("g-txn-0")[0].last_stable_offset, sent(plain))
    assert outcomes == ["serves"]
    topics = metadata_of([METADATA]).topics
    assert created == sum(not topic.name.startswith("__") for topic in topics)
    assert counts[2:] == [len({group for group, _, _ in last_commits()}), len(topics)]
    assert min(counts) > 0
    assert heavy == []
    assert not (tmp_path / "new").exists()
