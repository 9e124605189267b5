"""What `offsetlog.spark.write` and its kin refuse before any frame is looked at, and what `write` returns, without a Spark session."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from test_flags import NO_FLAGS, flags_of
from test_publish_failures import Died, copied, failing, found

import offsetlog.spark
from offsetlog import LogDir, commits, forget_commit
from offsetlog._commit import publishing
from offsetlog._commit.staging import STAGING
from offsetlog.errors import ConfigError
from offsetlog.spark import write
from offsetlog.spark.sink import OffsetLogWriter, prepare
from offsetlog.spark.sink_options import sink_settings_from

NO_FRAME: Any = object()


class Frame:
    """In the place of Spark's: writes its values as Spark does, by one task."""

    columns = ("value",)
    sparkSession = None  # noqa: N815  # Spark's name

    def __init__(self, values: list[str], ended: Callable[[], object] = lambda: None) -> None:
        self.values = values
        self.given: dict[str, str] = {}
        self._ended = ended

    @property
    def write(self) -> Self:
        return self

    def format(self, name: str) -> Self:
        assert name == "offsetlog"
        return self

    def mode(self, name: str) -> Self:
        assert name == "append"
        return self

    def options(self, **options: object) -> Self:
        self.given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        return self

    def save(self, path: str) -> None:
        settings = sink_settings_from({"path": path, **self.given}, is_stream=False)
        prepare(settings)
        writer = OffsetLogWriter(settings, self.columns)
        message = copied(copied(writer).write(iter([pa.RecordBatch.from_pydict({"value": pa.array(self.values)})])))
        try:
            copied(writer).commit([message])
        except Exception:
            copied(writer).abort([message])
            raise
        self._ended()


def written(frame: Frame, place: Path, **arguments: Any) -> offsetlog.spark.WriteSummary:  # noqa: ANN401  # those of `write`
    plain: Any = frame
    return write(plain, place, **arguments)


FLAGS = [
    (name, flag)
    for name in offsetlog.spark.__all__
    if callable(value := getattr(offsetlog.spark, name)) and not isinstance(value, type)
    for flag, _ in flags_of(value)
]


def test_every_flag_is_one_of_write() -> None:
    """Options of the data source are texts, as Spark's are, of which «true» and «false» are let pass."""
    assert FLAGS == [("write", "preserve_offsets"), ("write", "single_replica")]


@pytest.mark.parametrize(("name", "flag"), FLAGS)
@pytest.mark.parametrize("value", NO_FLAGS, ids=repr)
def test_a_flag_is_a_bool(tmp_path: Path, name: str, flag: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{flag}: must be True or False, found ") as caught:
        getattr(offsetlog.spark, name)(NO_FRAME, tmp_path / "logs", **{flag: value})
    assert caught.value.key == flag
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("argument", ["transaction_id", "topic"])
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_name_is_not_blank(tmp_path: Path, argument: str, blank: str) -> None:
    """A variable of the environment that is not set: each run would have a name of its own, and publish all again."""
    arguments: Any = {argument: blank}
    with pytest.raises(ConfigError, match=f"{argument}.* must not be blank"):
        write(NO_FRAME, tmp_path / "logs", **arguments)
    for wrong in (0, b"x", ["x"]):
        arguments = {argument: wrong}
        with pytest.raises(TypeError, match=f"{argument} must be a str or None, found {type(wrong).__name__}"):
            write(NO_FRAME, tmp_path / "logs", **arguments)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("name", ["nightly", " nightly", "nightly\n", "\tnightly "])
def test_blanks_around_a_name_do_not_count(tmp_path: Path, name: str) -> None:
    """Neither to the sink nor to who looks for what it published."""
    place = tmp_path / "logs"
    first = written(Frame(["a", "b"]), place, topic=" t ", transaction_id=name)
    assert (first.is_new, [each[:5] for each in first.partitions]) == (True, [("t", 0, 0, 2, 2)])
    for spelt in ("nightly", name):
        again = written(Frame(["a", "b"]), place, topic="t\n", transaction_id=spelt)
        assert (again.is_new, again.partitions) == (False, first.partitions)
    assert found(place) == ["a", "b"]
    assert [note.name for note in commits(place)] == ["job nightly"]
    with LogDir.open(place) as log_dir:
        assert log_dir.topics() == {"t": [0]}


def test_a_write_without_a_name_is_another_one_each_time(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    for _ in range(2):
        assert written(Frame(["a"]), place, topic="t").is_new
    assert found(place) == ["a", "a"]
    assert not commits(place)


def test_what_a_run_that_died_left_is_new_when_it_is_finished(tmp_path: Path) -> None:
    """Wherever it died: the summary of the call that added the records says so, and that of the next one does not."""
    died = 0
    for at in range(1, 30):
        place = tmp_path / f"logs-{at}"
        with failing(at, Died()), suppress(Died):
            written(Frame(["a", "b"]), place, topic="t", transaction_id="load")
            break
        died += 1
        is_published = [note.is_published for note in commits(place)] == [True]
        for number in range(2):
            done = written(Frame(["a", "b"]), place, topic="t", transaction_id="load")
            assert (done.is_new, done.records) == (number == 0 and not is_published, 2), at
        assert found(place) == ["a", "b"]
    assert died > 5


def test_what_cannot_be_finished_and_is_written_anew_is_new(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "_move_all", died)
        with pytest.raises(Died):
            written(Frame(["a", "b"]), place, topic="t", transaction_id="load")
    for staged in place.glob(f"*/{STAGING}"):
        shutil.rmtree(staged)
    done = written(Frame(["a", "b"]), place, topic="t", transaction_id="load")
    assert (done.is_new, done.records, found(place)) == (True, 2, ["a", "b"])


def test_what_is_forgotten_and_written_again_is_new(tmp_path: Path) -> None:
    """Also where somebody forgets it while the job runs."""
    place = tmp_path / "logs"
    assert written(Frame(["a"]), place, topic="t", transaction_id="load").is_new

    class Forgetting(Frame):
        def save(self, path: str) -> None:
            forget_commit(place, "load")
            super().save(path)

    assert written(Forgetting(["a"]), place, topic="t", transaction_id="load").is_new
    assert found(place) == ["a", "a"]


class Ordered(Frame):
    """As if its rows were laid out; another driver does something while that takes its time."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(["a", "b"])
        self._meanwhile = meanwhile

    def laid_out(self, *_: object) -> Self:
        return self

    withColumn = repartition = sortWithinPartitions = laid_out  # noqa: N815  # Spark's names

    def save(self, path: str) -> None:
        self._meanwhile()
        super().save(path)


@pytest.fixture
def keyless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are made in the JVM."""
    monkeypatch.setattr(importlib.import_module("offsetlog.spark.write"), "_partition", lambda *_: None)


def make(place: Path, **topics: int) -> None:
    with LogDir.open(place, "a") as log_dir:
        for name, partitions in topics.items():
            log_dir.create_topic(name, partitions)


@pytest.mark.usefixtures("keyless")
@pytest.mark.parametrize("partitions", [None, 2, {"t": 2}, {"u": 7}, {"*": 2}])
def test_a_topic_that_is_made_while_rows_are_laid_out_is_refused_with_another_number(
    tmp_path: Path, partitions: int | dict[str, int] | None
) -> None:
    """Rows have got their partitions by then: keys would lie where no producer looks for them."""
    place = tmp_path / "logs"
    counted = 2 if partitions in (2, {"t": 2}, {"*": 2}) else 1
    frame = Ordered(lambda: make(place, t=12))
    with pytest.raises(ConfigError, match="partitions: topic 't' is there and has 12, which stay") as caught:
        written(frame, place, topic="t", partitions=partitions, order_by=["value"])
    assert caught.value.value == str(counted)
    assert json.loads(frame.given["partitions"]) == {"t": counted}
    assert found(place) == []
    assert written(Ordered(), place, topic="t", order_by=["value"]).records == 2


@pytest.mark.usefixtures("keyless")
def test_a_topic_that_another_driver_is_making_is_not_counted_by_what_is_there(tmp_path: Path) -> None:
    """Its first partition is made last."""
    place = tmp_path / "logs"
    make(place, t=3)
    (place / "t-0").rename(tmp_path / "aside")
    with pytest.raises(ConfigError, match="topic 't' is there and has 3, which stay"):
        written(Ordered(lambda: (tmp_path / "aside").rename(place / "t-0")), place, topic="t", order_by=["value"])
    assert found(place) == []


@pytest.mark.usefixtures("keyless")
@pytest.mark.parametrize(
    ("partitions", "counted"),
    [
        (None, {"*": 1, "t": 3, "u": 1}),
        (2, {"*": 2, "t": 3, "u": 1}),
        ({"new": 5}, {"*": 1, "t": 3, "u": 1, "new": 5}),
        ({"new": 5, "*": 4}, {"*": 4, "new": 5}),
    ],
)
def test_topics_of_the_column_are_counted_once(
    tmp_path: Path, partitions: int | dict[str, int] | None, counted: dict[str, int]
) -> None:
    """A number that the caller gives for a topic that is there is compared with it all the same; with «*» it is given for each."""
    place = tmp_path / "logs"
    make(place, t=3, u=1)
    frame = Ordered(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        written(frame, place, partitions=partitions, order_by=["value"])
    assert json.loads(frame.given["partitions"]) == counted
    settings = sink_settings_from({"path": str(place), **frame.given}, is_stream=False)
    of_t = counted.get("t", counted["*"])
    assert [settings.count_of(name) for name in ("t", "new", "other")] == [of_t, counted.get("new", counted["*"]), counted["*"]]
    settings.check_count("other", counted["*"])
    for name, other in (("t", of_t + 1), ("other", counted["*"] + 1), ("new", 9)):
        with pytest.raises(ConfigError, match=f"topic '{name}' is there and has {other}, which stay"):
            settings.check_count(name, other)
    with pytest.raises(ConfigError, match="topic 't' is there and has 3, which stay"):
        written(Ordered(), place, topic="t", partitions=4, order_by=["value"])


def interrupted(frame: Frame, place: Path) -> str:
    """What a note of the exception says."""
    with pytest.raises(KeyboardInterrupt) as caught:
        written(frame, place, topic="t")
    (told,) = caught.value.__notes__
    return told


@pytest.mark.parametrize("name", [None, "load"])
def test_an_interrupt_says_how_to_go_on_wherever_it_comes(tmp_path: Path, name: str | None) -> None:
    """Ctrl-C, which is no error: what it says leads to each record once."""
    again = "the write was interrupted, and Spark may still be at work on it: call write again with , which publishes each record once"
    said: set[str] = set()
    for at in range(1, 30):
        place = tmp_path / f"logs-{at}"
        frame = Frame(["a", "b"])
        with failing(at, KeyboardInterrupt()) as seen:
            try:
                written(frame, place, topic="t", transaction_id=name)
            except KeyboardInterrupt as error:
                (told,) = error.__notes__
            else:
                assert seen() < at
                break
        named = re.search("transaction_id='([^']+)'", told)
        assert name is None or told == "all of the write is published" or (named is not None and named[1] == name)
        if told != "all of the write is published":
            written(Frame(["a", "b"]), place, topic="t", **({"transaction_id": named[1]} if named else {}))
        said.add(re.sub("transaction_id='[^']+'", "", told))
        assert found(place) == ["a", "b"], told
        noted = named[1] if named is not None else name
        assert {note.name for note in commits(place)} == (set() if noted is None else {f"job {noted}"})
    assert {"all of the write is published", "the write failed: nothing of it is published" if name is None else again} <= said


def test_what_spark_publishes_behind_an_interrupt_is_known_by_the_name_that_was_told(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    later: list[Callable[[], object]] = []

    class Slow(Frame):
        def save(self, path: str) -> None:
            later.append(lambda: Frame.save(self, path))
            raise KeyboardInterrupt

    told = interrupted(Slow(["a", "b"]), place)
    assert "nothing of it is published yet" in told
    (name,) = re.findall("transaction_id='([^']+)'", told)
    later[0]()
    assert found(place) == ["a", "b"]
    assert not written(Frame(["a", "b"]), place, topic="t", transaction_id=name).is_new
    assert found(place) == ["a", "b"]


def test_an_interrupt_of_a_name_that_has_published_does_not_say_that_this_write_is(tmp_path: Path) -> None:
    """It may have other data, and is refused then."""
    place = tmp_path / "logs"
    written(Frame(["a"]), place, topic="t", transaction_id="load")

    class Interrupted(Frame):
        def save(self, path: str) -> None:
            raise KeyboardInterrupt(path)

    with pytest.raises(KeyboardInterrupt) as caught:
        written(Interrupted(["b"]), place, topic="t", transaction_id="load")
    assert "call write again with transaction_id='load'" in caught.value.__notes__[0]


def test_an_interrupt_behind_the_commit_says_that_all_is_published(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    place = tmp_path / "logs"
    assert interrupted(Frame(["a", "b"], interrupt), place) == "all of the write is published"
    assert found(place) == ["a", "b"]
    assert not commits(place)


def died(*_: object) -> None:
    raise Died
