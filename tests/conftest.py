"""What all tests share: what a tier's markers leave out is counted for its closing lines, and Ctrl-C works."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Tests that a shell started in the background: what they start would ignore Ctrl-C too, and some tests are about Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `make check` has an environment without Spark; `make test` runs these.
NEEDS = {
    "python/test_commits.py": "pyspark",
    "python/test_delta_pipeline.py": "deltalake",
    "python/test_known_replicas.py": "pyspark",
    "python/test_old_log_dirs.py": "pyspark",
    "python/test_old_notes.py": "pyspark",
    "python/test_partitions_not_here.py": "pyspark",
    "python/test_publish_failures.py": "pyspark",
    "python/test_publish_alike.py": "pyspark",
    "python/test_publish_compacted.py": "pyspark",
    "python/test_publish_deleted.py": "pyspark",
    "python/test_publish_looks.py": "pyspark",
    "python/test_publish_full_disk.py": "pyspark",
    "python/test_publish_twins.py": "pyspark",
    "python/test_publish_marks.py": "pyspark",
    "python/test_publish_log_dirs.py": "pyspark",
    "python/test_publish_unmounted.py": "pyspark",
    "python/test_publish_whereabouts.py": "pyspark",
    "python/test_publishing.py": "pyspark",
    "python/test_settings_of_verbs.py": "pyspark",
    "python/test_stopped_transforms.py": "pyspark",
    "python/test_stream_identity.py": "pyspark",
    "python/test_topics_of_one_name.py": "pyspark",
    "python/test_verbs_again.py": "pyspark",
    "python/test_verbs_beside.py": "pyspark",
    "python/test_verbs_damaged.py": "pyspark",
    "python/test_verbs_failures.py": "pyspark",
    "python/test_verbs_full_disk.py": "pyspark",
    "python/test_verbs_of_spark.py": "pyspark",
    "python/test_verbs_of_spark_reading.py": "pyspark",
    "python/test_verbs_settings.py": "pyspark",
    "python/test_verbs_stopped.py": "pyspark",
    "python/test_verbs_table.py": "pyspark",
    "python/test_write_arguments.py": "pyspark",
    "python/test_write_layout.py": "pyspark",
    "python/test_what_folders_are.py": "pyspark",
    "tidy/test_verbs.py": "pyspark",
}
collect_ignore = [path for path, package in NEEDS.items() if importlib.util.find_spec(package) is None]

# Marker -> the tier that runs its tests, for the closing lines.
TIERS = {"newest": "make soak", "proof": "make proof", "slow": "make test"}


def pytest_report_header() -> list[str]:
    """Name the files whose package is not there."""
    return [f"left out: {path} needs {NEEDS[path]}" for path in collect_ignore]


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Write how many tests a tier left out, and who runs them, to the file named by ``OFFSETLOG_LEFT``."""
    into = os.environ.get("OFFSETLOG_LEFT")
    # Each of several test processes deselects the same tests.
    if not into or os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        return
    asked = items[0].config.getoption("markexpr") if items else ""
    marks = (next((name for name in TIERS if name in asked and item.get_closest_marker(name)), None) for item in items)
    counts = Counter(f"{TIERS[name]}: marked {name}" if name else "not asked for here" for name in marks)
    Path(into).parent.mkdir(parents=True, exist_ok=True)
    Path(into).write_text("".join(f"{count} {why}\n" for why, count in sorted(counts.items())), encoding="utf-8")
