"""Makes ``docs/settings.md`` from the engine's table: ``python tests/python/settings_page.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from offsetlog._config import SETTINGS, Setting

PAGE = Path(__file__).resolve().parents[2] / "docs/settings.md"

HEAD = """\
# Settings of a topic

Names, types, defaults and bounds are those of Kafka 4.3.0's topic settings. `LogConfig.from_dict` takes Kafka's names,
`LogConfig(...)` the same with underscores; values are Kafka's texts or Python's own:

```python
from datetime import timedelta
from offsetlog import LogConfig

LogConfig.from_dict({"cleanup.policy": "compact", "segment.ms": "3600000"})
LogConfig(cleanup_policy="compact", segment_ms=timedelta(hours=1))  # the same
```

A name that is none, a value of the wrong type or out of bounds, and settings that contradict each other are refused with a
`ConfigError` that says what was found, what is expected and, for a name, which one is near. What Kafka accepts is accepted and
what it refuses is refused, with these exceptions, all of them refusals: digits and letters other than ASCII's, which Java takes
too; hexadecimal numbers and `NaN` for `min.cleanable.dirty.ratio`; a `segment.index.bytes` below 12 (Kafka accepts 4, and then opens
no log); a negative `internal.segment.bytes`.

Settings that look at each other: `min.compaction.lag.ms` is no more than `max.compaction.lag.ms`. With `remote.storage.enable` the
cleanup policy is `delete` or empty, and the local retention settings are no more than those of the whole; with
`remote.log.copy.disable` as well, they equal them.

Blanks around a value do not count, nor does the case of `true` and `false`; that of all other words does. Items of a list are
separated by commas; words given twice count once.

A broker has settings of its own for what its topics do not set. Their names are below as broker synonyms; the first one that is
set wins, with hours and minutes made milliseconds. A log opened by offsetlog knows no broker unless it is told of one:

```python
from offsetlog import BrokerSettings, LogDir

with open("server.properties", "w") as file:
    file.write("log.dirs=data\\nlog.retention.hours=24\\n")
settings = BrokerSettings.read("server.properties")
with LogDir.open(settings.log_dirs, "a", defaults=settings.topic_defaults) as log_dir:
    log_dir.create_topic("orders", 3)
    print(log_dir.log("orders", 0).config)
```

```text
LogConfig(retention_ms=86400000)
```
"""

USED = "\n## Used here\n"
KEPT = """
## Kept for brokers

These are checked and kept, and have no effect on what offsetlog does.
"""


def page() -> str:
    """The whole page."""
    return "".join(parts())


def parts() -> Iterator[str]:
    """The page, piece by piece."""
    yield HEAD
    yield USED
    yield from (section(setting) for setting in SETTINGS.values() if setting.effective)
    yield KEPT
    yield from (section(setting) for setting in SETTINGS.values() if not setting.effective)


def section(setting: Setting) -> str:
    """One setting."""
    rows = [
        ("type", setting.type),
        ("default", f"`{setting.default}`" if setting.default else "none" if setting.type == "int" else "empty"),
        ("bounds", setting.bounds or "none"),
        ("broker synonyms", ", ".join(f"`{name}`" for name in setting.broker_synonyms) or "none"),
    ]
    table = "".join(f"| {name} | {value} |\n" for name, value in rows)
    return f"\n### `{setting.name}`\n\n{setting.documentation}\n\n| | |\n|---|---|\n{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
