"""Streams through Spark's own Kafka connector and through offsetlog, over one real broker and its log dir, in turns.

Arguments: the broker's address, its log dir, a folder, the connector's jars. In each phase something happens to the topics while no query
runs; then every query goes on from its checkpoint until there is nothing more. Prints one line of JSON with what each micro-batch of each
query held, and what each one said of data that was gone.
"""

from __future__ import annotations

import ast
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from programs import session
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Jars that PySpark brings itself; a second copy on the class path would shadow it.
IN_PYSPARK = ("scala-", "slf4j-", "hadoop-client", "lz4-java", "snappy-java", "jsr305", "spark-tags")
BASE_MS = 1_700_000_000_000

QUERIES: dict[str, dict[str, str]] = {
    "earliest, at most 70": {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"},
    "by offset, at most 7": {
        "subscribe": "t",
        "startingOffsets": '{"t":{"0":95,"1":-2,"2":-1}}',
        "maxOffsetsPerTrigger": "7",
        "includeHeaders": "true",
    },
    "by time": {"subscribePattern": "^t.*", "startingTimestamp": str(BASE_MS + 20), "startingOffsetsByTimestampStrategy": "latest"},
    "latest": {"subscribePattern": "t"},
    "committed, 40 to 90": {
        "subscribePattern": "^[tx].*",
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "40",
        "maxOffsetsPerTrigger": "90",
        "kafka.isolation.level": "read_committed",
    },
    "assigned, what is left": {"assign": '{"t":[0,1]}', "startingOffsets": "earliest", "failOnDataLoss": "false"},
}
REFUSED: list[dict[str, str]] = [
    {"subscribe": "t", "endingOffsets": "latest"},
    {"subscribe": "t", "endingOffsetsByTimestamp": '{"t":{"0":1}}'},
    {"subscribe": "t", "assign": '{"t":[0]}'},
    {"subscribe": " , "},
    {"subscribe": "t", "minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"},
    {"subscribe": "t", "maxOffsetsPerTrigger": "seven"},
    {"subscribe": "t", "maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"},
    {"subscribe": "t", "startingOffsets": "newest"},
    {"subscribe": "t", "startingTimestamp": "noon"},
    {"subscribe": "t", "kafka.auto.offset.reset": "earliest"},
    {"subscribe": "t", "failOnDataLoss": "maybe"},
]
TAKEN: list[dict[str, str]] = [
    {"subscribe": "t", "endingTimestamp": "7"},
    {"subscribe": "t", "maxTriggerDelay": "90s"},
    {"subscribe": "t", "startingOffsets": "LATEST"},
]
FORMATS = ("kafka", "offsetlog")


def session_of_both(folder: Path, jars: Path) -> SparkSession:
    """A session that has both connectors. The session of all other tests on PySpark 4.0 takes Spark's own daemon of workers."""
    paths = [str(path) for path in sorted(jars.glob("*.jar")) if not path.name.startswith(IN_PYSPARK)]
    settings = {
        "spark.jars": ",".join(paths),
        "spark.driver.extraClassPath": ":".join(paths),
        "spark.python.daemon.module": "preloaded_daemon",
    }
    return session("beside", folder / "warehouse", settings)


class Beside:
    """Both connectors in one session."""

    def __init__(self, address: str, log_dir: str, folder: Path, jars: Path) -> None:
        self._address = address
        self._log_dir = log_dir
        self._folder = folder
        self.spark = session_of_both(folder, jars)
        # The only way to Kafka's admin client without a jar of our own.
        jvm: Any = self.spark._jvm  # noqa: SLF001
        self._jvm = jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", address)
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        self.batches: dict[str, dict[str, list[dict[str, Any]]]] = {name: {kind: [] for kind in FORMATS} for name in QUERIES}

    def create(self, topic: str, partitions: int) -> None:
        made = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        self._admin.createTopics(self._jvm.java.util.List.of(made)).all().get()

    def enlarge(self, topic: str, partitions: int) -> None:
        more = self._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
        self._admin.createPartitions(self._jvm.java.util.Map.of(topic, more)).all().get()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        at = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        before = self._jvm.org.apache.kafka.clients.admin.RecordsToDelete.beforeOffset(offset)
        self._admin.deleteRecords(self._jvm.java.util.Map.of(at, before)).all().get()

    def produce(self, counts: dict[tuple[str, int], int], *, commit: bool | None = None) -> None:
        """So many records to each partition; within a transaction that is ended so, unless that is None."""
        settings = self._jvm.java.util.HashMap()
        settings.put("bootstrap.servers", self._address)
        settings.put("linger.ms", "20")
        settings.put("batch.size", "300")
        if commit is not None:
            settings.put("transactional.id", f"tx-{commit}")
        kind = self._jvm.org.apache.kafka.common.serialization.StringSerializer
        producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings, kind(), kind())
        if commit is not None:
            producer.initTransactions()
            producer.beginTransaction()
        for (topic, partition), count in counts.items():
            for number in range(count):
                headers = self._jvm.java.util.ArrayList()
                if number % 3 == 0:
                    header = self._jvm.org.apache.kafka.common.header.internals.RecordHeader("h", b"%d" % number)
                    headers.add(header)
                record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(
                    topic, partition, BASE_MS + number, f"k{number}", f"{topic}-{partition}-{number}", headers
                )
                producer.send(record)
        if commit is not None:
            producer.flush()
            producer.commitTransaction() if commit else producer.abortTransaction()
        producer.close()

    def loaded(self, kind: str, options: dict[str, str]) -> DataFrame:
        reader = self.spark.readStream.format(kind).options(**options)
        return reader.option("kafka.bootstrap.servers", self._address).load() if kind == "kafka" else reader.load(self._log_dir)

    def go_on(self, phase: str, only: str | None = None, **more: str) -> dict[str, dict[str, str | None]]:
        """Every query, in both formats, until there is nothing more; returns what each one died of."""
        # What a broker checkpoints for readers of its files: high watermarks and log starts (see the test's settings).
        time.sleep(2)
        died: dict[str, dict[str, str | None]] = {}
        for name, options in QUERIES.items():
            if only is not None and name != only:
                continue
            for kind in FORMATS:
                kept = self.batches[name][kind]

                def keep(frame: DataFrame, number: int, kept: list[dict[str, Any]] = kept) -> None:
                    rows = [json.loads(str(text)) for text in frame.toJSON().collect()]
                    rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
                    kept.append({"phase": phase, "number": number, "rows": rows})

                writer = self.loaded(kind, {**options, **more}).writeStream.foreachBatch(keep)
                query = writer.option("checkpointLocation", str(self._folder / kind / name)).start()
                try:
                    query.processAllAvailable()
                    died.setdefault(name, {})[kind] = None
                except Exception as error:  # noqa: BLE001  # of whatever class, the two are to fail alike
                    died.setdefault(name, {})[kind] = str(error)
                query.stop()
                ends = [plain(progress["sources"][0]["endOffset"]) for progress in query.recentProgress if progress["numInputRows"]]
                for batch, end in zip([batch for batch in kept if batch["phase"] == phase and batch["rows"]], ends, strict=False):
                    batch["end"] = end
        return died

    def refused(self, options: dict[str, str]) -> dict[str, bool]:
        """Whether each of the two refuses these options."""
        found = {}
        for kind in FORMATS:
            try:
                query = self.loaded(kind, options).writeStream.format("noop").start()
            except Exception:  # noqa: BLE001  # each refuses in its own way
                found[kind] = True
                continue
            try:
                query.processAllAvailable()
                found[kind] = False
            except Exception:  # noqa: BLE001
                found[kind] = True
            query.stop()
        return found

    def run(self) -> dict[str, Any]:
        """All phases."""
        died = {}
        self.create("t", 3)
        self.produce({("t", 0): 100, ("t", 1): 41, ("t", 2): 3})
        died["one"] = self.go_on("one")
        self.produce({("t", 0): 11, ("t", 1): 200})
        self.produce({("t", 1): 7, ("t", 2): 5}, commit=False)
        self.produce({("t", 1): 6, ("t", 2): 4}, commit=True)
        self.enlarge("t", 4)
        self.create("t2", 2)
        self.produce({("t", 3): 12, ("t2", 0): 30, ("t2", 1): 1})
        died["two"] = self.go_on("two")
        self.produce({("t", 0): 60})
        self.delete_before("t", 0, 150)
        died["three"] = self.go_on("three")
        refused = [{"options": options, "wanted": True, **self.refused(options)} for options in REFUSED]
        refused += [{"options": options, "wanted": False, **self.refused(options)} for options in TAKEN]
        return {"died": died, "batches": self.batches, "refused": refused}


def plain(end: Any) -> dict[str, dict[str, int]]:  # noqa: ANN401  # PySpark 4.0 makes text of it with `str`
    """Return the offsets alone: beside ours there are topic ids and leader epochs."""
    found = ast.literal_eval(end) if isinstance(end, str) else end
    return {topic: {name: offset for name, offset in offsets.items() if name.isdigit()} for topic, offsets in found.items()}


def main() -> None:
    """Run, and print what there was."""
    beside = Beside(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    found = beside.run()
    beside.spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
