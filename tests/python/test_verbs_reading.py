"""What ``docs/verbs.md`` says of the verbs that read is tried: a stopped broker's directory, a running one, damage, no room, twice."""

from __future__ import annotations

import functools
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import reading_calls
import verbs_page
from golden import row
from reading_answers import Bad, Ended, plain
from reading_calls import DAMAGES, PLAIN, READS, Place, Read, a_server, a_writer
from small_disk import run_there, small_disk
from test_no_trace import Entry, traces
from writing import HOLD, running

from offsetlog import Log, LogDirError, LogLockedError

TABLES = ("Read a partition", "Read log dirs", "Read from a shell")
ROWS = [each for each in verbs_page.rows(verbs_page.text()) if each.group in TABLES]
WRITERS = [verb for verb, read in READS.items() if read.opens is a_writer]
READERS = [verb for verb in READS if verb not in WRITERS]


def in_answer(answer: Any) -> Iterator[Exception]:  # noqa: ANN401  # of any verb
    """The errors in its parts."""
    for part in answer.values():
        error = part.error if isinstance(part, Ended) else part
        if isinstance(error, Exception):
            yield error


def asked(read: Read, place: Place) -> Any:  # noqa: ANN401
    """One call, on what is opened for it."""
    with read.opens(place) as handle:
        return read.call(handle)


_seen: dict[Path, dict[str, Entry]] = {}


@contextmanager
def no_trace(place: Place) -> Iterator[None]:
    """Everything is as it was: names, bytes, sizes, times, inodes."""
    before = _seen.pop(place.root, None) or traces(place.root)
    yield
    # Looked at once a call: what one of them leaves is told of that one only.
    _seen[place.root] = after = traces(place.root)
    assert after == before


def locked(place: Place) -> set[str]:
    """Files on which this or another process has a lock."""
    inodes = {line.split()[-3].rpartition(":")[2] for line in Path("/proc/locks").read_text().splitlines()}
    return {name for name, entry in _seen[place.root].items() if str(entry.inode) in inodes}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return reading_calls.made(tmp_path_factory.mktemp("stopped") / "root")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same while another process holds what a running broker holds."""
    place = reading_calls.made(tmp_path_factory.mktemp("busy") / "root")
    with running(HOLD, *(folder / ".lock" for folder in place.dirs)):
        yield place


@pytest.fixture(scope="module")
def sound(stopped: Place) -> Callable[[str], Any]:
    """What each verb says where nothing is damaged."""
    return functools.cache(lambda verb: asked(READS[verb], stopped))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Place, Bad]]:
    @functools.cache
    def of(damage: str) -> tuple[Place, Bad]:
        place = reading_calls.made(tmp_path_factory.mktemp("damaged") / "root")
        return place, DAMAGES[damage](place.root)

    return of


@pytest.mark.parametrize("of", [pytest.param(each, id=each.calls[0]) for each in ROWS])
def test_every_row_and_verb_is_tried(of: verbs_page.Row) -> None:
    assert of.cells["changes files"].startswith("no")
    for verb in of.verbs:
        assert READS.get(verb), f"nothing here calls {verb}: say how"


def test_no_call_is_of_a_verb_that_is_gone() -> None:
    assert set(READS) == {verb for each in ROWS for verb in each.verbs}


@pytest.mark.parametrize("verb", READERS)
def test_a_stopped_brokers_directory_shows_no_trace(verb: str, stopped: Place, sound: Callable[[str], Any]) -> None:
    with no_trace(stopped):
        answer = asked(READS[verb], stopped)
    assert not list(in_answer(answer))
    assert plain(answer, stopped.root) == plain(sound(verb), stopped.root)


@pytest.mark.parametrize("verb", READERS)
def test_beside_a_running_broker_the_answer_is_the_same(verb: str, stopped: Place, busy: Place, sound: Callable[[str], Any]) -> None:
    with no_trace(busy):
        answer = asked(READS[verb], busy)
    assert plain(answer, busy.root) == plain(sound(verb), stopped.root)


def twice(verb: str, place: Place) -> None:
    """On the same handle."""
    with READS[verb].opens(place) as handle:
        with no_trace(place):
            first = READS[verb].call(handle)
            second = READS[verb].call(handle)
        assert verb in WRITERS or not locked(place)
    assert plain(second, place.root) == plain(first, place.root), verb


@pytest.mark.parametrize("verb", READERS)
def test_the_second_call_says_the_same_and_no_lock_is_held(verb: str, stopped: Place) -> None:
    twice(verb, stopped)


TRIES = [(verb, damage) for verb in READERS for damage in dict.fromkeys(["a record", *READS[verb].hits])]


@pytest.mark.parametrize(("verb", "damage"), TRIES)
def test_damage_is_named_and_what_it_does_not_touch_is_answered(
    verb: str, damage: str, sound: Callable[[str], Any], stopped: Place, damaged: Callable[[str], tuple[Place, Bad]]
) -> None:
    place, bad = damaged(damage)
    with no_trace(place):
        answer = asked(READS[verb], place)
    expected = sound(verb)
    of_damage = READS[verb].hits.get(damage)
    hits = {} if of_damage is None else of_damage(bad)
    assert set(hits) <= set(expected) == set(answer)
    for part, found in answer.items():
        if part in hits:
            hits[part](bad, found, expected[part])
        else:
            assert plain(found, place.root) == plain(expected[part], stopped.root), part


def all_answers(folder: str, what: str) -> None:
    """Every call on a disk that is full, or that is mounted to be read only; prints what each says."""
    logging.disable(logging.WARNING)
    said: dict[str, str] = {}
    with small_disk(Path(folder) / "disk") as disk:
        place = reading_calls.made(disk.path / "root")
        before = traces(place.root)
        if what == "full":
            disk.leave(0, names=0)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        for verb in READERS:
            said[verb] = repr(plain(asked(READS[verb], place), place.root))
        assert traces(place.root) == before
    print(json.dumps(said))


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return {
        what: json.loads(run_there("test_verbs_reading", "all_answers", tmp_path_factory.mktemp(what), what).splitlines()[-1])
        for what in ("full", "readonly")
    }


@pytest.mark.slow
@pytest.mark.parametrize("what", ["full", "readonly"])
@pytest.mark.parametrize("verb", READERS)
def test_on_a_full_disk_and_a_read_only_one_the_answer_is_the_same(
    what: str, verb: str, cramped: dict[str, dict[str, str]], stopped: Place, sound: Callable[[str], Any]
) -> None:
    assert cramped[what][verb] == repr(plain(sound(verb), stopped.root))


def test_what_only_a_writer_knows_is_not_told_beside_a_broker(busy: Place) -> None:
    for verb in WRITERS:
        with no_trace(busy), pytest.raises(LogLockedError):
            asked(READS[verb], busy)


def test_what_only_a_writer_knows_is_the_same_twice_and_where_a_closed_segment_is_damaged(tmp_path: Path) -> None:
    """A clean end says that closed segments are sound."""
    place, other = (reading_calls.made(tmp_path / name) for name in ("sound", "damaged"))
    DAMAGES["a record"](other.root)
    for verb in WRITERS:
        _seen.clear()
        twice(verb, place)
        assert plain(asked(READS[verb], other), other.root) == plain(asked(READS[verb], place), place.root), verb


def test_a_name_that_is_no_segments_is_an_error_and_the_log_answers_again_without_it(tmp_path: Path) -> None:
    place = reading_calls.made(tmp_path / "root")
    with Log.open(place.log) as log:
        other = place.log / "new.log"
        other.touch()
        with no_trace(place), pytest.raises(LogDirError, match=r"g-plain-0/new\.log"):
            log.refresh()
        other.unlink()
        log.refresh()
        found = log.get(3)
        assert found is not None
        assert (row(found), log.log_end_offset) == (PLAIN.rows[3], PLAIN.end)


def test_events_are_returned_once(damaged: Callable[[str], tuple[Place, Bad]]) -> None:
    place, bad = damaged("a record")
    with a_server(place) as served:
        reading_calls.asked(served.server.bootstrap_servers)
        assert [event for event in served.server.events() if bad.place in event.text]
        assert served.server.events() == []


def test_a_second_server_at_the_same_address_is_refused(stopped: Place) -> None:
    with a_server(stopped) as served, no_trace(stopped):
        done = stopped.run("serve", "--listen", served.server.bootstrap_servers, *stopped.dirs)
        assert (done.code, done.out) == (2, "")
        assert served.server.bootstrap_servers in done.err


def test_a_broker_does_not_start_beside_what_only_a_writer_knows(tmp_path: Path) -> None:
    """As a broker wrote it, from its checkpoint; by Kafka's rule, an epoch ends where the next one begins."""
    place = reading_calls.made(tmp_path / "root")
    with a_writer(place) as log:
        assert (log.recovery_point, log.durable_end_offset, dict(log.config.to_dict())) == (PLAIN.end, PLAIN.end, {})
        # `leader-epoch-checkpoint` has 0 from 0 on, 2 from 110 on, 4 from 155 on.
        assert [log.end_offset_for_epoch(epoch) for epoch in range(6)] == [(0, 110), (0, 110), (2, 155), (2, 155), (4, 200), None]
        broker = subprocess.run(
            [sys.executable, "-c", HOLD, str(place.dirs[0] / ".lock")], capture_output=True, text=True, check=False
        )
    assert "BlockingIOError" in broker.stderr
