"""Only local paths are read and written: the URL of an object store is refused by every verb, before anything is made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from verb_calls import CALLS, PLAIN_ID, folder
from writing import environment, filled, tree

import offsetlog
from offsetlog import ConfigError, Log, LogDir, OldLog, Server, folder_kind

STORES = [
    "s3://bucket/kafka/t-0",
    "gs://bucket/t-0",
    "abfss://c@account.dfs.core.windows.net/t-0",
    "s3a:/bucket/t-0",
    "file://host/t-0",
]
# Nobody listens there.
NOWHERE = "localhost:1"

# Each verb with the path at each place where it takes one. `HERE` is a log that is there.
PYTHON: dict[str, list[Callable[[str], object]]] = {
    "Log.open": [lambda path: Log.open(path, "a")],
    "LogDir.open": [
        lambda path: LogDir.open(path, "a"),
        lambda path: LogDir.open(["logs", path], "a"),
        lambda path: LogDir.open("logs", "a", metadata=path),
    ],
    "recover": [offsetlog.recover, lambda path: offsetlog.recover(path, dry_run=True)],
    "adopt": [
        lambda path: offsetlog.adopt(path, topic_id=PLAIN_ID),
        lambda path: offsetlog.adopt("t-0", log_dirs=path),
        lambda path: offsetlog.adopt("t-0", metadata=path),
    ],
    "salvage": [lambda path: offsetlog.salvage("t-0", path), lambda path: offsetlog.salvage(path, "new-0")],
    "restore": [
        lambda path: offsetlog.restore("t-0", path),
        lambda path: offsetlog.restore(["t-0", path], "new"),
        lambda path: offsetlog.restore("t-0", "new", metadata=path),
        lambda path: offsetlog.restore("t-0", "new", broker=path),
    ],
    "mirror": [lambda path: offsetlog.mirror(NOWHERE, path, once=True)],
    "convert": [lambda path: offsetlog.convert("t-0", path), lambda path: offsetlog.convert(path, "new-0")],
    "end_transaction": [
        lambda path: offsetlog.end_transaction(path, "t", 0, 7, commit=False, without_state=True),
    ],
    "forget_commit": [lambda path: offsetlog.forget_commit(path, "done")],
    "Server": [lambda path: Server("t-0", groups=path), Server],
}
COMMANDS: dict[str, list[list[str]]] = {
    "create": [["new", "URL", "--partitions", "3"]],
    "recover": [["URL"], ["--dry-run", "URL"]],
    "adopt": [["URL", "--topic-id", PLAIN_ID], ["t-0", "--log-dir", "URL"], ["t-0", "--metadata", "URL"]],
    "salvage": [["t-0", "--into", "URL"], ["URL", "--into", "new"]],
    "restore": [["t-0", "--into", "URL"], ["URL", "--into", "new"], ["t-0", "--into", "new", "--metadata", "URL"]],
    "mirror": [["--bootstrap", NOWHERE, "--into", "URL", "--once"]],
    "convert": [["t-0", "URL"], ["URL", "new-0"]],
    "end-transaction": [["t-0", "7", "URL", "--abort", "--without-state"]],
    "append": [["URL"], ["t-0", "--metadata", "URL"]],
    "settings": [["URL", "-t", "t", "--config", "retention.ms=5"], ["t-0", "--broker", "URL"]],
    "maintain": [["URL", "-t", "t"]],
    "delete": [["t", "URL"]],
    "commits": [["--forget", "done", "URL"]],
    "serve": [["t-0", "--groups", "URL"], ["URL"]],
}
READING: dict[str, Callable[[str], object]] = {
    "Log.open": Log.open,
    "LogDir.open": LogDir.open,
    "OldLog.open": OldLog.open,
    "open_cached": offsetlog.open_cached,
    "verify": offsetlog.verify,
    "folder_kind": folder_kind,
    "identity": offsetlog.identity,
    "commits": offsetlog.commits,
    "zookeeper_node": lambda path: offsetlog.zookeeper_node(path, "/brokers"),
}
READING_COMMANDS = ["ls", "cat", "verify", "dump", "groups", "metadata", "transactions", "producers", "why", "commits"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log in the working directory."""
    filled(tmp_path / "t-0")
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_verb_that_takes_a_path_and_writes_is_here() -> None:
    taking = {name for name, calls in CALLS.items() if calls[0].opens is folder}
    shell = {name.removeprefix("offsetlog ") for name in taking if name.startswith("offsetlog ")}
    assert set(PYTHON) == {name for name in taking if not name.startswith("offsetlog ")} | {"Server"}
    assert set(COMMANDS) == shell | {"serve"}


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize("verb", PYTHON)
def test_nothing_is_made_of_an_object_stores_path(verb: str, url: str, here: Path) -> None:
    before = tree(here)
    for call in PYTHON[verb]:
        with pytest.raises(ConfigError, match="only local paths are read and written"):
            call(url)
        assert tree(here) == before


@pytest.mark.parametrize("url", STORES[:3])
def test_one_slash_is_enough(url: str, here: Path) -> None:
    """`pathlib` leaves no more of it."""
    before = tree(here)
    path = Path(url)
    assert "://" not in str(path)
    for call in (lambda: Log.open(path, "a"), lambda: LogDir.open(path, "a"), lambda: offsetlog.salvage("t-0", path)):
        with pytest.raises(ConfigError, match="only local paths are read and written"):
            call()
    assert tree(here) == before


def told(verb: str, words: list[str]) -> tuple[int, str]:
    """The exit code and the message of the command; of a server that would run, after a while."""
    command = [sys.executable, "-m", "offsetlog", verb, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), input="", timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize("verb", COMMANDS)
def test_no_command_makes_anything_of_it(verb: str, here: Path) -> None:
    before = tree(here)
    for words in COMMANDS[verb]:
        code, text = told(verb, [word.replace("URL", STORES[0]) for word in words])
        assert (code, tree(here)) == (2, before), text
        assert "only local paths are read and written" in text


@pytest.mark.parametrize("verb", READING)
def test_reading_says_that_stores_are_not_read(verb: str, here: Path) -> None:
    with pytest.raises(ConfigError, match="only") as raised:
        READING[verb](STORES[0])
    assert "no such file" not in str(raised.value).lower()
    assert "mount" in str(raised.value)
    assert here.is_dir()


@pytest.mark.parametrize("verb", READING_COMMANDS)
def test_commands_that_read_say_so_too(verb: str, here: Path) -> None:
    code, text = told(verb, [STORES[0]])
    assert code == 2
    assert "only local paths are read and written" in text
    assert here.is_dir()


def test_a_file_url_is_its_path(here: Path) -> None:
    """As in Spark's option `path`."""
    place, other = here / "my disk", here / "my other disk"
    url, elsewhere = f"file://{here}/my%20disk", f"file://{here}/my%20other%20disk"
    for path in (f"{url}/t-0", f"file:{here}/my%20disk/t-0", f"file://localhost{here}/my%20disk/t-0"):
        with Log.open(path, "a") as log:
            log.append(b"value")
            assert Path(log.path) == place / "t-0"
    with LogDir.open(url, "a") as log_dir:
        log_dir.create_topic("orders")
    assert told("create", ["more", url])[0] == 0
    assert told("salvage", [f"{url}/t-0", "--into", f"{elsewhere}/new"])[0] == 0
    offsetlog.convert(f"{url}/t-0", f"{url}/old-0")
    offsetlog.restore(f"{url}/t-0", f"{elsewhere}/restored")
    assert {path.name for path in place.iterdir()} >= {"t-0", "orders-0", "more-0", "old-0"}
    for made in (other / "new/t-0", place / "old-0", other / "restored/t-0"):
        with Log.open(made) as log:
            assert log.log_end_offset == 3, made
    assert {path.name for path in here.iterdir()} == {"t-0", "logs", "my disk", "my other disk"}


def test_a_local_folder_of_such_a_name_is_named_by_its_place(here: Path) -> None:
    paths: list[str | Path] = ["./s3://bucket/t-0", here / "s3:/bucket/t-0", "c:/t-0"]
    for number, path in enumerate(paths):
        with Log.open(path, "a") as log:
            assert log.log_end_offset == number % 2
            log.append(b"value")
    assert (here / "s3:" / "bucket" / "t-0").is_dir()
