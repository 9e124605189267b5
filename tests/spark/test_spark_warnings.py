"""What the sink logs at WARNING arrives on the error output of a program, though Spark runs a commit in a Python process of its own."""

from __future__ import annotations

from pathlib import Path

from programs import HERE, outputs

from offsetlog import LogDir

AGAIN = HERE / "again_program.py"
DROPPED = "what was staged again is dropped"


def test_what_is_dropped_is_told_on_the_error_output(tmp_path: Path) -> None:
    """A job under its name, and micro-batches that come again."""
    text, error = outputs(AGAIN, tmp_path / "logs", tmp_path, folder=tmp_path)
    stream = text.split()[-1]
    told = [line for line in error.splitlines() if DROPPED in line]
    assert [line.split(": ")[0] for line in told] == ["job by-save", "job by-call", f"query {stream}", f"query {stream}"]
    assert told[0].startswith("job by-save: published on 20")
    assert told[0].endswith(f"{DROPPED}: 10 records of topic 'job' (offsets of partition 0: 0 to 10)")
    assert "micro-batch 1 is published, the last is 1" in told[3]
    with LogDir.open(tmp_path / "logs") as log_dir:
        assert log_dir.end_offsets([("job", 0), ("call", 0), ("stream", 0)]) == {("job", 0): 10, ("call", 0): 10, ("stream", 0): 2}
