"""The same batch queries through Spark's own Kafka connector on a broker and through offsetlog on its log dir.

Arguments: ``create`` or ``compare``, the broker's address, its log dir, a folder, the connector's jars, a file. The file holds JSON:
topics and how many partitions each is to get, or a list of options for each query. Prints one line of JSON: for each query whether each
of the two refused it, how many rows there were, and the first difference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from stream_beside_kafka import Beside, session_of_both

import offsetlog.spark

Row = dict[str, Any]

# Spark's defaults wait two minutes for an offset that never comes, and three seconds before a time that no record has is refused.
IMPATIENT = {"kafkaConsumer.pollTimeoutMs": "5000", "fetchOffset.retryIntervalMs": "10"}


def rows(spark: SparkSession, kind: str, address: str, log_dir: str, options: Mapping[str, str]) -> list[Row] | str:
    """All columns of all rows in their order within partitions, or what the query was refused with."""
    reader = spark.read.format(kind.partition(" ")[0]).options(**options)
    try:
        if kind == "kafka":
            frame = reader.options(**IMPATIENT).option("kafka.bootstrap.servers", address).load()
        else:
            frame = reader.load(log_dir) if kind == "offsetlog" else offsetlog.spark.scan(spark, log_dir, **options)  # type: ignore[arg-type]
        found: list[Row] = frame.toArrow().to_pylist()
    except Exception as error:  # noqa: BLE001  # of whatever class, the two are to refuse alike
        return str(error)
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def difference(one: list[Row], other: list[Row]) -> str | None:
    """The first one, for people."""
    for left, right in zip(one, other, strict=False):
        if left != right:
            return f"{left} and {right}"
    return None if len(one) == len(other) else f"{len(one)} and {len(other)} rows"


def main() -> None:
    """All queries."""
    what, address, log_dir = sys.argv[1:4]
    folder, jars, queries = map(Path, sys.argv[4:7])
    if what == "create":
        beside = Beside(address, log_dir, folder, jars)
        for topic, partitions in json.loads(queries.read_text(encoding="utf-8")).items():
            beside.create(topic, partitions)
        beside.spark.stop()
        print("{}")
        return
    spark = session_of_both(folder, jars)
    told = []
    for number, options in enumerate(json.loads(queries.read_text(encoding="utf-8"))):
        theirs = rows(spark, "kafka", address, log_dir, options)
        # The direct road plans with the same code and starts no process for it: three of four queries take it.
        ours = rows(spark, "offsetlog" if number % 4 == 0 else "offsetlog scan", address, log_dir, options)
        sides = {"kafka": theirs, "offsetlog": ours}
        told.append(
            {
                "options": options,
                "refused": {kind: isinstance(found, str) for kind, found in sides.items()},
                "texts": {kind: text[max(text.rfind("Error: "), 0) :][:300] for kind, text in sides.items() if isinstance(text, str)},
                "rows": len(theirs) if not isinstance(theirs, str) else 0,
                "difference": None if isinstance(theirs, str) or isinstance(ours, str) else difference(theirs, ours),
            }
        )
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
