"""What calls over many partitions do where some cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from offsetlog.errors import ConfigError, ForkedLogError, LogClosedError, OffsetLogError, UnreadPartitionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offsetlog._values import TopicPartition

__all__ = ["PartitionGone", "all_or_raise", "ask_each"]

T = TypeVar("T")

NOT_OF_ONE_PARTITION = (ConfigError, ForkedLogError, LogClosedError)
"""These say that the question, or the log dir, is wrong."""


class PartitionGone(Exception):  # noqa: N818  # no failure: of all partitions, it is no longer one
    """A partition was deleted since it was listed."""


def all_or_raise(result: T, failed: Mapping[TopicPartition, Exception], *, alone: bool = True) -> T:
    """Return `result` where nothing failed; else an error that carries it. With `alone`, a single one without result is raised."""
    if failed:
        first, error = next(iter(failed.items()))
        if alone and not result and len(failed) == 1:
            raise error
        more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
        many = f"{len(failed)} partition{'s' * (len(failed) != 1)}"
        message = f"{many} could not be read: {first.topic}-{first.partition}: {error}{more}"
        raise UnreadPartitionsError(message, partial=result, failed=dict(failed), path=getattr(error, "path", None)) from error
    return result


def ask_each(partitions: Iterable[TopicPartition], ask: Callable[[TopicPartition], T]) -> dict[TopicPartition, T]:
    """Ask each partition, also those behind one that cannot answer, but what is gone. A single one raises its error as it is."""
    asked = list(dict.fromkeys(partitions))
    if len(asked) == 1:
        try:
            return {asked[0]: ask(asked[0])}
        except PartitionGone:
            return {}
    answers: dict[TopicPartition, T] = {}
    failed: dict[TopicPartition, Exception] = {}
    for partition in asked:
        try:
            answers[partition] = ask(partition)
        except PartitionGone:
            continue
        except (OffsetLogError, OSError) as error:
            if isinstance(error, NOT_OF_ONE_PARTITION):
                raise
            failed[partition] = error
    return all_or_raise(answers, failed)
