"""A broker's cleaner goes on from the point where ours ended, and ours from the broker's; what is left is what must be."""

from __future__ import annotations

import pytest
from cleaners import EVERY, ISOLATIONS, OURS, THEIRS, TRANSACTIONS, Cleaners

PARTITION = pytest.mark.parametrize("number", EVERY, ids=["ours", "transactions", "theirs"])
MOMENTS = pytest.mark.parametrize("moment", range(3), ids=["after-ours", "after-theirs", "read-by-us"])
BROKER_FIRST, OURS_NEXT, BROKER_AGAIN, OURS_LAST = range(4)


def test_every_step_is_done(cleaners_told: Cleaners) -> None:
    """A cleaner that never comes to its end, an append that is refused, a broker that does not start."""
    if cleaners_told.failure is not None:
        raise cleaners_told.failure
    assert list(cleaners_told.seconds) == ["theirs_first", "ours_next", "theirs_again", "ours_last"]


@PARTITION
@MOMENTS
def test_readers_get_what_compaction_leaves(cleaners: Cleaners, moment: int, number: int) -> None:
    """Offsets, times, epochs, keys, values, headers; tombstones are among them, and nothing that was aborted."""
    seen = cleaners.seen[moment]
    for isolation in ISOLATIONS:
        found, wanted = seen.found[number, isolation], seen.wanted[number, isolation]
        assert found == wanted
        assert any(row.value is None for row in found)
        assert len(found) < len(cleaners.expected[number].rows) / 2


@PARTITION
def test_a_broker_goes_on_from_our_point(cleaners: Cleaners, number: int) -> None:
    """Its log says where each of its passes began and ended."""
    ours, theirs = (cleaners.points[step][number] for step in (OURS_NEXT, BROKER_AGAIN))
    assert ours is not None
    assert theirs is not None
    assert theirs > ours
    sections = cleaners.sections(number)
    assert sections[0][0] == ours
    assert sections[-1][1] == theirs
    assert [end for _, end in sections[:-1]] == [begin for begin, _ in sections[1:]]


@PARTITION
def test_we_go_on_from_a_brokers_point(cleaners: Cleaners, number: int) -> None:
    """Also from the point that stands there because the broker's cleaner went on from ours."""
    passes = {step: one for step, of, one in cleaners.passes if of == number}
    assert sorted(passes) == [OURS_NEXT, OURS_LAST]
    for step, one in passes.items():
        assert one.first_dirty_offset == (cleaners.points[step - 1][number] or 0)
        assert one.end_offset == one.first_uncleanable_offset == cleaners.points[step][number]
        assert one.records_after < one.records_before
    assert (cleaners.points[BROKER_FIRST][number] is not None) == (number == THEIRS)


def test_cleaning_finds_nothing_wrong(cleaners: Cleaners) -> None:
    for number in EVERY:
        said = cleaners.broker.said_of(f"cleaned-{number}")
        assert not [line for line in said if " WARN " in line or " ERROR " in line or "orrupt" in line]


def test_partitions_have_what_they_are_for(cleaners: Cleaners) -> None:
    """Aborted records that compaction had to remove, and as many passes as show that one goes on from the other."""
    expected = cleaners.expected[TRANSACTIONS]
    assert len(expected.aborted) > 50
    assert len([marker for marker in expected.markers if marker.commit]) > 5
    assert not cleaners.expected[OURS].aborted
