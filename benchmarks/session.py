"""The Spark session that everything is measured in: two cores, one machine, told nothing that a user would not be."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from segmentlog.spark import prepare_java, prepare_workers, register

CORES = 2
DRIVER_MEMORY = "4g"  # with 2 GiB, Kafka's tuned consumers once filled it, and all later sections failed
HERE = str(Path(__file__).parent)


@contextmanager
def session(folder: Path, jars: Sequence[Path], cores: int = CORES) -> Iterator[SparkSession]:
    """Start Spark; its scratch files go below ``folder``."""
    prepare_java()
    prepare_workers()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers import the transport peer's source by name.
    found_before = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if HERE not in found_before:
        os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *found_before])
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": DRIVER_MEMORY,
        # Each write has a Kafka producer of its own, which holds its buffers: let go of it soon, not in ten minutes.
        "spark.kafka.producer.cache.timeout": "5s",
        "spark.kafka.producer.cache.evictorRunInterval": "1s",
        "spark.local.dir": str(folder / "spark"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    builder = SparkSession.builder.master(f"local[{cores}]").appName("segmentlog benchmarks")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    yield spark
    spark.stop()
