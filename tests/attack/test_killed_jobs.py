"""Jobs are killed with SIGKILL: their successors go on, and readers see whole hours all the time.

::

    driver 0 ── hour 0 ── hour 1 ── hou ✗        JVM, Python and workers at once, or the workers later by themselves,
    driver 1 (waits) ──────────────────── hour 2 ── hour 3 ✗       or the workers alone
    reader   ── hours of Parquet files ── the same ── …          each is missing, or as in the store

On a cluster an executor is killed, with speculation on. Without Spark the same with many more kills: a process in place
of a driver, which writes the files of a part itself.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from support.backfills import Row, read_hours
from support.killed_jobs import JOBS, KilledJob
from support.processes import fork_server, members
from support.scale import Report, scale
from support.spark_driver import SparkDriver
from support.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.scaled, pytest.mark.attack, pytest.mark.timeout(scale(600, 1800, 36_000))]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261126"))
KILLS = {"files": scale(1, 4, 400), "replay": scale(1, 4, 100), "iceberg": scale(1, 2, 200)} | scale(
    {}, {}, {"delta": 200, "catch-up": 40, "follow": 40, "dead letters": 40}
)
"""Of the drivers of jobs. The jobs that only ``soak`` has here are killed without Spark, and `test_target` kills the
writers of their tables."""
PROCESS_KILLS = {"files": scale(5, 40, 10_000), "follow": scale(5, 15, 1_000)} | scale(
    {}, *(dict.fromkeys(["catch-up", "dead letters", "replay"], kills) for kills in (15, 1_000))
)
EXECUTOR_KILLS = scale(1, 1, 40)
KILLS_PER_RUN = scale(1, 1, 3)
"""A task that fails for the fourth time ends its job."""
LOCAL = "local[2]"
HOW = ("driver", "all", "workers", "workers", "workers")
"""Targets of the kills, in turn: more often workers alone, since a JVM takes long to start."""


class Watch:
    """Reads of a target while it is written: each hour that they see is compared with those that are allowed."""

    def __init__(self, target: Path, allowed: Mapping[int, Sequence[list[Row]]]) -> None:
        self._target, self._allowed = target, allowed
        self.reads = 0
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

    def read(self) -> int:
        """Look once; return the number of hours."""
        try:
            found = read_hours(self._target)
        except Exception as error:  # noqa: BLE001 - a file that is half written is what this looks for
            self.wrong.append(str(error))
            return 0
        self.reads += 1
        self.wrong += [f"hour {hour}" for hour, rows in found.items() if rows not in self._allowed.get(hour, ())]
        return len(found)


@pytest.mark.parametrize("name", PROCESS_KILLS)
def test_killed_processes_lose_and_repeat_nothing(name: str, tmp_path: Path, report: Report) -> None:
    rng, kills = random.Random(SEED), PROCESS_KILLS[name]
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


class Drivers:
    """Drivers one after the other: the next one starts while the present one works."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack, self._count = folder, stack, 0
        self._next: SparkDriver | None = None
        self._present: SparkDriver | None = None
        self.orphaned: list[SparkDriver] = []

    @property
    def present(self) -> SparkDriver:
        """Return the present driver, which waits for a command."""
        if self._present is None:
            self.start_next()
            self._present, self._next = self._next, None
            assert self._present is not None
            assert self._present.ask(do="ready") == {"error": None}
        return self._present

    def start_next(self) -> None:
        if self._next is None:
            self._next = self._stack.enter_context(SparkDriver(self._folder / f"driver{self._count}"))
            self._count += 1

    def kill(self, how: str, counted: Counter[str]) -> None:
        """Kill the present driver: all of it, without its workers, or the workers alone, which fails its command."""
        driver = self.present
        if how == "driver":
            counted["orphans"] += driver.kill_driver()
            self.orphaned.append(driver)
        elif how == "all":
            counted["killed"] += driver.kill()
        else:
            counted["workers"] += driver.kill_workers()
            if driver.has_answered(10):
                counted["failed"] += driver.answer()["error"] is not None
                return  # its JVM and its session are whole
            counted["killed"] += driver.kill()
        self._present = None


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with ExitStack() as stack:
        yield Drivers(tmp_path_factory.mktemp("drivers"), stack)


def wait_to_kill(driver: SparkDriver, job: KilledJob, rng: random.Random) -> None:
    """Wait for some progress of the job, and a moment; or for its end."""
    changes, sign, until = rng.randrange(5), job.sign(), time.monotonic() + 120
    while changes and not driver.has_answered(0.02):
        job.feed()
        if (now := job.sign()) != sign:
            sign, changes = now, changes - 1
        assert time.monotonic() < until, "the job does not get on"
    driver.has_answered(rng.uniform(0, 0.6))


@pytest.mark.spark
@pytest.mark.scaled(quick=0)  # a driver takes 15 s of CPU
@pytest.mark.parametrize("name", KILLS)
def test_killed_drivers_lose_and_repeat_nothing(name: str, drivers: Drivers, tmp_path: Path, report: Report) -> None:
    rng = random.Random(SEED)
    job = JOBS[name](tmp_path / "job", 120)
    counted: Counter[str] = Counter()
    while counted["kills"] < KILLS[name]:
        driver, before = drivers.present, job.sign()
        watch = Watch(job.target, job.allowed())
        with watch.watching():
            driver.tell(**job.command(LOCAL))
            if HOW[counted["kills"] % len(HOW)] != "workers":
                drivers.start_next()
            wait_to_kill(driver, job, rng)
            if finished := driver.has_answered():
                answer = driver.answer()
                assert answer["error"] is None, f"seed {SEED}: {answer}"
                job.check(answer)
            else:
                drivers.kill(HOW[counted["kills"] % len(HOW)], counted)
                counted["kills"] += 1
                counted["within"] += job.sign() != before
        counted["reads"] += watch.reads
        assert watch.wrong == [], f"seed {SEED}, kill {counted['kills']}"
        if not finished and (counted["kills"] == KILLS[name] or rng.random() < 0.2):
            job.finish(drivers.present, LOCAL)
            finished = True
        if finished:
            counted["finished"] += 1
            job.begin()
    for driver in drivers.orphaned:
        driver.wait_gone(60)
    report(f"killed jobs: {name}, seed {SEED}", dict(counted))
    assert counted["within"] >= KILLS[name] // 4
    assert counted["reads"] >= (5 * KILLS[name] if job.allowed() else 0)


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
