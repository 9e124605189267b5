"""Archives the classes of a version's programs (class data sharing), so that each JVM of the tests starts in half its time.

``make brokers`` calls it: ``python tests/broker/broker_classes.py 4.3.0``. Tests start hundreds of brokers and tools. A JVM that cannot use an
archive, because it is another JVM or its jars are others, starts without it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import broker
from broker import CLASS_DATA, JVM, WITH_ZOOKEEPER, broker_of, dump_files, jars, java, run

KINDS = {"4.3.0": ["4.3.0"], "3.9.2": ["3.9.2", f"3.9.2{WITH_ZOOKEEPER}"], "2.8.2": ["2.8.2"]}
"""The brokers that tests start of a version: their classes are those of nearly all that its jars can do."""


def loaded(version: str, work: Path) -> list[str]:
    """The classes that a version's brokers, format tool and dump tool load, from their start to their end."""
    broker.JVM = (*JVM, f"-XX:DumpLoadedClassList={work}/%p.classes")
    try:
        for kind in KINDS[version]:
            one = broker_of(kind, work / kind)
            one.format()
            with one.running():
                pass
            if kind == "4.3.0":
                dump_files(kind, sorted((one.directory / "metadata").rglob("*.log")))
    finally:
        broker.JVM = JVM
    lines = [line for path in sorted(work.glob("*.classes")) for line in path.read_text(encoding="utf-8").splitlines()]
    return list(dict.fromkeys(lines))


def main(version: str) -> None:
    """Write the archive beside the jars."""
    archive = jars(version) / CLASS_DATA
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        classes = work / "all"
        classes.write_text("\n".join(loaded(version, work)) + "\n", encoding="utf-8")
        options = ("-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")
        run(java(version, options=options))


if __name__ == "__main__":
    main(*sys.argv[1:])
