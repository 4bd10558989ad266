"""Checks of an installed wheel, in an environment and a directory that have nothing else.

::

    python -I checks.py        each check prints a line; the first that fails ends the run

`scripts/try_wheel.py` runs it. Standard library, the wheel, and PySpark where it is installed.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import segmentlog

IMPORT_MS = 40
SMALL = {"mappedFileSizeCommitLog": "1m", "mappedFileSizeConsumeQueue": "20000"}
WRONG = {
    "topics /no/such/store": "/no/such/store",
    "topics .": "store",
    "cat stores/basic-5.3.3 NoSuchTopic": "NoSuchTopic",
    "cat stores/basic-5.3.3 TopicA --from yesterdya": "yesterdya",
    "cat stores/basic-5.3.3 TopicA -o xlsx": "xlsx",
    "demo --unpack stores": "stores/basic-5.3.3",
}
"""Wrong commands, each with the part that its error has to name."""


def command(line: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    program = os.path.join(os.path.dirname(sys.executable), "segmentlog")
    return subprocess.run([program, *line.split()], check=False, capture_output=True, text=True)


def check_import() -> str:
    """Import the package in new processes; the CPU time of the fastest counts, since others may use the machine."""
    code = "import time; start = time.process_time(); import segmentlog; print((time.process_time() - start) * 1000)"
    times = [
        float(subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(10)
    ]
    assert min(times) < IMPORT_MS, times
    return f"imported in {min(times):.0f} ms"


def check_command() -> str:
    for line in (
        "--version",
        "demo --unpack stores",
        "topics stores/basic-5.3.3",
        "cat stores/basic-5.3.3 TopicA -n 3",
    ):
        ran = command(line)
        assert ran.returncode == 0, (line, ran.stderr)
    return "the command reads the stores of the demonstration"


def check_wrong_commands() -> str:
    for line, named in WRONG.items():
        ran = command(line)
        assert ran.returncode not in {0, 1}, (line, ran.returncode)
        assert named in ran.stderr, (line, ran.stderr)
        assert "Traceback" not in ran.stderr, (line, ran.stderr)
        assert "remedy:" in ran.stderr, (line, ran.stderr)
    return f"{len(WRONG)} wrong commands are answered"


def check_python() -> str:
    with segmentlog.open("mine", "a", config=segmentlog.Config(segment_bytes=1 << 20)) as store:
        store.append("orders", b"one", keys="key-1")
    assert segmentlog.open("mine").find("orders", keys="key-1").to_arrow()["body"].to_pylist() == [b"one"]
    return "Python appends and reads"


def check_spark() -> str:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it may be missing

    from segmentlog.spark import last_commit, prepare_java, prepare_workers, register  # noqa: PLC0415 - as above

    version = importlib.metadata.version("pyspark")
    prepare_java()
    prepare_workers()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF").getOrCreate()
    register(spark)
    demo = spark.read.format("segmentlog").option("subscribe", "TopicA").load("stores/basic-5.3.3")
    messages = segmentlog.open("stores/basic-5.3.3").scan("TopicA").count()
    assert demo.count() == messages > 0
    for _ in range(2):  # the second write is a repetition
        rows = demo.selectExpr("body", "keys", "tags", "'copy' AS topic").write.format("segmentlog").mode("append")
        rows.options(**SMALL, txnAppId="copy", txnVersion="1").save("copied")
    commit = last_commit("copied", "copy")
    assert commit is not None
    assert commit.rows == messages == segmentlog.open("copied").scan("copy").count()
    stream = spark.readStream.format("segmentlog").option("subscribe", "TopicA").option("startingOffsets", "earliest")
    sink = stream.load("stores/basic-5.3.3").writeStream.format("segmentlog").options(**SMALL)
    sink = sink.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
    if tuple(map(int, version.split(".")[:2])) < (4, 2):
        refused = ""
        try:
            sink.start("streamed").awaitTermination()
        except Exception as error:  # noqa: BLE001 - PySpark's type differs between releases
            refused = " ".join(str(error).split())
        assert "need PySpark 4.2 or later" in refused, refused
        return f"PySpark {version} reads and writes batches, and refuses streams"
    sink.start("streamed").awaitTermination()
    assert segmentlog.open("streamed").scan("TopicA").count() == messages
    return f"PySpark {version} reads and writes batches and streams"


def main() -> None:
    home = Path(segmentlog.__file__).resolve()
    assert Path(sys.prefix).resolve() in home.parents, f"segmentlog is imported from {home}"
    checks = [check_import, check_command, check_wrong_commands, check_python]
    for check in [*checks, check_spark] if importlib.util.find_spec("pyspark") else checks:
        print(check(), flush=True)  # noqa: T201 - what a caller shows


if __name__ == "__main__":
    main()
