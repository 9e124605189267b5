"""What a stream does with the leader epochs of its checkpoint where the log has no newer ones to say: gone, shorter, or hard to read."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from stream_engine import KINDS, Checkpoint, Engine
from truncation import LENIENT, append, at, offsets, query

from offsetlog.spark.stream_offsets import Offsets, leader_epochs
from offsetlog.spark.stream_planning import Follower

AVAILABLE_NOW = "available now"


# A topic that is deleted.


def two_topics(folder: Path) -> dict[str, str]:
    append(folder, 2, 5, 5)
    append(folder, 2, 5, 5, name="u-0")
    return query(folder, subscribe="t,u")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [0, 5])
def test_a_topic_that_is_deleted_after_available_now_has_fixed_its_end(
    kind: str, more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing of it was left to read, nothing is lost."""
    options = two_topics(tmp_path)
    strict, lenient = Checkpoint(), Checkpoint()
    Engine(options, strict, kind=kind, trigger=AVAILABLE_NOW).drain()
    Engine({**options, **LENIENT}, lenient, kind=kind, trigger=AVAILABLE_NOW).drain()
    append(tmp_path, 2, 5)
    if more:
        append(tmp_path, 2, more, name="u-0")
    engine = Engine(options, strict, kind=kind, trigger=AVAILABLE_NOW)
    other = Engine({**options, **LENIENT}, lenient, kind=kind, trigger=AVAILABLE_NOW)
    shutil.rmtree(tmp_path / "u-0")
    if more:
        with pytest.raises(FileNotFoundError, match=r"u-0: the partition directory is not there; .*failOnDataLoss = false"):
            engine.drain()
    else:
        engine.drain()
        assert offsets(strict) == list(range(15))
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        other.drain()
    assert caplog.text.count("u-0: the partition directory is not there") == (1 if more else 0)
    assert (offsets(lenient), offsets(lenient, "u")) == (list(range(15)), list(range(10)))
    assert leader_epochs(json.loads(lenient.offsets[-1]))["t", 0] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_deleted_once_the_first_end_is_known(kind: str, tmp_path: Path) -> None:
    options = two_topics(tmp_path)

    def gone() -> None:
        shutil.rmtree(tmp_path / "u-0")

    with pytest.raises(FileNotFoundError, match=r"u-0: the partition directory is not there; .*failOnDataLoss = false"):
        Engine(options, Checkpoint(), kind=kind, point=at("answered", gone)).drain()
    append(tmp_path, 2, 5, name="u-0")
    lenient = Checkpoint()
    Engine({**options, **LENIENT}, lenient, kind=kind, point=at("answered", gone)).drain()
    assert (offsets(lenient), offsets(lenient, "u")) == (list(range(10)), [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_deleted_between_the_look_at_its_end_and_at_its_epoch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = two_topics(tmp_path)
    strict, lenient = Checkpoint(), Checkpoint()
    engine, other = Engine(options, strict, kind=kind), Engine({**options, **LENIENT}, lenient, kind=kind)
    engine.drain()
    other.drain()
    append(tmp_path, 2, 5)
    append(tmp_path, 2, 5, name="u-0")
    whole = tmp_path.with_name(f"{tmp_path.name}-whole")
    shutil.copytree(tmp_path, whole)
    latest = Follower.latest

    def then_it_is_gone(self: Follower, start: Offsets) -> Offsets:
        found = latest(self, start)
        self._looked_at = self._listing()  # nothing of it is open
        shutil.rmtree(tmp_path / "u-0", ignore_errors=True)
        return found

    monkeypatch.setattr(Follower, "latest", then_it_is_gone)
    with pytest.raises(FileNotFoundError, match=r"u-0: the partition directory is not there; .*failOnDataLoss = false"):
        engine.trigger()
    shutil.copytree(whole / "u-0", tmp_path / "u-0")
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert other.trigger()
        other.drain()
    assert "u-0: the partition directory is not there" in caplog.text
    assert (offsets(lenient), offsets(lenient, "u")) == (list(range(15)), list(range(10)))
