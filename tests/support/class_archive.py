"""An archive of the classes that Spark's JVM loads, with which it starts in half the time.

::

    make test ──► python -m support.class_archive     beside the first tests, and only where there is none yet
                    └─► a session writes, reads, streams, ends ──► .venv/spark-classes-….jsa
    drivers of the tests ──► -XX:SharedArchiveFile=…      if it is there (`spark_session.set_driver_options`)

A JVM that cannot use it, since it is another one or its jars have changed, passes over it.
"""

import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

_QUIET = "-Xlog:disable"  # classes that cannot be archived, and archives that cannot be used
_JVM_ENDS_SECONDS = 120


def options() -> list[str]:
    """Options of the archive for a JVM of the tests: empty while it does not exist."""
    archive = _path()
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive is not None and archive.exists() else []


def _path() -> Path | None:
    """Path of the archive of this Spark and this Java; None if no option of a JVM can hold it."""
    spark = importlib.util.find_spec("pyspark")
    java = Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java"
    if spark is None or spark.origin is None or not java.exists() or " " in sys.prefix:
        return None
    jars = Path(spark.origin).parent / "jars"
    told = [importlib.metadata.version("pyspark"), java.resolve(), java.stat().st_mtime_ns, jars.stat().st_mtime_ns]
    return Path(sys.prefix) / f"spark-classes-{zlib.crc32(repr(told).encode()):08x}.jsa"


def make() -> None:
    from segmentlog.connector.setup.java import prepare_java  # noqa: PLC0415 - most tests need no connector

    from .spark_session import BRIEF, DRIVER_OPTIONS, local_session  # noqa: PLC0415 - it asks for `options`

    prepare_java()
    archive = _path()
    if archive is None or archive.exists():
        return
    making = archive.with_name(f"{archive.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ[DRIVER_OPTIONS] = f"{BRIEF} -XX:ArchiveClassesAtExit={making} {_QUIET}"
        session = local_session(Path(folder))
        _use(session, Path(folder))
        jvm = session.sparkContext._gateway.proc
        session.stop()
        jvm.stdin.close()  # with which it ends, and archives
        jvm.wait(_JVM_ENDS_SECONDS)
    if making.exists():
        making.rename(archive)


def _use(session: Any, folder: Path) -> None:
    store, copy = str(folder / "store"), str(folder / "copy")
    rows = session.range(100).selectExpr("concat('row-', id) as body", "'Rows' as topic", "string(id) as keys")
    rows.write.format("segmentlog").mode("append").save(store)
    read = session.read.format("segmentlog").option("topic", "Rows").load(store)
    read.where("queueOffset > 3").groupBy("queueId").count().orderBy("queueId").collect()
    stream = session.readStream.format("segmentlog").option("topic", "Rows").option("startingOffsets", "earliest")
    written = stream.load(store).select("topic", "body").writeStream.format("segmentlog")
    written = written.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    written.start(copy).awaitTermination()


if __name__ == "__main__":
    make()
