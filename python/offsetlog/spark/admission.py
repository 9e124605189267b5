"""The reader of a stream for PySpark 4.2 and later, which say where a micro-batch starts and what bounds it."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from offsetlog.errors import ConfigError
from offsetlog.spark.first_line import text_first
from offsetlog.spark.options import LONG_MAX
from offsetlog.spark.stream import StreamReader
from offsetlog.spark.stream_offsets import Known, OffsetJson, Offsets, from_json, to_json

__all__ = ["AdmissionStreamReader"]


class AdmissionStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """The same with admission control, and with an end for ``Trigger.AvailableNow``."""

    _all: Offsets | None = None
    _refused: ConfigError | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # PySpark's name
        """Return the limit that the options ask for. Called on the driver, once for each query.

        PySpark has no limit of both a least and a most number: the reader knows its own, and hears from Spark whether they hold.
        """
        settings = self._settings
        if settings.max_offsets is None and settings.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(settings.max_offsets or LONG_MAX)

    @text_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # PySpark's name
        """Fix where ``Trigger.AvailableNow`` ends. Called on the driver before its first micro-batch."""
        # Where this query is, or whether it is new, Spark does not say yet.
        self._all = self._following().latest({})

    @text_first
    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # type: ignore[override]  # noqa: N802
        """Return where the micro-batch that begins at `start` ends. Called on the driver for each trigger.

        Parameters
        ----------
        start
            The end of the last micro-batch, or the initial offset.
        limit
            ``ReadAllAvailable`` for ``Trigger.Once``: then no limit holds. Else that of :meth:`getDefaultReadLimit`.

        Raises
        ------
        ConfigError
            A topic is not there.
        """
        if self._refused is not None and not self._initial:
            raise self._refused
        bounded = not isinstance(limit, ReadAllAvailable)
        # What is left at the end of AvailableNow may be less than the least: held back, it would never be read.
        begin = from_json(start)
        before = Known.of(start)
        end = self._limited(begin, before, least=bounded and self._all is None, most=bounded)
        found = self._json(end, start)
        # Ids and epochs alone are no news where an older version wrote none.
        now = Known.of(found)
        is_same = (
            end == begin
            # The first micro-batch runs, whether it reads something or not.
            and not now.begins
            and all(before.ids.get(topic, new) == new for topic, new in now.ids.items())
            and all(before.epochs.get(partition, new) == new for partition, new in now.epochs.items())
        )
        return start if is_same else found

    @text_first
    def initialOffset(self) -> OffsetJson:  # noqa: N802  # PySpark's name
        """Return where a new query starts. Called on the driver, and again after a crash in the first micro-batch.

        Which of the two it is Spark does not say. Options that do not fit what is there now stop a new query only, so they are refused
        in :meth:`latestOffset`, which comes next for a new one.
        """
        try:
            return super().initialOffset()
        except ConfigError as error:
            self._refused, self._initial = error, {}
            return to_json({})

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802  # PySpark's name
        """Return what was there at the last look, for the progress of the query. Called on the driver for each trigger."""
        return to_json(self._latest) if self._latest else None

    def _own_warnings(self) -> list[str]:
        return []

    def _start(self) -> Offsets:
        initial = super()._start()
        if self._all is not None:
            # Records that came after its end was fixed do not belong to this run.
            initial = self._initial = {partition: offset for partition, offset in initial.items() if partition in self._all}
        return initial

    def _there(self, start: Offsets, known: Known) -> Offsets:
        fixed = self._all
        if fixed is None:
            return super()._there(start, known)
        begin = {**start, **self._following().again(fixed.keys() - start.keys(), known)}
        if all(begin.get(partition, 0) <= end for partition, end in fixed.items()):
            return fixed
        # Less is to be read than before (see Follower.latest), or the log itself is shorter, which has to be seen.
        now = super()._there(start, known)
        return {
            partition: end if begin.get(partition, 0) <= end else min(begin[partition], now.get(partition, end))
            for partition, end in fixed.items()
        }
