"""Java's regular expressions, as ``subscribePattern`` takes them, in Python's.

Spark's Kafka source runs the pattern in Java and asks whether it is *found* in the name, not whether it matches the whole name.
Planning runs in a Python process without a JVM at hand, so the pattern is translated: the two languages agree except for a few
spellings. A construct without an equal in Python is refused by name, never guessed.
"""

from __future__ import annotations

import re
import warnings
from typing import NoReturn

from offsetlog.spark.refusal import refuse, shown

__all__ = ["java_pattern"]

# ASCII only, as Java's classes are without UNICODE_CHARACTER_CLASS; topic names are ASCII anyway.
_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "A-Za-z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "XDigit": "0-9A-Fa-f",
    "Space": r" \t\n\x0b\f\r",
    "L": "A-Za-z",
    "IsAlphabetic": "A-Za-z",
    "Lu": "A-Z",
    "IsUppercase": "A-Z",
    "Ll": "a-z",
    "IsLowercase": "a-z",
    "N": "0-9",
    "Nd": "0-9",
    "IsDigit": "0-9",
}
_ESCAPES = {"z": r"\Z", "Z": r"(?=\n?\Z)", "h": r"[ \t\xa0]", "e": r"\x1b"}
_TOKEN = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
      | \\(?P<sign>[pP])(?:\{(?P<long>\w+)\}|(?P<short>\w))
      | \\k<(?P<reference>\w+)>
      | \\(?P<escape>.)
      | (?P<name>\(\?<(?![=!]))
      | (?P<python>\(\?[P(\#])
      | (?P<and>&&)
      | (?P<open>\[\^?\]?)
      | (?P<close>\])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def java_pattern(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern whose ``search`` finds what Java's ``Matcher.find`` would.

    Raises
    ------
    ConfigError
        The pattern is not one, or uses something of Java's that Python has no equal for.
    """
    translated = "".join(_pieces(pattern))
    try:
        with warnings.catch_warnings():
            # Python warns of signs in a class that may get a meaning one day; Java has none for them.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(translated, re.ASCII)
    except (re.error, ValueError, OverflowError) as error:
        _refuse(pattern, f"not a regular expression that can be used here: {error}")
    except RecursionError:
        _refuse(pattern, "not a regular expression that can be used here: nested too deeply")


def _pieces(pattern: str) -> list[str]:
    pieces = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if token["quoted"] is not None:
            pieces.append(re.escape(token["quoted"]))
        elif token["sign"] is not None:
            pieces.append(_named_class(pattern, token, in_class=in_class))
        elif kind == "reference":
            pieces.append(f"(?P={token['reference']})")
        elif kind == "escape":
            # Within a class, \h cannot become a class of its own.
            pieces.append(token[0] if in_class else _ESCAPES.get(token["escape"], token[0]))
        elif kind == "name":
            pieces.append("(?P<")
        elif kind == "python" and not in_class:
            _refuse(pattern, f"{token[0]} is no group of a Java pattern")
        elif kind == "open":
            if in_class:
                _refuse(pattern, "a character class within a character class (a union) has no equal in Python")
            in_class = True
            pieces.append(token[0])
        elif kind == "close":
            in_class = False
            pieces.append("]")
        elif kind == "and" and in_class:
            _refuse(pattern, "an intersection of character classes (&&) has no equal in Python")
        else:
            pieces.append(token[0])
    return pieces


def _named_class(pattern: str, token: re.Match[str], *, in_class: bool) -> str:
    name = token["long"] or token["short"]
    characters = _CLASSES.get(name)
    if characters is None:
        _refuse(pattern, f"character class {token[0]} is not known here (known: {', '.join(_CLASSES)})")
    if token["sign"] == "P":
        if in_class:
            _refuse(pattern, f"{token[0]} within a character class has no equal in Python")
        return f"[^{characters}]"
    return characters if in_class else f"[{characters}]"


def _refuse(pattern: str, reason: str) -> NoReturn:
    refuse("subscribePattern", pattern, f"{reason}; pattern {shown(pattern)}")
