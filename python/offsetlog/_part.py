"""A partition of a ``LogDir.scan``, which opens it only when the scan reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsetlog._values import TopicPartition

if TYPE_CHECKING:
    from offsetlog import _offsetlog
    from offsetlog._log_dir import LogDir


class Part:
    """A partition of a log dir in a scan over many: opened when it is its turn."""

    __slots__ = ("_log_dir", "_required", "partition", "topic")

    def __init__(self, log_dir: LogDir, key: TopicPartition, *, required: bool) -> None:
        self._log_dir = log_dir
        self._required = required
        self.topic, self.partition = key

    def _engine(self) -> _offsetlog.Later:
        return self._log_dir._later((self.topic, self.partition), required=self._required)  # noqa: SLF001  # same package

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # a log's
        if name.startswith("__"):
            # `copy` and others look for them; they open nothing.
            raise AttributeError(name)
        return getattr(self._log_dir.log(self.topic, self.partition), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_part_of, (self._log_dir, (self.topic, self.partition), self._required))


def _part_of(log_dir: LogDir, key: tuple[str, int], required: bool) -> Part:
    return Part(log_dir, TopicPartition(*key), required=required)
