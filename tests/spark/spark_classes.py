"""Archives the classes that a session of Spark loads (class data sharing), so that each driver of the tests starts in half its time.

``make`` calls it with an environment's interpreter, and the archive lies in that environment. A JVM that cannot use it, because it is
another JVM or its jars are others, starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from programs import CLASS_DATA, SHORT_LIVED, session


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker is given goes back twice."""
    for batch in batches:
        yield batch
        yield batch


def class_path_of_a_session(classes: Path, work: Path) -> str:
    """Run some of what tests do, while the JVM notes in ``classes`` what it loads; its class path."""
    spark = session(
        "classes", work / "warehouse", {"spark.driver.extraJavaOptions": f"{SHORT_LIVED} -XX:DumpLoadedClassList={classes}"}
    )
    rows = spark.createDataFrame([(number, str(number)) for number in range(100)], "number int, text string")
    rows.mapInArrow(doubled, rows.schema).groupBy("text").count().orderBy("text").write.parquet(str(work / "parquet"))
    assert spark.read.parquet(str(work / "parquet")).filter("count = 2").count() == 100
    stream = spark.readStream.schema("text string, count long").parquet(str(work / "parquet")).writeStream
    stream.trigger(availableNow=True).option("checkpointLocation", str(work / "checkpoint")).format("noop").start().awaitTermination()
    ((class_path,),) = spark.sql("select reflect('java.lang.System', 'getProperty', 'java.class.path')").collect()
    spark.stop()
    return str(class_path)


def main() -> None:
    """Write the archive into the environment of this interpreter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    CLASS_DATA.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        classes = work / "classes"
        class_path = class_path_of_a_session(classes, work)
        options = ["-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={CLASS_DATA}"]
        subprocess.run(["java", *options, "-Xlog:disable", "-cp", class_path], check=True, capture_output=True)


if __name__ == "__main__":
    main()
