"""Commands and code of a page, copied literally in the source distribution, with an empty environment.

::

    python -I commands.py PAGE FOLDER        FOLDER stands for /data
        spark://master:7077                  a master and a worker on this machine, for the block that names it
        /opt/segmentlog                      the environment of this process
        job.py                               the page's last block of Python before

`scripts/try_wheel.py` runs it in the unpacked source distribution. The first block of a page installs the package into
the environment of this process. Standard library until then.
"""

import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^(?:<!-- skip: (?P<skip>[^>]*) -->\n)?```(?P<language>sh|python)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
EXECUTED_HERE = ("changes the environment", "needs a cluster")
"""Begins of the reasons for which `tests/test_documents.py` skips a block that is executed here."""
MASTER = "spark://master:7077"
_START_S_MAX = 120


def make_store(path: str) -> None:
    """Make the store that a page expects: a topic, and a consumer group."""
    import segmentlog  # noqa: PLC0415 - installed by the page
    from segmentlog.admin import QueueKey, publish_progress  # noqa: PLC0415 - as above

    with segmentlog.open(path, "a", config=segmentlog.Config(segment_bytes=1 << 20)) as store:
        for number in range(40):
            tag = ("paid", "refunded")[number % 2]
            store.append("orders", b"%d" % number, tags=tag, keys=f"key-{number}")
    publish_progress(path, "etl", {QueueKey("orders", 0): 2})


def main(page: str, folder: str) -> None:
    blocks = list(BLOCK.finditer(Path(page).read_text(encoding="utf-8")))
    wanted = [each for each in blocks if not each["skip"] or each["skip"].startswith(EXECUTED_HERE)]
    assert wanted[0]["language"] == "sh", "a page begins with the installation"
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    names: dict[str, Any] = {}
    for number, block in enumerate(wanted):
        code = block["code"].replace("/data/", f"{folder}/")
        if block["language"] == "python":
            exec(compile(code, page, "exec"), names)
            Path(folder, "job.py").write_text(code, encoding="utf-8")
        elif MASTER in code:
            with cluster(folder) as url:
                code = code.replace(MASTER, url).replace("/opt/segmentlog", sys.prefix)
                run(code.replace(" job.py", f" {folder}/job.py"), path)
        else:
            run(code, path)
        if number == 0:
            importlib.invalidate_caches()
            make_store(f"{folder}/store")
    print(f"{os.path.basename(page)}: {len(wanted)} of {len(blocks)} blocks")  # noqa: T201 - what a caller shows


def run(code: str, path: str) -> None:
    subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True, env=os.environ | {"PATH": path})


@contextmanager
def cluster(folder: str) -> Iterator[str]:
    """Start a master and a worker of the installed PySpark on free ports; yield the master's URL."""
    at, processes = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], []
    try:
        processes.append(daemon(folder, "master.Master", *at))
        url = logged(folder, "master.Master", r"Starting Spark master at (spark://\S+)")
        size = ["--cores", "1", "--memory", "1g", "--work-dir", f"{folder}/work"]
        processes.append(daemon(folder, "worker.Worker", *at, *size, url))
        logged(folder, "worker.Worker", r"(Successfully registered with master)")
        yield url
    finally:
        for each in reversed(processes):
            each.terminate()
            each.wait()


def daemon(folder: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    import pyspark  # noqa: PLC0415 - installed by the page

    spark = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with open(f"{folder}/{name}.log", "wb") as log:
        command = [spark, f"org.apache.spark.deploy.{name}", *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def logged(folder: str, name: str, pattern: str) -> str:
    """Wait until a daemon has logged a pattern; return its group."""
    end = time.monotonic() + _START_S_MAX
    while (found := re.search(pattern, Path(folder, f"{name}.log").read_text(encoding="utf-8"))) is None:
        assert time.monotonic() < end, f"{name} did not start: see {folder}/{name}.log"
        time.sleep(0.1)
    return found[1]


if __name__ == "__main__":
    main(*sys.argv[1:])
