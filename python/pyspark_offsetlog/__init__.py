"""Lets Spark find the format ``offsetlog`` by its name.

At the first use of a format that it does not know, Spark imports every top-level package whose name begins with ``pyspark_`` and
takes its ``DefaultSource``. There is no other reason for this package.
"""

from offsetlog.spark import OffsetLogSource as DefaultSource

__all__ = ["DefaultSource"]
