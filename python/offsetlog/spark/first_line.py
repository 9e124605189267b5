"""What Spark shows first of an error: its text, in front of the traceback.

PySpark sends the error of a Python worker as Python prints it: a traceback first, the text last. All that summaries show is the first
line. Python prints causes before what they caused, and a cause that was never raised has no traceback: so each error that leaves for
Spark gets such a cause, with its own name and text. Spark's setting ``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled``,
which is on by default, takes the cause of an error away; it cannot where the class of the error says what its cause is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from offsetlog.spark.limits import name_the_option

__all__ = ["text_first", "text_first_of_each"]

P = ParamSpec("P")
T = TypeVar("T")


class _Told:
    """Marks what is put in front of an error."""


def _told(error: Exception) -> Exception:
    """Return an error that prints as the first line of `error`."""
    text = str(error).split("\n", 1)[0]
    return _class(error, (_Told, Exception), {})(text)


def _class(error: Exception, bases: tuple[type, ...], more: dict[str, object]) -> type[Exception]:
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made: type[Exception] = type(kind.__name__, bases, {**names, **more})
    return made


def _led(error: Exception) -> Exception:
    """Return an error of the same class and text that prints its first line in front of all tracebacks."""
    first: BaseException = error
    seen = {id(first)}
    while (before := first.__cause__ or (None if first.__suppress_context__ else first.__context__)) is not None:
        if isinstance(before, _Told) or id(before) in seen:
            return error
        seen.add(id(before))
        first = before
    told = _told(error)
    if first is not error:
        first.__cause__ = told
    cause = told if first is error else error.__cause__ or error.__context__
    # The setter takes what Spark sets, and nothing comes of it.
    kind = _class(error, (type(error),), {"__cause__": property(lambda _: cause, lambda _, __: None)})
    try:
        error.__class__ = kind
    except TypeError:
        # One of Python's own.
        named = isinstance(error, OSError) and error.errno is not None
        values = (error.errno, error.strerror, error.filename) if named else error.args  # type: ignore[attr-defined]
        with suppress(TypeError):
            return kind(*values).with_traceback(error.__traceback__)
        # Of some other library, made in another way: it stays as it is.
    return error


@contextmanager
def _leading() -> Iterator[None]:
    """Have what is raised inside begin with its text."""
    try:
        yield
    except Exception as error:
        name_the_option(error)
        led = _led(error)
        if led is error:
            raise
        raise led from None


def text_first(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that Spark calls, whose errors begin with their text."""

    @functools.wraps(method)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        with _leading():
            return method(*arguments, **named)

    return called


def text_first_of_each(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Return the same for a method that gives an iterator, for what its steps raise too."""

    @functools.wraps(method)
    def called(*arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        with _leading():
            yield from method(*arguments, **named)

    return called
