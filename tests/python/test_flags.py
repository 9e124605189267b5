"""A flag is True or False: every text would count as true, «false» too, and delete, commit or open what nobody meant.

Every flag of every public verb is found by its annotation, so that a new one without a call here fails.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, get_type_hints

import pyarrow as pa
import pytest
from writing import tree

import offsetlog
from offsetlog import Log, LogDir, Scan, Server, Split, WritableLog, WritableLogDir, _offsetlog, _options, arrow_digest
from offsetlog.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
ZOOKEEPER = ROOT / "tests/data/zookeeper/3.8.4"
# Beside the two, what a variable of the environment, a form or a JSON text may hold.
NO_FLAGS: tuple[object, ...] = ("false", "true", "", "no", 0, 1, None, [])


class Place(NamedTuple):
    """What the calls are made on."""

    path: Path
    log_dir: WritableLogDir
    log: WritableLog
    beside: WritableLog


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with LogDir.open(tmp_path / "logs", "a") as log_dir, Log.open(tmp_path / "beside-0", "a") as beside:
        log_dir.create_topic("t")
        log_dir.append("t", b"x")
        beside.append(b"x")
        yield Place(tmp_path, log_dir, log_dir.log("t", 0), beside)


CALLS: dict[str, Callable[..., object]] = {
    "ClusterQuestions.metadata": lambda at, **flag: at.log_dir.metadata(**flag),
    "ClusterQuestions.producers": lambda at, **flag: at.log_dir.producers(**flag),
    "Log.open": lambda at, **flag: Log.open(at.path / "new-0", "a", **flag),
    "Log.scan": lambda at, **flag: at.log.scan(**flag),
    "LogDir.open": lambda at, **flag: LogDir.open(at.path / "new", "a", **flag),
    "LogDir.scan": lambda at, **flag: at.log_dir.scan(**flag),
    "Scan.over": lambda at, **flag: Scan.over([Split(at.log.path, "t", 0, 0, 1, 1)], **flag),
    "Server.__init__": lambda at, **flag: Server(at.path / "logs", open_transactions="decide", **flag).stop(),
    "Topics.append": lambda at, **flag: at.log_dir.append("t", b"x", **flag),
    "Topics.maintain": lambda at, **flag: at.log_dir.maintain(**flag),
    "Topics.remove_deleted": lambda at, **flag: at.log_dir.remove_deleted(**flag),
    "WritableLog.append": lambda at, **flag: at.log.append(b"x", **flag),
    "WritableLog.append_arrow": lambda at, **flag: at.log.append_arrow(pa.table({"value": ["x"]}), **flag),
    "WritableLog.append_as_follower": lambda at, **flag: at.log.append_as_follower(at.beside.fetch(0).records, **flag),
    "WritableLog.append_batches": lambda at, **flag: at.log.append_batches(at.beside.fetch(0).records, **flag),
    "WritableLog.append_log": lambda at, **flag: at.log.append_log(at.beside, **flag),
    "WritableLog.append_marker": lambda at, **flag: at.log.append_marker(7, 0, **{"commit": True, **flag}),
    "WritableLog.append_records": lambda at, **flag: at.log.append_records([b"x"], **flag),
    "WritableLog.maintain": lambda at, **flag: at.log.maintain(**flag),
    "adopt": lambda at, **flag: offsetlog.adopt(at.path / "logs" / "t-0", topic_id="AAECAwQFBgcICQoLDA0ODw", **flag),
    "arrow_digest": lambda _, **flag: arrow_digest(pa.table({"value": ["x"]}), **flag),
    "end_transaction": lambda at, **flag: offsetlog.end_transaction(at.path / "logs", "t", 0, 7, **flag),
    "forget_commit": lambda at, **flag: offsetlog.forget_commit(at.path / "logs", "x", **flag),
    "metadata_as_commands": lambda at, **flag: offsetlog.metadata_as_commands(at.path / "logs", **flag),
    "metadata_as_yaml": lambda at, **flag: offsetlog.metadata_as_yaml(at.path / "logs", **flag),
    "mirror": lambda at, **flag: offsetlog.mirror("127.0.0.1:1", at.path / "mirror", **{"once": True, **flag}),
    "open_cached": lambda at, **flag: offsetlog.open_cached(at.path / "beside-0", **flag),
    "recover": lambda at, **flag: offsetlog.recover(at.path / "beside-0", **flag),
    "restore": lambda at, **flag: offsetlog.restore(at.path / "logs", at.path / "restored", **flag),
    "salvage": lambda at, **flag: offsetlog.salvage(at.path / "beside-0", at.path / "salvaged-0", **flag),
    "zookeeper_node": lambda _, **flag: offsetlog.zookeeper_node(ZOOKEEPER, "/brokers", **flag),
}


def flags_of(function: Callable[..., object]) -> Iterator[tuple[str, bool]]:
    """The flags of a function, each with whether it may be ``None``."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation in {"bool", "bool | None"}:
            yield name, parameter.annotation == "bool | None"
        elif parameter.kind is parameter.VAR_KEYWORD and str(parameter.annotation).startswith("Unpack["):
            options = getattr(_options, parameter.annotation[len("Unpack[") : -1], None)
            # Those of a topic's settings are Kafka's, who has texts.
            yield from ((option, False) for option, hint in get_type_hints(options).items() if hint is bool) if options else ()


def public() -> dict[str, Callable[..., object]]:
    """Functions, and what classes have that are more than a tuple of values."""
    found: dict[str, Callable[..., object]] = {}
    for name in offsetlog.__all__:
        value = getattr(offsetlog, name)
        if isinstance(value, FunctionType):
            found[name] = value
        elif isinstance(value, type) and not issubclass(value, tuple | BaseException):
            for of in value.__mro__:
                members = {key: member for key, member in vars(of).items() if key == "__init__" or not key.startswith("_")}
                plain = {key: getattr(member, "__func__", member) for key, member in members.items()}
                found |= {f"{of.__name__}.{key}": each for key, each in plain.items() if isinstance(each, FunctionType)}
    return found


FLAGS = [(name, flag, may_be_none) for name, function in public().items() for flag, may_be_none in flags_of(function)]


def test_every_flag_has_its_call() -> None:
    assert {name for name, _, _ in FLAGS} == set(CALLS)
    assert len(FLAGS) > len(CALLS) > 25


def test_compiled_classes_have_no_flags_but_those_of_a_value() -> None:
    """Of those that are public as they are."""
    stub = ast.parse((ROOT / "python/offsetlog/_offsetlog.pyi").read_text(encoding="utf-8"))
    taking = {
        f"{kind.name}.{function.name}"
        for kind in stub.body
        if isinstance(kind, ast.ClassDef) and getattr(offsetlog, kind.name, None) is getattr(_offsetlog, kind.name)
        for function in kind.body
        if isinstance(function, ast.FunctionDef)
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None and ast.unparse(argument.annotation).startswith("bool")
    }
    assert taking == {"Record.__new__"}


@pytest.mark.parametrize(("name", "flag", "may_be_none"), FLAGS, ids=[f"{name}-{flag}" for name, flag, _ in FLAGS])
def test_a_flag_is_a_bool(place: Place, name: str, flag: str, may_be_none: bool) -> None:
    before = tree(place.path), place.log.log_end_offset
    for value in NO_FLAGS:
        if value is None and may_be_none:
            continue
        with pytest.raises(ConfigError) as caught:
            CALLS[name](place, **{flag: value})
        assert (caught.value.key, str(caught.value)) == (flag, f"{flag}: must be True or False, found {value!r}")
    assert (tree(place.path), place.log.log_end_offset) == before


def test_a_flag_for_appending_is_checked_for_reading_too(place: Place) -> None:
    wrong: dict[str, Any] = {"mode": "r", "single_replica": ""}
    with pytest.raises(ConfigError, match="single_replica: must be True or False, found ''"):
        LogDir.open(place.path / "logs", **wrong)
    with pytest.raises(ConfigError, match="single_replica: must be True or False, found ''"):
        Log.open(place.path / "beside-0", **wrong)
