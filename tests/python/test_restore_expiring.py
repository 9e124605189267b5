"""Groups that are restored along, and whose offsets a coordinator deletes soon after its start, as nobody has used them for long.

By ``ClassicGroup.offsetExpirationCondition`` and ``OffsetExpirationConditionImpl`` of Kafka 4.3.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from restoring import formatted
from test_restore_retention import DAY, now

from offsetlog import Log, RestoreReport, restore


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit(group: str, committed: int, *, expires: int | None = None) -> tuple[bytes, bytes]:
    """An `OffsetCommit` of version 3, or of version 1, which has a time of expiry."""
    key = struct.pack(">h", 1) + text(group) + text("orders") + struct.pack(">i", 0)
    if expires is not None:
        return key, struct.pack(">hq", 1, 1) + text("") + struct.pack(">qq", committed, expires)
    return key, struct.pack(">hqi", 3, 1, -1) + text("") + struct.pack(">q", committed)


def state(group: str, since: int, *, protocol_type: str = "consumer", members: int = 0) -> tuple[bytes, bytes]:
    """A `GroupMetadata` of version 3."""
    member = text("member") + struct.pack(">h", -1) + text("client") + text("host") + struct.pack(">iiii", 1000, 1000, 0, 0)
    value = struct.pack(">h", 3) + text(protocol_type) + struct.pack(">ihhqi", 1, -1, -1, since, members)
    return struct.pack(">h", 2) + text(group), value + member * members


def restored(place: Path, into: Path, pairs: list[tuple[bytes, bytes | None]], broker: str | None = "") -> RestoreReport:
    with Log.open(place / "old" / "__consumer_offsets-0", "a", config={"cleanup.policy": "compact"}) as log:
        log.append_records(pairs)
    with Log.open(place / "old" / "orders-0", "a") as log:
        log.append(b"value", timestamp=now())
    if broker is not None:
        (place / "server.properties").write_text(broker)
    file = None if broker is None else place / "server.properties"
    return restore(place / "old", into, new_cluster=into.name == "new", broker=file)


def told(report: RestoreReport) -> list[str]:
    return [each.reason for each in report.remaining if "a coordinator deletes" in each.reason]


@pytest.mark.parametrize(
    ("case", "days", "is_due"),
    [
        ("empty", 8, True),
        ("empty", 5, False),
        ("empty for a short time", 8, False),
        ("no protocol type", 8, True),
        ("no group", 8, True),
        ("no group", 5, False),
        ("members", 8, False),
        ("old schema", 8, True),
        ("forgotten", 8, True),
        ("taken back", 8, False),
    ],
)
def test_groups_that_are_due_are_told(case: str, days: int, is_due: bool, tmp_path: Path) -> None:
    then = now() - days * DAY
    pairs: list[tuple[bytes, bytes | None]] = [commit("g", then)]
    if case == "empty":
        pairs = [commit("g", now() - 100 * DAY), state("g", then)]
    elif case == "empty for a short time":
        pairs.append(state("g", now()))
    elif case == "no protocol type":
        pairs.append(state("g", now(), protocol_type=""))
    elif case == "members":
        pairs.append(state("g", then, members=1))
    elif case == "old schema":
        pairs.append(state("g", -1))
    elif case == "forgotten":
        pairs += [state("g", now()), (state("g", 0)[0], None)]
    elif case == "taken back":
        pairs.append((pairs[0][0], None))
    found = told(restored(tmp_path, formatted(tmp_path / "new"), pairs))
    assert len(found) == is_due
    for reason in found:
        assert reason.startswith("1 group (g) had no members for so long")
        assert "(offsets.retention.minutes=10080 of the brokers)" in reason
        # As long as it was unused, and 30 days more.
        minutes = int(reason.partition("put offsets.retention.minutes=")[2].split()[0])
        assert minutes in range((days + 30) * 1440, (days + 30) * 1440 + 5)


@pytest.mark.parametrize(
    ("broker", "held"), [(None, "=10080"), ("offsets.retention.minutes=60\n", "=60"), ("offsets.retention.minutes=99999\n", None)]
)
def test_the_setting_of_the_brokers_counts(broker: str | None, held: str | None, tmp_path: Path) -> None:
    days = 0.01 if held == "=60" else 8
    found = told(restored(tmp_path, formatted(tmp_path / "new"), [commit("g", now() - int(days * DAY))], broker))
    assert ["if theirs is Kafka's default" in reason for reason in found] == ([] if held is None else [broker is None])
    assert all(f"offsets.retention.minutes{held} of the brokers" in reason for reason in found)


@pytest.mark.parametrize(("expires", "is_due"), [(-1, True), (400, False)])
def test_an_old_record_has_a_time_of_its_own(expires: int, is_due: bool, tmp_path: Path) -> None:
    """Whatever the setting is."""
    pairs: list[tuple[bytes, bytes | None]] = [commit("g", now() - 100 * DAY, expires=now() + expires * DAY)]
    found = told(restored(tmp_path, formatted(tmp_path / "new"), pairs, "offsets.retention.minutes=60\n"))
    assert ["which no setting changes" in reason for reason in found] == [True] * is_due


def test_a_folder_has_no_coordinator(tmp_path: Path) -> None:
    assert told(restored(tmp_path, tmp_path / "folder", [commit("g", now() - 100 * DAY)])) == []
