"""Jobs are killed with SIGKILL: their successors go on, and readers see whole hours all the time.

::

    process 0 ── hour 0 ── hour 1 ── hou ✗       in place of a driver; it writes the files of a part itself
    process 1 ───────────────────────────── hour 2 ── hour 3 ✗
    reader    ── hours of Parquet files ── the same ── …          each is missing, or as in the store

With Spark an executor of a cluster is killed, with speculation on: its tasks run again, or beside each other.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from support.backfills import Row, read_hours
from support.killed_jobs import JOBS
from support.processes import fork_server, members
from support.scale import Report, scale
from support.spark_driver import SparkDriver
from support.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.scaled, pytest.mark.attack, pytest.mark.timeout(scale(600, 1800, 36_000))]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261126"))
KILLS = {"files": scale(5, 40, 10_000), "follow": scale(5, 15, 1_000)} | scale(
    {}, *(dict.fromkeys(["catch-up", "dead letters", "replay"], kills) for kills in (15, 1_000))
)
EXECUTOR_KILLS = scale(1, 1, 40)
KILLS_PER_RUN = scale(1, 1, 3)
"""A task that fails for the fourth time ends its job."""


class Watch:
    """Reads of a target while it is written: each hour that they see is compared with those that are allowed."""

    def __init__(self, target: Path, allowed: Mapping[int, Sequence[list[Row]]]) -> None:
        self._target, self._allowed = target, allowed
        self.wrong: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        ended = threading.Event()

        def read() -> None:
            while self._allowed and not ended.wait(0.1):
                self.read()

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def read(self) -> None:
        """Look once."""
        try:
            found = read_hours(self._target)
        except Exception as error:  # noqa: BLE001 - a file that is half written is what this looks for
            self.wrong.append(str(error))
            return
        self.wrong += [f"hour {hour}" for hour, rows in found.items() if rows not in self._allowed.get(hour, ())]


@pytest.mark.parametrize("name", KILLS)
def test_killed_processes_lose_and_repeat_nothing(name: str, tmp_path: Path, report: Report) -> None:
    rng, kills = random.Random(SEED), KILLS[name]
    job = JOBS[name](tmp_path / "job", 60)
    counted: Counter[str] = Counter()

    def started() -> BaseProcess:
        work, arguments = job.without_spark()
        process = fork_server().Process(target=work, args=arguments)
        process.start()
        return process

    fork_server()  # its start is no part of the time that a job takes
    began = time.monotonic()
    job.end(started())
    seconds = time.monotonic() - began
    job.begin()
    while counted["kills"] < kills:
        job.feed()
        before, process, watch = job.sign(), started(), Watch(job.target, job.allowed())
        wait_s = rng.uniform(0, 0.8) * seconds
        if counted["kills"] % 2:  # the others come at any moment, most before the job's first change on a busy machine
            while process.is_alive() and job.sign() == before:
                job.feed()  # the processes before may have written all that there was
                time.sleep(0.002)
            wait_s /= 4
        process.join(wait_s)
        if is_killed := process.is_alive():
            process.kill()
            process.join()
            counted["kills"] += 1
            counted["within"] += job.sign() != before
        if job.allowed():
            watch.read()
        assert watch.wrong == [], f"seed {SEED}, kill {counted['kills']}"
        if not is_killed or rng.random() < 0.1:
            job.end(started() if is_killed else process)
            counted["finished"] += 1
            job.begin()
    job.end(started())
    report(f"killed processes without Spark: {name}, seed {SEED}", dict(counted))
    assert counted["within"] >= kills // 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneCluster, SparkDriver]]:
    values = {"": "true", ".interval": "10ms", ".multiplier": "1.01", ".quantile": "0.1", ".minTaskRuntime": "0ms"}
    settings = " ".join(f"--conf spark.speculation{name}={value}" for name, value in values.items())
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patched, StandaloneCluster(folder / "cluster") as cluster:
        patched.setenv("PYSPARK_SUBMIT_ARGS", f"{settings} pyspark-shell")
        with SparkDriver(folder / "driver", cluster.master_url) as driver:
            assert driver.ask(do="ready") == {"error": None}
            yield cluster, driver


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("name", scale(["files"], ["files", "replay", "iceberg", "verify"], sorted(JOBS)))
def test_a_killed_executor_and_speculative_tasks_change_nothing(
    name: str,
    cluster: tuple[StandaloneCluster, SparkDriver],
    tmp_path: Path,
    report: Report,
) -> None:
    rng, (workers, driver) = random.Random(SEED), cluster
    job = JOBS[name](tmp_path / "job", scale(120, 1_000, 1_000))
    counted: Counter[str] = Counter()
    seconds = 2.0
    while counted["kills"] < EXECUTOR_KILLS:
        watch = Watch(job.target, job.allowed())
        with watch.watching():
            started = time.monotonic()
            driver.tell(**job.command(workers.master_url))
            for _ in range(KILLS_PER_RUN):
                job.feed()
                if driver.has_answered(rng.uniform(0, seconds)):
                    break
                counted["kills"] += workers.kill_executor(rng)
            answer = job.answer(driver)
            seconds = min(time.monotonic() - started, 8.0)  # a stream runs until it is ended, after the last kill
        assert answer["error"] is None, f"seed {SEED}: {answer}"
        assert watch.wrong == [], f"seed {SEED}, kill {counted['kills']}"
        job.check(answer)
        counted["finished"] += 1
        job.begin()
    report(f"killed executors: {name}, seed {SEED}", dict(counted))


_JOB = """
import sys
from segmentlog.command.main import main
from segmentlog.store.maintenance import log_parts
if __name__ == "__main__":
    log_parts._NEAR_BYTES = 0
    print("begun", flush=True)
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", scale(["verify"], *[["verify", "rebuild", "diff"]] * 2))
def test_killed_jobs_without_spark_leave_nothing(name: str, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    job, script = JOBS[name](tmp_path / "job", 0), tmp_path / "job.py"
    script.write_text(_JOB)
    for _ in range(scale(2, 10, 400)):
        command = [sys.executable, str(script), *map(str, job.arguments()), "--processes", "2", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.random() * 1.5)
            process.kill()
        if job.target.exists():
            job.check({})
            job.begin()
        done = subprocess.run(
            [*command[:2], *map(str, job.arguments()), *command[-3:]], capture_output=True, check=False
        )
        job.check({"text": done.stdout.decode().removeprefix("begun")})
        job.begin()
        for _ in range(100):  # the processes of the killed job end, too
            if not (living := members(process.pid)):
                break
            time.sleep(0.05)
        assert living == []
