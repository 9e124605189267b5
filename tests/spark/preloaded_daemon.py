"""Spark's daemon that forks Python workers, with the modules loaded that each worker would load by itself: a third of a test's time.

The session of the tests on the newest PySpark takes it, and the programs beside Spark's own connector. The session of the tests on
PySpark 4.0 takes Spark's own daemon, as a user's does.
"""

import importlib
import importlib.util

from pyspark.daemon import manager

MODULES = (
    "offsetlog.spark.reader",
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)

if __name__ == "__main__":
    for module in MODULES:
        # Not all are in every PySpark; what is missing, a worker loads or misses as ever.
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
    manager()
