"""The options that are limits of ``Log.open``, and what an error that one of them caused says to somebody who uses Spark."""

from __future__ import annotations

from offsetlog.errors import LimitExceededError

__all__ = ["BOUNDS", "name_the_option"]

BOUNDS = {
    "maxBatchBytes": "max_batch_bytes",
    "maxDecompressedBytes": "max_decompressed_bytes",
    "maxHeaders": "max_headers",
    "maxSegments": "max_segments",
    "maxStateFileBytes": "max_state_file_bytes",
}
"""Options that are limits of ``Log.open``."""


def name_the_option(error: Exception) -> None:
    """Have a limit that was reached called by the option that sets it; the sink has none."""
    options = {limit: option for option, limit in BOUNDS.items()}
    if not isinstance(error, LimitExceededError) or error.name not in options:
        return
    name, option = error.name, options[error.name]
    words = {
        f"limit {name} reached": f"limit {option} reached",
        f"open with a higher {name}": f"give a higher {option}",
        f"open this log, and then its readers, with a higher {name}": (
            f"Log.append of a log that is opened with a higher {name} takes it, and its readers then need a higher {option}"
        ),
    }
    text = str(error)
    for before, after in words.items():
        text = text.replace(before, after)
    error.args = (text,)
