"""What damage does to the answers of reading verbs: errors that name it, and everything that it does not touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from kafka_wire import CORRUPT_MESSAGE, NONE
from reading_answers import Bad, Check, Ran

from offsetlog import CorruptionError, TopicPartition, UnreadPartitionsError


def is_placed(bad: Bad, found: Any, _: object = None) -> None:  # noqa: ANN401  # a part of any answer
    """An error that names path, position and offset."""
    assert isinstance(found, CorruptionError), found
    assert found.path is not None
    assert found.path.endswith(str(bad.file))
    assert (found.position, found.offset) == (bad.position, bad.offset)
    assert bad.place in str(found)
    assert f"position {bad.position}" in str(found)


def is_named(bad: Bad, found: Any, _: object = None) -> None:  # noqa: ANN401
    """The same, with what was found and expected where it is a checksum that is wrong."""
    is_placed(bad, found)
    if bad.lost:
        assert found.found is not None
        assert found.expected is not None


def before_it(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """The records before the damage, then its error."""
    assert found.given == [each for each in sound.given if each.offset < min(bad.lost)]
    is_named(bad, found.error)


def but_it(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """All records but those of the damaged batch."""
    assert found == [each for each in sound if offset_of(each) not in bad.lost]
    assert len(found) == len(sound) - len(bad.lost)


def offset_of(each: Any) -> int:  # noqa: ANN401  # a record, or a row
    return int(each["offset"] if isinstance(each, dict) else each.offset)


def holes(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """A report that lists what is missing, and nothing else."""
    assert sound == []
    (hole,) = found
    assert (hole.topic, hole.partition, hole.position, hole.start, hole.stop) == (
        *bad.key,
        bad.position,
        min(bad.lost),
        max(bad.lost) + 1,
    )
    assert hole.path.endswith(str(bad.file))


def unread(partial: Callable[[Bad, Any], object], named: Check = is_named) -> Check:
    """The error of many partitions: it carries what could be read, and names the damaged one."""

    def check(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
        assert isinstance(found, UnreadPartitionsError), found
        assert list(found.failed) == [bad.key]
        named(bad, found.failed[bad.key], None)
        assert found.partial == partial(bad, sound)

    return check


def of_others(bad: Bad, sound: dict[TopicPartition, object]) -> dict[TopicPartition, object]:
    """Without the damaged partition."""
    return {key: each for key, each in sound.items() if key != bad.key}


def readable(bad: Bad, sound: Iterable[Any]) -> list[Any]:
    """Records of the other partitions, and those before the damage, in the order of the partitions."""
    return [each for each in sound if (each.topic, each.partition) != bad.key or each.offset < min(bad.lost)]


def others_first(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """A scan of many partitions gives all that can be read before it raises."""
    assert found.given == readable(bad, sound.given)
    unread(lambda *_: found.error.partial, is_placed)(bad, found.error, None)


def tells(bad: Bad, found: Ran, _: object = None, *, code: int = 2) -> None:
    """A command names what is damaged, and ends with its exit code."""
    assert found.code == code, found
    assert bad.place in found.out + found.err, found


def is_refused(bad: Bad, found: Any, _: object) -> None:  # noqa: ANN401
    """A command that cannot answer says why on standard error, in one line."""
    tells(bad, found)
    assert found.out == ""
    assert f"position {bad.position}" in found.err
    assert [line for line in found.err.splitlines() if line.startswith("offsetlog: ") and bad.place in line]


Lines: TypeAlias = list[dict[str, Any]]


def parted(bad: Bad, lines: Lines) -> tuple[Lines, Lines]:
    """Those of the damaged partition, and all others."""

    def is_of_it(line: dict[str, Any]) -> bool:
        return (line.get("topic"), line.get("partition")) == bad.key

    return [line for line in lines if is_of_it(line)], [line for line in lines if not is_of_it(line)]


def others_in_json(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """Of the other partitions a command prints what it prints without the damage, and an object with the error of this one."""
    tells(bad, found)
    assert f"{bad.key.topic}-{bad.key.partition}" in found.err
    of_it, others = parted(bad, found.lines)
    assert others == parted(bad, sound.lines)[1]
    (error,) = [line["error"] for line in of_it if "error" in line]
    assert bad.place in error
    assert f"position {bad.position}" in error


def records_in_json(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """The same, and of the damaged partition the records before the damage."""
    others_in_json(bad, found, sound)
    given = [line for line in parted(bad, found.lines)[0] if "offset" in line]
    assert given == [line for line in parted(bad, sound.lines)[0] if line["offset"] < min(bad.lost)]


def skipped_in_json(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """All but what is damaged, which standard error tells of."""
    assert found.code == 0
    (of_it, others), (of_it_before, others_before) = parted(bad, found.lines), parted(bad, sound.lines)
    assert others == others_before
    assert of_it == [line for line in of_it_before if line["offset"] not in bad.lost]
    assert bad.file.name in found.err
    assert f"offsets {min(bad.lost)} to {max(bad.lost)}" in found.err


def counts_the_others(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401  # a part of any answer
    assert found == sound - len(bad.lost)


def is_corrupt_message(_: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401  # a part of any answer
    assert sound[0] == (NONE, True)
    assert found == {**sound, 0: (CORRUPT_MESSAGE, False)}


DAMAGE_COUNT = "offsetlog_serve_damage_total"


def counts_damage(_: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    assert sound == [f"{DAMAGE_COUNT} 0"]
    assert found == [f"{DAMAGE_COUNT} 1"]


def tells_of_damage(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    assert sound == []
    assert [event for event in found if bad.place in event.text and f"position {bad.position}" in event.text]


def java_hash(text: str) -> int:
    """As Java has it: a coordinator is chosen by it."""
    value = 0
    for each in text:
        value = (31 * value + ord(each)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def is_coordinated_by(bad: Bad, name: str) -> bool:
    """Whether what this coordinator kept is in the damaged partition, of which the internal topic has two."""
    return java_hash(name) % 2 == bad.key.partition


def other_groups(bad: Bad, sound: Any) -> object:  # noqa: ANN401
    others = [group for group in sound if not is_coordinated_by(bad, group.group_id)]
    assert 0 < len(others) < len(sound)
    return others


def other_ids(bad: Bad, sound: Any) -> object:  # noqa: ANN401
    others = [each for each in sound if not is_coordinated_by(bad, each.transactional_id)]
    assert 0 < len(others) < len(sound)
    return others


def other_lines(bad: Bad, sound: Any) -> object:  # noqa: ANN401
    """Of Prometheus's text: those of other groups."""
    lines = [line for line in sound.splitlines() if not any(is_coordinated_by(bad, name) for name in groups_in(line))]
    return "".join(f"{line}\n" for line in lines)


def groups_in(line: str) -> list[str]:
    return [line.partition('consumergroup="')[2].partition('"')[0]] if "consumergroup=" in line else []


def other_resets(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    unread(lambda *_: found.partial)(bad, found, sound)
    left = [name for name in sound.groups if not is_coordinated_by(bad, name)]
    assert list(found.partial.groups) == left
    # The file of one group has no column for it.
    expected = [line.partition(",")[2] for line in sound.csv.splitlines() if line.partition(",")[0] in left]
    assert found.partial.csv.splitlines() == expected


OF_COORDINATOR: dict[str, Any] = {"transactional_id": None, "state": None, "timeout_ms": None, "standing": None}
"""What of a producer its coordinator tells."""


def without_coordinator(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """All producers are there; of those whose coordinator is in the damaged partition, what that says is not known."""
    for each, before in zip(found, sound, strict=True):
        assert each._replace(path="", **OF_COORDINATOR) == before._replace(path="", **OF_COORDINATOR)
        if before.transactional_id is None or not is_coordinated_by(bad, before.transactional_id):
            assert each._replace(path="") == before._replace(path="")
        else:
            assert (each.transactional_id, each.state) == (None, None)
            assert each.standing == ("none" if before.transaction_first_offset is None else "unknown")


def cannot_be_told(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """Each row says why, where the metadata decides."""
    assert [row.path.rpartition("/")[2] for row in found] == [row.path.rpartition("/")[2] for row in sound]
    changed = [row for row, before in zip(found, sound, strict=True) if row.outcome != before.outcome]
    assert changed
    assert all(row.outcome == "unknown" and bad.place in row.reason for row in changed)


def is_unknown(bad: Bad, found: Any, _: object) -> None:  # noqa: ANN401
    """Of a topic's settings what the cluster may set."""
    unknown = [each for each in found.settings.values() if each.source == "unknown"]
    assert unknown
    assert all(bad.place in (each.reason or "") for each in unknown)
    assert not any(each.source == "topic" for each in found.settings.values())


def answers_name_it(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """Where settings decide, these cannot be known, and the sentence says why."""
    assert [(each.topic, each.partition, each.question) for each in found if each.question == "deletion"] == [
        (each.topic, each.partition, each.question) for each in sound if each.question == "deletion"
    ]
    for each in found:
        if each.question == "deletion" and each.topic != "__cluster_metadata":
            assert each.reason == "unknown-setting", each
            assert bad.place in each.sentence, each


def finds_it(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """One finding more: an error with the place."""

    def told(report: Any) -> Counter[tuple[object, ...]]:  # noqa: ANN401
        return Counter((each.severity, Path(each.path).name, each.position, each.offset) for each in report.findings)

    assert told(found) - told(sound) == Counter([("error", bad.file.name, bad.position, bad.offset)])
    assert not told(sound) - told(found)
    assert [each.path.endswith(str(bad.file)) for each in found.findings if each.severity == "error"] == [True]
    assert (found.errors, found.warnings, found.notes) == (sound.errors + 1, sound.warnings, sound.notes)
    assert (found.partitions, found.records) == (sound.partitions, sound.records - len(bad.lost))


def dumps_the_others(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """Everything but the records of the damaged batch, and a line for it."""
    tells(bad, found, code=3)

    def kept(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            line for line in lines if line["type"] != "damage" and not (line["file"].endswith(bad.file.name) and is_lost(bad, line))
        ]

    assert kept(found.lines) == kept(sound.lines)
    of_it = [line for line in found.lines if line["file"].endswith(bad.file.name) and is_lost(bad, line) and line["type"] != "damage"]
    assert [(line["type"], line["crc_valid"]) for line in of_it] == [("batch", False)]
    (damage,) = [line for line in found.lines if line["type"] == "damage"]
    assert (damage["position"], damage["offset"]) == (bad.position, bad.offset)


def is_lost(bad: Bad, line: dict[str, Any]) -> bool:
    """A line of the damaged batch, or of a record in it."""
    return (line["type"] == "record" and line["offset"] in bad.lost) or (line["type"] == "batch" and line["base_offset"] == bad.offset)


def verifies(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    tells(bad, found, code=3)
    new = [line for line in found.lines[:-1] if line not in sound.lines]
    assert [(line["severity"], line["position"], line["offset"]) for line in new] == [("error", bad.position, bad.offset)]


def groups_of_others(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """Lines with the groups of the other partition, and one with the error."""
    tells(bad, found)
    assert [line for line in found.lines if "error" not in line] == [
        line for line in sound.lines if not is_coordinated_by(bad, line.get("group") or line.get("transactional_id"))
    ]


def in_words(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """A warning on standard error."""
    assert found.code == sound.code
    assert [line for line in found.err.splitlines() if bad.place in line]


def the_same_in_words(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """The same answer, and a warning that it was not compared with the metadata."""
    assert found.out == sound.out
    in_words(bad, found, sound)


def settings_of_others(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    tells(bad, found)
    assert [line for line in found.lines if line["topic"] != bad.key.topic] == [
        line for line in sound.lines if line["topic"] != bad.key.topic
    ]
    (line,) = [line for line in found.lines if line["topic"] == bad.key.topic]
    assert bad.place in line["error"]


def takes_the_first(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """In the order asked: what was given stands before the error."""
    assert found.given == sound.given[:1]
    is_named(bad, found.error)


def counts_what_it_gives(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    assert isinstance(found, UnreadPartitionsError)
    behind = 200 - min(bad.lost)
    assert found.partial == sound - behind
    unread(lambda *_: found.partial, is_placed)(bad, found, sound)


def of_directories(_: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    """The topics are those of the directories, and their settings are not known."""
    assert isinstance(found, str)
    assert found != sound
    assert "g-plain" in found


def is_logged(bad: Bad, found: Any, sound: Any) -> None:  # noqa: ANN401
    assert sound == []
    assert [text for text in found if bad.place in text and f"position {bad.position}" in text]
