"""How far a stream is behind, out of what Spark says of its progress."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from offsetlog.spark.stream_offsets import Behind, Offsets, from_json

__all__ = ["offsets_behind"]


def offsets_behind(progress: Any, source: int = 0) -> Behind | None:  # noqa: ANN401  # PySpark's class or the dict of its JSON
    """Return how many offsets a stream was behind the latest at the end of a micro-batch.

    Parameters
    ----------
    progress
        ``query.lastProgress``, one of ``query.recentProgress``, or the ``progress`` of a listener's event.
    source
        Which source of the query, counted from 0.

    Returns
    -------
    Behind | None
        ``min_offsets_behind_latest``, ``max_offsets_behind_latest`` and ``avg_offsets_behind_latest`` over the partitions; ``None``
        where the progress holds no offsets yet.

    Examples
    --------
    >>> offsets_behind({"sources": [{"endOffset": {"orders": {"0": 7}}, "latestOffset": {"orders": {"0": 10}}}]})
    Behind(min_offsets_behind_latest=3, max_offsets_behind_latest=3, avg_offsets_behind_latest=3.0)
    """
    if progress is None:
        return None
    found: Mapping[str, Any] = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    end, latest = (_offsets(found["sources"][source].get(name)) for name in ("endOffset", "latestOffset"))
    return None if end is None or latest is None else Behind.of(end, latest)


def _offsets(found: Any) -> Offsets | None:  # noqa: ANN401  # JSON, as text or not
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except json.JSONDecodeError:
            # PySpark 4.0 makes text of the parsed offsets with `str`.
            found = ast.literal_eval(found)
    return from_json(found) if found else None
