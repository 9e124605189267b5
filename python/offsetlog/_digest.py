"""Computes a number by which records are recognised, in whatever order they come."""

from __future__ import annotations

from offsetlog import _offsetlog
from offsetlog._options import flag

__all__ = ["arrow_digest"]


def arrow_digest(data: object, *, preserve_offsets: bool = False) -> tuple[int, int]:
    """Return the number of rows of Arrow data and the sum of a hash of each, modulo 2**128.

    The same rows in another order or in other batches have the same digest, and the sums of several parts add up. It covers what
    :meth:`WritableLog.append_arrow` takes: key, value, headers and timestamp in ms; a row without a timestamp has none, whatever
    time its record gets. It is no signature: somebody who wants to can make other rows of the same digest.

    Parameters
    ----------
    data
        As for :meth:`WritableLog.append_arrow`.
    preserve_offsets
        Whether ``offset`` and ``leaderEpoch`` count too.

    Raises
    ------
    ConfigError, RecordRejectedError, TypeError
        As for :meth:`WritableLog.append_arrow`.

    Examples
    --------
    >>> import pyarrow
    >>> one, two = pyarrow.table({"value": ["a", "b"]}), pyarrow.table({"value": ["b", "a"]})
    >>> arrow_digest(one) == arrow_digest(two)
    True
    """
    return _offsetlog.arrow_digest(data, keep_offsets=flag("preserve_offsets", preserve_offsets))
