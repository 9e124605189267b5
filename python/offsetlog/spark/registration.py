"""Registering the format with a session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from offsetlog.spark.reader import OffsetLogSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate", "register"]

# What Spark adds to the environment of a source's class, in the driver, when a stream of it starts.
_ADDED = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
# Of several threads that register, each gives the environment back as it was.
_ONE = threading.Lock()


@contextmanager
def _whole_environment(spark: SparkSession) -> Iterator[None]:
    """Let the environment of what is registered hold from the start all that Spark adds to it.

    Streams of one source share one ``java.util.HashMap``, to which each adds when it starts, without a lock. Two that do so at the
    same moment can leave a map that counts wrong, and then every task of theirs fails with ``java.io.OptionalDataException`` until
    the driver ends. Values that are replaced do not change the count.
    """
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        # Spark Connect: the driver is elsewhere.
        yield
        return
    with _ONE:
        environment = context.environment
        # Another one in its place: PySpark goes through the names in each thread that makes a source or a function.
        context.environment = {**_ADDED, **environment}
        try:
            yield
        finally:
            context.environment = environment


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this Python thread: Spark looks for Python sources in that, and a new thread has none."""
    made = getattr(spark, "_jsparkSession", None)
    if made is not None:
        # Spark Connect has none: the server's threads are its own.
        getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(made)  # noqa: SLF001  # no other way to the JVM


def register(spark: SparkSession) -> None:
    """Register the format with a session.

    The format is found by its name without this, wherever ``offsetlog`` is installed. Registering makes the first use faster, as
    Spark need not look for it. A driver that runs several streams registers it first: Spark itself can damage what streams of one
    source share when two of them start at the same moment (all their tasks then fail with ``java.io.OptionalDataException``), and
    registering leaves it nothing to damage.

    It also makes the session the active one of this thread. Spark finds a Python source for ``frame.write`` only in the active
    session, and a Python thread that was started by hand has none (``DATA_SOURCE_NOT_FOUND``): call this in the thread, first.
    :func:`offsetlog.spark.write` does so by itself.

    Parameters
    ----------
    spark
        The session.
    """
    activate(spark)
    try:
        with _whole_environment(spark):
            spark.dataSource.register(OffsetLogSource)
    except Exception as error:
        # PySpark 4.0 refuses a name that it has found by itself before; it is the same class.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
