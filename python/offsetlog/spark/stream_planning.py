"""From offsets to ranges, micro-batch after micro-batch: where a stream starts, what is there now, what went away in between.

Runs on the driver, in one process for as long as the query runs. Spark's checkpoint records which offsets were read; the state
kept here in memory only saves looking twice.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Iterator
from typing import NoReturn

from offsetlog import Log, TopicPartition
from offsetlog.errors import LogDirError, OffsetOutOfRangeError
from offsetlog.spark.leader_epochs import epoch_before, newest_epoch, replaced_from
from offsetlog.spark.options import EARLIEST, LATEST, Settings, partition_names
from offsetlog.spark.planned import topic_id_of
from offsetlog.spark.planning import Listing, Range, check_names, check_paths, limit_offset, readable_range
from offsetlog.spark.stream_offsets import Epochs, Known, Offsets, TopicIds

__all__ = ["Follower"]

logger = logging.getLogger("offsetlog")

_LISTINGS = 3
"""How often a listing that changes under us is made before its error is passed on, as Spark's Kafka source asks its brokers."""


class Follower:
    """Looks at log dirs that others append to. The answers are those of the moment of the question."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._warned: set[str] = set()
        self._looked_at: Listing | None = None
        self._compared: dict[str, tuple[int, int, int]] = {}
        self.ids: TopicIds = {}
        """Ids of the topics that the last question was about, where their directories have one."""

    def initial(self) -> tuple[Offsets, frozenset[TopicPartition]]:
        """Return where a new query starts, and the partitions for which that is the latest of now.

        Raises
        ------
        ConfigError
            Offsets or times do not name exactly the partitions that are read, or no record is at or after a starting time.
        """
        check_paths(self._settings)
        listing = self._listing()
        chosen = listing.chosen()
        check_names(self._settings.start, chosen)
        self._looked_at, self.ids = listing, _ids(listing, chosen)
        offsets: Offsets = {}
        moving = set()
        for partition in chosen:
            offsets[partition], moves = self._start(partition, listing.log(partition))
            if moves:
                moving.add(partition)
        return offsets, frozenset(moving)

    def initial_again(self, end: Offsets) -> Offsets:
        """Return where a query started whose first micro-batch ends at `end`, for that to be read again.

        For checkpoints of older versions, which did not write it. So it is worked out once more: what does not move is what it was,
        and what does (the latest of then) is the end of the first micro-batch, which reads nothing of such a partition. What the log
        may have lost since is a warning, as nobody can tell whether it was there.
        """
        listing = self._listing()
        chosen = listing.chosen()
        # Ids of now may not be those of then, which are with the end.
        self._looked_at, self.ids = listing, {}
        offsets: Offsets = {}
        for partition in chosen:
            if partition not in end:
                continue
            log = listing.log(partition)
            start, moves = self._start(partition, log)
            offsets[partition] = end[partition] if moves else min(start, end[partition])
            self._warn_of_moved_start(partition, log, offsets[partition])
        return offsets

    def _warn_of_moved_start(self, partition: TopicPartition, log: Log, start: int) -> None:
        """Warn if a start that was worked out once more may lie behind what was to be read and is gone."""
        first = log.log_start_offset
        if first == 0 or not self._moves_with_log_start(partition):
            return
        # An earlier record of a time before the one asked for: as times mostly rise, what was deleted was older still.
        if first < start and next(iter(log.scan(first, start, on_corrupt="skip")), None) is not None:
            return
        name = f"{partition.topic}-{partition.partition}"
        self._warn(
            "%s: the first micro-batch is read again, from offset %d: the log starts at %d now, and its checkpoint, of an older "
            "version, does not say where it began; records may be lost",
            name,
            start,
            first,
        )

    def latest(self, start: Offsets, known: Known | None = None) -> Offsets:
        """Return where reading ends for now in every partition that is there, those that `start` does not know included.

        `known` tells of those that were gone at `start`, and are read on from where they were if they are there again.

        A partition of which less can be read than before, because replication or a transaction has to be waited for, ends where it
        starts; only one whose log itself is shorter ends before.
        """
        for attempt in range(_LISTINGS):
            try:
                listing = self._listing()
                chosen = listing.chosen()
                ids = _ids(listing, chosen)
                ends = {}
                for partition in chosen:
                    log = listing.log(partition)
                    begin = start.get(partition) if known is None or partition in start else _again(partition, log, known)
                    ends[partition] = self._end(log, begin or 0)
            except (FileNotFoundError, LogDirError):
                # A topic was deleted, or made anew, between the listing and the look at it.
                if attempt == _LISTINGS - 1:
                    raise
            else:
                self._looked_at, self.ids = listing, ids
                return ends
        raise AssertionError

    def again(self, partitions: Iterable[TopicPartition], known: Known) -> Offsets:
        """Return where those of these partitions are read on that were gone, and that the last question found again."""
        found = {}
        for partition in partitions:
            log = self._looked_at_log(partition) if partition in known.gone else None
            offset = None if log is None else _again(partition, log, known)
            if offset is not None:
                found[partition] = offset
        return found

    def epochs(self, offsets: Offsets, start: Offsets, known: Known) -> Epochs:
        """Return the leader epoch of the last offset before each, in the logs that the last question was about.

        A partition that stays at `start` keeps the epoch that is `known` of it. If another leader has written below since, it gets
        that one's: this is news, so a micro-batch is planned, which reports it. If the log has none to say, because it is gone, ends
        below or is damaged, the known one stays: it tells when the log is there again, or has grown.
        """
        found: Epochs = {}
        for partition, offset in offsets.items():
            epoch = known.epochs.get(partition) if self._is_same_topic(partition.topic, known) else None
            log = self._looked_at_log(partition)
            if log is not None:
                epoch = self._epoch(log, offset, start.get(partition), epoch)
            elif start.get(partition) != offset:
                epoch = None
            if epoch is not None:
                found[partition] = epoch
        return found

    def _epoch(self, log: Log, offset: int, start: int | None, known: int | None) -> int | None:
        """Return the leader epoch to write for an offset, where `known` was written for `start`."""
        if start is None or known is None:
            return epoch_before(log, offset)
        is_replaced = self._is_replaced(log, start, known)
        if start == offset and not is_replaced:
            return known
        epoch = epoch_before(log, offset)
        if start == offset:
            return known if epoch is None else epoch
        if epoch is None or is_replaced or offset < start:
            return epoch
        # Where epochs go back, the batches before a lower one would look like another leader's, once compaction removed its own.
        return max(known, epoch)

    def _is_replaced(self, log: Log, offset: int, epoch: int) -> bool:
        """Whether another leader has written below an offset, without looking twice for one newest epoch.

        It may be looked past if that leader is not newer than at the last look. Planning compares without this, before more is read.
        """
        newest = newest_epoch(log)
        if newest is not None and (newest <= epoch or self._compared.get(log.path) == (newest, offset, epoch)):
            return False
        is_replaced = replaced_from(log, offset, epoch) is not None
        # Of a log that ends below the offset or is damaged, the same leader may write there yet.
        if newest is not None and not is_replaced and epoch_before(log, offset) is not None:
            self._compared[log.path] = newest, offset, epoch
        return is_replaced

    def _is_same_topic(self, topic: str, known: Known) -> bool:
        """Whether the topic that the last question was about is the one that is known, as far as both have ids."""
        id_then, id_now = known.ids.get(topic), self.ids.get(topic)
        return id_then is None or id_now is None or id_then == id_now

    def _looked_at_log(self, partition: TopicPartition) -> Log | None:
        """Return a log that the last question was about; ``None`` if its directory has been deleted since."""
        try:
            return None if self._looked_at is None else _log(self._looked_at, partition)
        except FileNotFoundError:
            # Planning reports it, if something of it was to be read.
            return None

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return where partitions start, without those that are gone."""
        listing = self._listing()
        offsets = {}
        for partition in partitions:
            log = _log(listing, partition)
            if log is not None:
                offsets[partition] = log.log_start_offset
        return offsets

    def ranges(
        self, start: Offsets, end: Offsets, known_at_start: Known | None = None, known_at_end: Known | None = None
    ) -> Iterator[Range]:
        """Yield what a micro-batch reads of each partition, without the empty ones.

        Parameters
        ----------
        start, end
            Where it begins and ends; the ends are exclusive.
        known_at_start, known_at_end
            Topic ids and leader epochs of then, as far as they are known. Offsets of one topic say nothing of another of its name, and
            an offset that another leader wrote again is not the one that was read.

        Raises
        ------
        OffsetOutOfRangeError, FileNotFoundError
            Offsets or partitions are gone, another leader wrote in place of what was read, or a topic was recreated, and
            ``failOnDataLoss`` is on.
        """
        at_start, at_end = known_at_start or Known.of({}), known_at_end or Known.of({})
        listing = self._listing()
        # One that is back needs no word: the next micro-batch reads on.
        deleted = {each for each in start.keys() - end.keys() if not _is_back(listing, each, at_end)}
        if deleted:
            self._gone(
                deleted,
                "their topics were deleted, or are no longer among those that are asked for; the checkpoint keeps where they were "
                "read up to, in case that they come back",
            )
        for partition in sorted(end):
            log = _log(listing, partition)
            if log is None:
                if start.get(partition) != end[partition]:
                    self._gone([partition], "the partition directory is not there")
                continue
            first, wanted = start.get(partition), at_end.ids.get(partition.topic)
            known = at_start.ids.get(partition.topic, wanted)
            epoch = at_start.epochs.get(partition)
            if first is None and partition in at_start.gone:
                first = self._back(partition, log, at_start)
                if first is None:
                    # That the earlier one was gone has been said, or was an error.
                    known, epoch = wanted, None
            found = None if known is None else topic_id_of(log)
            if found is not None and found not in (known, wanted):
                # The end is the old topic's too: nothing here is what was planned, and the next micro-batch starts over.
                self._made_anew(partition, log, known, found, first)
                continue
            if found is not None and found != known:
                self._made_anew(partition, log, known, found, first)
                first, epoch = log.log_start_offset, None
            told = 0
            if first is not None:
                read = first
                first = self._still_held(partition, log, read, epoch, "was read")
                told = read if first < read else 0
            # Behind the end, the next micro-batch finds what the other leader wrote.
            stop = self._still_held(partition, log, end[partition], at_end.epochs.get(partition), "was to be read", told)
            begin, stop = self._checked(partition, log, first, stop)
            if begin < stop:
                yield Range(log, begin, stop)

    def _back(self, partition: TopicPartition, log: Log, known: Known) -> int | None:
        """Return from where a partition that was gone is read on, after saying so; ``None`` if it is another one, and new."""
        name, gone = f"{partition.topic}-{partition.partition}", known.gone[partition]
        first = _again(partition, log, known)
        if first is None:
            self._warn(
                "%s: the topic that is there now is another one than that which was read up to offset %d, and is new; path %s",
                name,
                gone,
                log.path,
            )
        elif known.ids.get(partition.topic) is not None and topic_id_of(log) is not None:
            logger.info("%s is there again; it is read on from offset %d", name, first)
        else:
            self._warn(
                "%s is there again; it is read on from offset %d. It has no topic id: if it was made anew, records below are left "
                "out; path %s",
                name,
                first,
                log.path,
            )
        return first

    def _still_held(self, partition: TopicPartition, log: Log, offset: int, epoch: int | None, verb: str, told: int = 0) -> int:
        """Return up to where the log holds what was there below `offset`, after saying what another leader has written there since.

        Below `told`, that has been said already.
        """
        replaced = replaced_from(log, offset, epoch)
        if replaced is None:
            return offset
        if told < offset:
            reason = f"{verb} up to {offset}, and has been truncated since to {replaced} or below and grown again"
            self._lost(partition, log, (max(replaced, told), offset), f"{reason} ({_other_leader(offset, epoch)})")
        return replaced

    def _checked(self, partition: TopicPartition, log: Log, begin: int | None, stop: int) -> tuple[int, int]:
        """Return the range of a micro-batch, after saying what of it the log does not hold."""
        first, behind_last = log.log_start_offset, log.log_end_offset
        if begin is None:
            begin = first
            logger.info("%s-%d is new; it is read from offset %d", *partition, first)
            if first > 0:
                self._lost(partition, log, (0, first), f"is new, and starts at {first} instead of 0")
        if stop < begin:
            self._lost(partition, log, (stop, begin), f"was read up to {begin}, and now ends at {stop}")
        elif begin < first and begin < stop:
            self._lost(partition, log, (begin, min(first, stop)), f"starts at {first} now")
        if begin < stop and behind_last < stop:
            self._lost(partition, log, (max(begin, behind_last), stop), f"ends at {behind_last} now")
        return max(begin, first), min(stop, behind_last)

    def _start(self, partition: TopicPartition, log: Log) -> tuple[int, bool]:
        """Return where a partition starts as the options say, and whether that is the latest of now."""
        settings = self._settings
        first, end, _ = readable_range(settings, log)
        offset = limit_offset(settings, settings.start, partition, log, (first, end))
        kind, value = settings.start.kind, settings.start.value
        if kind == "offsets":
            return offset, value[partition] == LATEST
        # A time without a record gives the end; so may one whose record is the last thing that was appended, which does no harm.
        return offset, kind != "earliest" and offset == end

    def _moves_with_log_start(self, partition: TopicPartition) -> bool:
        """Whether what the options say of a start means a later offset once earlier records are deleted."""
        limit = self._settings.start
        if limit.kind == "offsets":
            return bool(limit.value.get(partition) == EARLIEST)
        return limit.kind != "latest"

    def _end(self, log: Log, start: int) -> int:
        _, end, behind_last = readable_range(self._settings, log)
        return max(end, min(start, behind_last))

    def _listing(self) -> Listing:
        return Listing(self._settings, self._warn)

    def _gone(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        message = f"{partition_names(partitions)}: {reason}; records may be lost"
        if self._settings.fail_on_data_loss:
            raise FileNotFoundError(
                errno.ENOENT, f"{message} (failOnDataLoss = false goes on with what is there)", self._settings.paths[0]
            )
        self._warn("%s; what is there is read, as failOnDataLoss is false", message)

    def _made_anew(self, partition: TopicPartition, log: Log, known: str | None, found: str, begin: int | None) -> None:
        topic, number = partition
        message = (
            f"topic {topic!r} was made anew since the last micro-batch: {topic}-{number} has the topic id {found} now, was read up "
            f"to offset {begin or 0} with the id {known}; records may be lost"
        )
        if self._settings.fail_on_data_loss:
            advice = "a query with a new checkpoint reads the new topic; failOnDataLoss = false goes on with it from its start"
            _raise_lost(f"{message} ({advice})", log, begin or 0)
        self._warn("%s; the new topic is read from its start, as failOnDataLoss is false; path %s", message, log.path)

    def _lost(self, partition: TopicPartition, log: Log, lost: tuple[int, int], reason: str) -> None:
        message = f"{partition.topic}-{partition.partition} {reason}: offsets {lost[0]} to {lost[1] - 1} are gone"
        if self._settings.fail_on_data_loss:
            _raise_lost(f"{message} (failOnDataLoss = false goes on with what is there)", log, lost[0])
        self._warn("%s; what is there is read, as failOnDataLoss is false; path %s", message, log.path)

    def _warn(self, text: str, *arguments: object) -> None:
        """Warn once of a thing: without new records, Spark asks a hundred times a second."""
        message = text % arguments
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)


def _other_leader(offset: int, epoch: int | None) -> str:
    return f"offset {offset - 1} had leader epoch {epoch}, and later ones begin below it now"


def _raise_lost(message: str, log: Log, offset: int) -> NoReturn:
    raise OffsetOutOfRangeError(
        message, requested=offset, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset, path=log.path
    )


def _again(partition: TopicPartition, log: Log, known: Known) -> int | None:
    """Return from where a partition that was gone is read on; ``None`` if it was not gone, or is another topic's.

    Without ids, a log that ends below counts as another one. Where that is wrong, records come twice, and none is lost.
    """
    offset = known.gone.get(partition)
    if offset is None:
        return None
    then, now = known.ids.get(partition.topic), topic_id_of(log)
    is_same = log.log_end_offset >= offset if then is None or now is None else then == now
    return offset if is_same else None


def _is_back(listing: Listing, partition: TopicPartition, known: Known) -> bool:
    """Whether a partition that is known as gone is there, and read on."""
    log = _log(listing, partition) if partition in known.gone else None
    return log is not None and _again(partition, log, known) is not None


def _ids(listing: Listing, chosen: Iterable[TopicPartition]) -> TopicIds:
    """Return the ids of topics, each by the first of its partitions."""
    ids: dict[str, str | None] = {}
    for partition in chosen:
        if partition.topic not in ids:
            ids[partition.topic] = topic_id_of(listing.log(partition))
    return {topic: found for topic, found in ids.items() if found is not None}


def _log(listing: Listing, partition: TopicPartition) -> Log | None:
    """Return the log of a partition, or ``None`` where its directory is gone."""
    return listing.log(partition) if listing.holds(partition) else None
