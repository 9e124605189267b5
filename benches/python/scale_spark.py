"""One Spark session that reads the same rows out of ever more partitions: the Spark curve of `make bench-scale`.

    scale_spark.py FOLDER ROWS PARTITIONS...

Log dirs `spark-PARTITIONS` in FOLDER hold a topic `scale` each. Prints one line of JSON per point, and
one with the peak memory of the Python workers per number of partitions.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from pathlib import Path

import offsetlog.spark
from spark_rows import count, session, sum_of_lengths, timed, worker_peak_bytes

ROUNDS = 3


def main(folder: Path, rows: int, counts: list[int]) -> None:
    """Measures."""
    spark = session(None)
    offsetlog.spark.register(spark)
    for partitions in counts:
        path = str(folder / f"spark-{partitions}")
        reader = spark.read.format("offsetlog").option("subscribe", "scale")
        works = {
            "count, read.format with columns=offset": (count, reader.option("columns", "offset").load(path)),
            "sum(length(value)), read.format": (sum_of_lengths, reader.option("columns", "value").load(path)),
            "sum(length(value)), offsetlog.spark.scan": (
                sum_of_lengths,
                offsetlog.spark.scan(spark, path, subscribe="scale", columns="value"),
            ),
        }
        for name, (work, frame) in works.items():
            side = functools.partial(work, frame)
            timed(side)
            found = [timed(side) for _ in range(ROUNDS)]
            # The last batch is filled up: a few rows more.
            if len({result for _, result in found}) != 1 or (work is count and found[0][1] < rows):
                raise SystemExit(f"{path}: {found} met, at least {rows} rows expected")
            seconds = statistics.median(took for took, _ in found)
            print(json.dumps({"name": name, "partitions": partitions, "seconds": seconds}), flush=True)
        print(json.dumps({"partitions": partitions, "peak_rss": worker_peak_bytes()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3:]])
