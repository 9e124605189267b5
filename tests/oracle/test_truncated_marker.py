"""A marker is truncated when its producer's state has expired: what a broker makes of the transaction then, and after each way to open the log."""

from __future__ import annotations

import pytest
from interface import Marker, Side
from test_differences import Two, two  # noqa: F401  # a fixture

DAY = 86_400_000


def ends(side: Side) -> tuple[int, int]:
    found = side.ends()
    return found.log_end_offset, found.last_stable_offset


@pytest.mark.parametrize("is_expired", [True, False])
@pytest.mark.parametrize("rolls", ["", "d", "dm", "dma", "m", "a", "ma"])
@pytest.mark.parametrize("cut", [1, 2])
def test_the_transaction_of_a_truncated_marker(two: Two, rolls: str, cut: int, is_expired: bool) -> None:  # noqa: F811
    """Rolls are behind the data, the marker, and a record that comes after it: each takes a snapshot of the producers."""
    two.open()
    two.append(epoch=0, producer=(7, 0, 0), transactional=True)
    if "d" in rolls:
        two.each(Side.roll)
    two.each(lambda side: side.append_marker(Marker(7, 0, True, 0, two.clock.now), 0))
    if "m" in rolls:
        two.each(Side.roll)
    two.append()
    if "a" in rolls:
        two.each(Side.roll)
    two.append()
    if is_expired:
        two.clock.set(two.clock.now + 3 * DAY)
        two.append()
    two.each(lambda side: side.truncate_to(cut))
    assert ends(two.ours) == ends(two.kafka)
    two.append()
    assert ends(two.ours) == ends(two.kafka)
    # Nothing is known of an expired producer, so nothing is open, until all is read again after a crash.
    knows = cut == 1 and not is_expired
    assert ends(two.kafka) == (cut + 1, 0 if knows else cut + 1)
    for clean in (True, False, True):
        two.reopen(clean=clean)
        assert ends(two.ours) == ends(two.kafka), clean
        knows |= cut == 1 and not clean
        assert ends(two.kafka) == (cut + 1, 0 if knows else cut + 1)
        assert two.ours.fetch(0, 1 << 20, committed=True) == two.kafka.fetch(0, 1 << 20, committed=True)
    two.kafka_takes_over()
