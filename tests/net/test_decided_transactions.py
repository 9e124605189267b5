"""`serve --open-transactions decide`: what the coordinator has decided is shown as it decided, and what it has not as aborted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from held_records import PRODUCER, decide
from protocol import FETCH, LIST_OFFSETS, Connection, fetch, only
from test_held_records import CASES, place

from offsetlog import ConfigError, Server, mirror

__all__ = ["place"]

RECORDS = 3


def shown(kafka: Server) -> str:
    """What a consumer of committed records sees of the transaction."""
    with Connection(kafka.bootstrap_servers) as wire:
        part = only(wire.ask(FETCH, 12, fetch("top", 0, 0, committed=True)))
        place = {"Name": "top", "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}
        end = only(wire.ask(LIST_OFFSETS, 7, {"IsolationLevel": 1, "Topics": [place]}))
    assert part["ErrorCode"] == 0
    assert part["HighWatermark"] == RECORDS
    assert part["LastStableOffset"] == end["Offset"]
    if part["LastStableOffset"] == 0:
        assert not part["Records"]
        return "waits"
    assert part["LastStableOffset"] == RECORDS
    assert part["Records"]
    aborted = [(each["ProducerId"], each["FirstOffset"]) for each in part["AbortedTransactions"] or []]
    assert aborted in ([], [(PRODUCER, 0)])
    return "aborted" if aborted else "committed"


@pytest.mark.parametrize(("state", "fields", "expected"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_state_decides(place: Path, state: str, fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    """As `end-transaction` would end it; what it would abort if asked to is shown as aborted, and what nobody knows waits."""
    decide(place, state, **fields)
    unasked, if_aborted, _ = expected
    ends = unasked if unasked != "refused" else if_aborted
    with Server(place, open_transactions="decide") as kafka:
        assert shown(kafka) == (ends if ends != "refused" else "waits")
    with Server(place) as kafka:
        assert shown(kafka) == "waits"


@pytest.mark.parametrize(
    ("state", "fields", "expected"),
    [("PrepareCommit", {}, "committed"), ("Ongoing", {}, "aborted"), ("CompleteCommit", {"partitions": ()}, "waits")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_state_decides_of_a_copy(place: Path, tmp_path: Path, state: str, fields: dict[str, Any], expected: str) -> None:
    """A mirror has the coordinator's records only if they are asked for by name. Then a copy says what its source says."""
    decide(place, state, **fields)
    with Server(place) as source:
        for copy, topics in (("bare", ["*"]), ("whole", ["*", "__transaction_state"])):
            assert mirror(source.bootstrap_servers, tmp_path / copy, topics=topics, once=True, groups=False).is_complete
    with Server(tmp_path / "whole") as kafka:
        assert shown(kafka) == "waits"
    for logs in (place, tmp_path / "whole"):
        with Server(logs, open_transactions="decide") as kafka:
            assert shown(kafka) == expected
    with pytest.raises(ConfigError, match="no partition of __transaction_state is here"):
        Server(tmp_path / "bare", open_transactions="decide")
    with Server(tmp_path / "bare", open_transactions="decide", without_state=True) as kafka:
        assert shown(kafka) == "aborted"


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort"])
def test_a_record_that_may_tell_of_the_transaction_is_not_overruled(place: Path, state: str) -> None:
    """`without_state` is for transactions of which no record tells. This one may be of it, and tell of a commit."""
    decide(place, state, partitions=())
    with Server(place, open_transactions="decide", without_state=True) as kafka:
        assert shown(kafka) == "waits"
    with Server(place, open_transactions="decide") as kafka:
        assert shown(kafka) == "waits"
