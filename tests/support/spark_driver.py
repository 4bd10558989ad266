"""Spark drivers in processes of their own: so that they can be killed, and so that their tasks are tried again.

::

    test ── one command a line ──► driver ── its JVM ── its Python workers        all of one session of processes
         ◄── one answer a line ────┘                                              `SparkDriver.kill` kills all of it

Run as a program: ``python -m support.spark_driver SCRATCH MASTER PIPE``; the answers go to that descriptor, since Spark
writes to the others.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Self

from .pipes import SINK, Pipe
from .processes import members
from .spark_session import local_session

TESTS = Path(__file__).parent.parent


class SparkDriver:
    """A driver, as the test has it; a context manager that leaves no process."""

    def __init__(self, scratch: Path, master: str = "local[2]") -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = scratch / "driver.log"
        answers, into = os.pipe()
        search = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.spark_driver", str(scratch), master, str(into)],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(search)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                pass_fds=[into],
                start_new_session=True,
            )
        os.close(into)
        self._answers: IO[str] = os.fdopen(answers)

    def tell(self, **command: Any) -> None:
        """Send a command, and do not wait; the next `ask` reads its answer first."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def ask(self, **command: Any) -> dict[str, Any]:
        self.tell(**command)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        assert line, f"the driver is gone: {self._log.read_text(errors='replace')[-2_000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def has_answered(self, seconds: float = 0) -> bool:
        """Wait for an answer, or for the end of the driver."""
        return bool(select.select([self._answers], [], [], seconds)[0])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def processes(self) -> list[int]:
        return members(self._process.pid)

    def kill(self) -> int:
        """Kill all of its processes at once, the Python workers included; return their number."""
        killed: set[int] = set()
        while living := self.processes():
            for process in living:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.add(process)
            time.sleep(0.002)
        self._process.wait()
        return len(killed)

    def kill_driver(self) -> int:
        """Kill the driver's Python and its JVM; workers notice by themselves. Return the number of workers."""
        living = self.processes()
        drivers = [process for process in living if process == self._process.pid or _name(process) == "java"]
        for process in drivers:
            os.kill(process, signal.SIGKILL)
        self._process.wait()
        return len(living) - len(drivers)

    def interrupt(self) -> None:
        """Ask the verb that is running to end, as Ctrl-C does."""
        os.kill(self._process.pid, signal.SIGINT)

    def wait_gone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (living := self.processes()) and time.monotonic() < until:
            time.sleep(0.02)
        assert living == [], f"these outlived their driver: {[(each, _name(each)) for each in living]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._answers.close()


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def _batch(spark: Any, path: str, first: int, rows: int, options: Mapping[str, str]) -> None:
    frame = spark.range(first, first + rows, 1, 2).selectExpr("concat('row-', id) as body", "'Rows' as topic")
    frame.write.format("faulty").mode("append").options(**(SINK | dict(options))).save(path)


def _stream(spark: Any, folder: str, options: Mapping[str, str]) -> None:
    Pipe(Path(folder)).drain(spark, sink_format="faulty", sink_options=options, maxRecordsPerPartition="30")


def _endless(
    spark: Any, folder: str, options: Mapping[str, str], sink_options: Mapping[str, str] | None = None
) -> None:
    Pipe(Path(folder)).start(spark, sink_options, **options)


def _drained(spark: Any, folder: str, options: Mapping[str, str]) -> None:
    Pipe(Path(folder)).drain(spark, **options)


def _replay(spark: Any, path: str, target: str, state: str, part_bytes: int) -> None:
    from .replays import replayed  # noqa: PLC0415 - the class above needs none of it

    replayed(spark, Path(path), target=target, state=state, part_bytes=part_bytes)


def _verb(spark: Any, arguments: list[str]) -> str:
    """Run a verb of the command; return its output. The session stays for further commands."""
    from segmentlog.store.maintenance import log_parts  # noqa: PLC0415 - as above

    from .commands import run_command  # noqa: PLC0415 - as above

    log_parts._NEAR_BYTES = 0  # else one process would examine a small log
    spark.stop = lambda: None
    ran = run_command(*arguments)
    if ran.code not in (0, 1):
        raise RuntimeError(ran.err)
    return ran.text


def _ready(spark: Any) -> None:
    spark.range(1).count()


def _serve(scratch: Path, master: str, answers: IO[str]) -> None:
    from .faulty_sink import FaultySink  # noqa: PLC0415 - it imports pyspark, and the class above needs none

    spark = local_session(scratch, master, spark__sql__execution__arrow__maxRecordsPerBatch="10")
    spark.dataSource.register(FaultySink)
    commands: dict[str, Callable[..., str | None]] = {
        "batch": _batch,
        "stream": _stream,
        "endless": _endless,
        "drained": _drained,
        "ready": _ready,
        "replay": _replay,
        "verb": _verb,
    }
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {"error": None}
        try:
            if (text := commands[command.pop("do")](spark, **command)) is not None:
                answer["text"] = text
        except Exception as caught:  # noqa: BLE001 - for the test to judge
            answer["error"] = " ".join(str(caught).split())
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[3]), "w") as pipe:
        _serve(Path(sys.argv[1]), sys.argv[2], pipe)
