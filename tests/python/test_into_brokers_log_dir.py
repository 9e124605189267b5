"""``salvage`` and ``convert`` into a broker's log dir: a broker asks its cluster for more than records, which only ``restore`` looks at."""

from __future__ import annotations

from pathlib import Path

import pytest
from held_records import offsetlog
from restoring import formatted

from offsetlog import Log, convert, salvage

WORDS = "nothing was asked of its cluster"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        log.append(b"value")
    return tmp_path / "old" / "orders-0"


@pytest.mark.parametrize("is_brokers", [True, False])
@pytest.mark.parametrize("verb", ["salvage", "convert"])
def test_it_is_told(verb: str, is_brokers: bool, old: Path, tmp_path: Path) -> None:
    """With the verb that says what the broker does, and the one that asks. Kafka's StrayReplica rules are those of ``identity``."""
    log_dir = formatted(tmp_path / "logs") if is_brokers else tmp_path / "logs"
    new = log_dir / "orders-0"
    report = salvage(old, new, dry_run=True) if verb == "salvage" else convert(old, tmp_path / "elsewhere" / "orders-0")
    assert any(WORDS in text for text in report.warnings) == (is_brokers and verb == "salvage")
    done = offsetlog("salvage", old, "--into", log_dir) if verb == "salvage" else offsetlog("convert", old, new)
    assert done.returncode == 0, done.stderr
    assert ((WORDS in done.stdout + done.stderr), new.exists()) == (is_brokers, True)
    if is_brokers:
        assert f"offsetlog metadata {log_dir} --directories" in done.stdout + done.stderr
