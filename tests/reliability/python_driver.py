"""A log that is driven from Python and says what the driver says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from promises import Batch, content

from offsetlog import Log, Record

SMALL = {"internal.segment.bytes": 6000, "index.interval.bytes": 500, "file.delete.delay.ms": 0}


class PythonDriver:
    """Appends what the checker knows, and tells each promise when it is made.

    Parameters
    ----------
    directory
        The partition.
    run
        The number of this opening.
    say
        Takes the lines: the output of a process, or ``History.feed``.
    config
        Settings.
    """

    def __init__(self, directory: Path, run: int, say: Callable[[str], None], config: dict[str, int | str] | None = None) -> None:
        self.run, self.say, self.generation = run, say, 0
        self.log = Log.open(str(directory), "a", SMALL if config is None else config)
        say(f"opened {self.log.log_end_offset}")

    def append(self, *, flush: bool = False) -> None:
        """Append the next batch."""
        batch = Batch.at(self.run, self.generation, self.log.log_end_offset)
        self.say(f"appending {self.generation} {batch.base}")
        records = [(offset, *content(self.run, self.generation, offset)) for offset in range(batch.base, batch.last + 1)]
        made = (Record(self.log.topic, self.log.partition, offset, timestamp=time, value=value) for offset, time, value in records)
        done = self.log.append_records(made, flush=flush)
        self.say(f"acked {self.generation} {done.base_offset} {done.last_offset}")
        if flush:
            self.say(f"flushed {done.last_offset + 1}")

    def flush(self) -> None:
        """Make everything durable."""
        end = self.log.log_end_offset
        self.log.flush()
        self.say(f"flushed {end}")

    def roll(self) -> None:
        """Begin a new segment."""
        self.say(f"rolled {self.log.roll()}")

    def truncate(self, back: int) -> None:
        """Take the last records away."""
        offset = max(0, self.log.log_end_offset - back)
        self.say(f"truncating {offset}")
        self.generation += 1
        self.log.truncate_to(offset)
        self.say(f"truncated {offset}")

    def close(self) -> None:
        """End cleanly."""
        self.say("closing")
        self.log.close()
        self.say("closed")
