"""LogConfig: Kafka's settings as a frozen value; what Kafka accepts is held by the engine's own test over the same data."""

from __future__ import annotations

import copy
import doctest
import json
import pickle
import typing
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import settings_page
from hypothesis import given, strategies as st

from offsetlog import ConfigError, LogConfig, _config, _offsetlog
from offsetlog._config import SETTINGS, Settings, to_log_config

DATA = Path(__file__).resolve().parents[1] / "data/settings/kafka-4.3.0.json"
KAFKA: Mapping[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
KINDS: Mapping[str, type] = {"boolean": bool, "double": float, "int": int, "long": int}


def test_attributes_are_the_engines_table() -> None:
    """Names and types stand in the class for editors; nothing may be missing, left over or of another type."""
    held = {name: kind for name, kind in typing.get_type_hints(LogConfig).items() if not name.startswith("_")}
    taken = typing.get_type_hints(Settings)
    attributes = [setting.attribute for setting in SETTINGS.values()]
    assert list(held) == list(taken) == attributes
    for setting in SETTINGS.values():
        kind, argument = held[setting.attribute], taken[setting.attribute]
        if setting.type == "string":
            words = set(setting.bounds.split(", "))
            assert set(typing.get_args(kind)) == set(typing.get_args(argument)) == words
        elif setting.type == "list":
            assert kind == tuple[str, ...]
            assert str in typing.get_args(argument)
        else:
            plain = KINDS[setting.type]
            assert kind == (plain if setting.default else plain | None)
            assert argument == (plain | timedelta if setting.name.endswith(".ms") else plain)


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    defaults = KAFKA["defaults"]
    assert sorted(defaults) == list(SETTINGS)
    for name, value in defaults.items():
        ours = getattr(config, SETTINGS[name].attribute)
        assert ours == (tuple(value) if isinstance(value, list) else value), name
        assert type(ours) is (tuple if isinstance(value, list) else type(value))
    assert config.to_dict() == {}
    assert repr(config) == "LogConfig()"


def test_texts_are_read_as_kafka_reads_them() -> None:
    seen = 0
    for name, said in KAFKA["single"].items():
        for text, value in said["accepted"].items():
            try:
                ours = getattr(LogConfig.from_dict({name: text}), SETTINGS[name].attribute)
            except ConfigError:
                continue  # the engine's test knows these by name
            seen += 1
            assert ours == (tuple(filter(None, value)) if isinstance(value, list) else value), (name, text)
        for text in said["refused"]:
            with pytest.raises(ConfigError) as caught:
                LogConfig.from_dict({name: text})
            assert (caught.value.key, caught.value.value) == (name, text)
    assert seen > 200


def test_both_ways_of_naming_are_the_same() -> None:
    one = LogConfig.from_dict({"segment.ms": "3600000", "cleanup.policy": " compact , delete ", "preallocate": "TRUE"})
    two = LogConfig(preallocate=True, segment_ms=timedelta(hours=1), cleanup_policy=["compact", "delete"])
    assert one == two
    assert hash(one) == hash(two)
    assert one != LogConfig()
    assert one != one.to_dict()
    assert one.to_dict() == {"cleanup.policy": "compact,delete", "preallocate": True, "segment.ms": 3_600_000}
    assert list(one.to_dict()) == sorted(one.to_dict())
    assert repr(one) == "LogConfig(cleanup_policy='compact,delete', preallocate=True, segment_ms=3600000)"
    assert (one.cleanup_policy, one.segment_ms, one.preallocate) == (("compact", "delete"), 3_600_000, True)
    assert LogConfig.from_dict(one.to_dict()) == one
    assert to_log_config(one) is one
    assert to_log_config(one.to_dict()) == one


def test_copies_and_pickles_are_equal() -> None:
    config = LogConfig(segment_ms=5, min_cleanable_dirty_ratio=0.1, leader_replication_throttled_replicas="*")
    for same in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert same == config
        assert same.min_cleanable_dirty_ratio == 0.1
        assert same.leader_replication_throttled_replicas == ("*",)


def test_frozen() -> None:
    config = LogConfig(segment_ms=5)
    with pytest.raises(AttributeError, match="replace"):
        config.segment_ms = 6
    with pytest.raises(AttributeError, match="frozen"):
        del config.segment_ms
    changed = config.replace(segment_ms=6, retention_ms=-1)
    assert (config.segment_ms, changed.segment_ms, changed.retention_ms) == (5, 6, -1)
    assert changed.to_dict() == {"retention.ms": -1, "segment.ms": 6}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"segmnt.ms": 1}, 'config: no topic setting is called "segmnt.ms"; did you mean segment.ms?'),
        ({"segment_ms": 1}, 'config: no topic setting is called "segment_ms"; did you mean segment.ms?'),
        ({"log.retention.hours": 1}, "did you mean retention.ms?"),
        ({"message.format.version": "3.0"}, "Kafka dropped it"),
        ({"segment.bytes": 100}, 'segment.bytes: "100" found, a whole number (int), at least 1048576 expected'),
        ({"segment.ms": 1.5}, 'segment.ms: "1.5" found, a whole number (long), at least 1 expected'),
        ({"segment.ms": True}, 'segment.ms: "true" found'),
        ({"segment.ms": 1 << 70}, f'segment.ms: "{1 << 70}" found'),
        ({"preallocate": 1}, 'preallocate: "1" found, true or false expected'),
        ({"min.cleanable.dirty.ratio": float("nan")}, 'min.cleanable.dirty.ratio: "nan" found'),
        ({"cleanup.policy": ["compact", ""]}, 'cleanup.policy: "compact," found'),
        ({"segment.bytes": timedelta(hours=1)}, "only settings that end in ms take one"),
        ({"segment.ms": timedelta(microseconds=1500)}, "whole milliseconds expected"),
        ({"segment.ms": timedelta(0)}, 'segment.ms: "0" found'),
        ({"segment.ms": "5\udc80"}, "segment.ms: "),
        ({"segment.ms\udc80": "5"}, "no topic setting is called"),
    ],
)
def test_errors_tell_what_was_found_and_expected(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_dict(settings)
    assert text in str(caught.value)
    assert caught.value.key is not None
    assert caught.value.key.split("\\")[0] == next(iter(settings)).split("\udc80")[0]
    assert caught.value.value
    assert pickle.loads(pickle.dumps(caught.value)).key == caught.value.key


def test_errors_of_several_settings_name_the_one() -> None:
    with pytest.raises(ConfigError, match=r"at most max\.compaction\.lag\.ms of 4") as caught:
        LogConfig(retention_ms=5, min_compaction_lag_ms=5, max_compaction_lag_ms=4)
    assert (caught.value.key, caught.value.value) == ("min.compaction.lag.ms", "5")
    with pytest.raises(ConfigError, match=r"did you mean segment\.bytes") as caught:
        LogConfig(retention_ms=5, segmant_bytes=5)  # type: ignore[call-arg]
    assert (caught.value.key, caught.value.value) == ("segmant_bytes", "5")


@pytest.mark.parametrize("value", [None, b"5", object(), {"a": "b"}, [1], 5j])
def test_values_of_other_types_are_type_errors(value: object) -> None:
    with pytest.raises(TypeError, match=r"segment\.ms must be text, a number"):
        LogConfig.from_dict({"segment.ms": value})  # type: ignore[dict-item]


def test_names_of_other_types_are_type_errors() -> None:
    with pytest.raises(TypeError, match="must be str, found int"):
        LogConfig.from_dict({5: 5})  # type: ignore[dict-item]


def test_numbers_of_other_kinds() -> None:
    numpy = pytest.importorskip("numpy")
    config = LogConfig(segment_ms=numpy.int64(5), min_cleanable_dirty_ratio=numpy.float64(0.25))
    assert config == LogConfig(segment_ms=5, min_cleanable_dirty_ratio=0.25)


def test_long_values_are_cut_in_reprs_and_errors() -> None:
    replicas = [f"{partition}:1" for partition in range(1000)]
    config = LogConfig(leader_replication_throttled_replicas=replicas)
    assert config.leader_replication_throttled_replicas == tuple(replicas)
    assert len(repr(config)) < 200
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ConfigError) as caught:
        LogConfig(leader_replication_throttled_replicas=[*replicas, "x"])
    assert len(str(caught.value)) < 300
    assert caught.value.value is not None
    assert len(caught.value.value) == 200


@given(
    st.dictionaries(st.sampled_from(sorted(SETTINGS)), st.one_of(st.integers(), st.booleans(), st.floats(), st.text(), st.just("0")))
)
def test_whatever_is_taken_survives(settings: dict[str, Any]) -> None:
    """A config is a value: its dict, its pickle and its copies make the same one."""
    try:
        config = LogConfig.from_dict(settings)
    except ConfigError:
        return
    assert set(config.to_dict()) == set(settings)
    assert LogConfig.from_dict(config.to_dict()) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_rows_of_the_table() -> None:
    """What the page and the class are made from is whole."""
    assert [row[0] for row in _offsetlog.settings()] == sorted(KAFKA["defaults"])
    for setting in SETTINGS.values():
        assert setting.documentation.endswith("."), setting.name
        assert "  " not in setting.documentation
        assert setting.documentation[0].isupper(), setting.name


def test_page_is_current() -> None:
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page(), "run python tests/python/settings_page.py"


def test_examples_are_true() -> None:
    done = doctest.testmod(_config)
    assert (done.failed, done.attempted > 3) == (0, True)
