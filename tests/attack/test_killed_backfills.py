"""The driver of a backfill is killed with SIGKILL: its successor goes on, and readers see whole hours all the time.

::

    driver 0 ── hour 0 ── hour 1 ── hou ✗        JVM, Python and workers at once, or the workers later by themselves
    driver 1 (waits) ──────────────────── hour 2 ── hour 3 ✗
    reader   ── hours of Parquet files ── the same ── …          each is missing, or as in the store

Without Spark the same with many more kills: a process in place of a driver, which writes the files of a part itself.
"""

import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.backfills import backfill_without_spark, build_hours, read_hours, rows_by_hour
from support.scale import scale
from support.spark_driver import TESTS, SparkDriver
from support.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.scaled, pytest.mark.attack, pytest.mark.timeout(scale(600, 1800, 36_000))]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261126"))
KILLS = scale(0, 6, 400)
PROCESS_KILLS = scale(15, 100, 10_000)
HOURS = 24


class Watch:
    """Reads of a target while it is written: each hour that they see is compared with the store's."""

    def __init__(self, target: Path, expected: dict[int, list[tuple[str, int, int, bytes]]]) -> None:
        self._target, self._expected = target, expected
        self.reads = 0
        self.wrong: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        ended = threading.Event()

        def read() -> None:
            while not ended.wait(0.02):
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
        self.wrong += [f"hour {hour}" for hour, rows in found.items() if rows != self._expected.get(hour)]
        return len(found)


def test_killed_processes_lose_and_repeat_nothing(
    tmp_path: Path, report: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    rng = random.Random(SEED)
    store = build_hours(tmp_path / "store", HOURS, 60)
    expected = rows_by_hour(store)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.backfills", "pyarrow.parquet", "segmentlog.jobs.backfill"])
    counted: Counter[str] = Counter()
    seconds = 1.0
    while counted["kills"] < PROCESS_KILLS:
        target = tmp_path / f"target{counted['finished']}"
        process = context.Process(target=backfill_without_spark, args=(str(store), str(target), HOURS))
        watch = Watch(target, expected)
        process.start()
        process.join(rng.uniform(0, seconds / 4))
        if process.is_alive():
            process.kill()
            counted["kills"] += 1
        process.join()
        staged = target.parent / f".{target.name}.backfill" / "staging"
        counted["staging"] += staged.exists() and any(staged.iterdir())
        whole = watch.read()
        assert watch.wrong == [], f"seed {SEED}, kill {counted['kills']}"
        if whole == len(expected) or rng.random() < 0.1:
            started = time.monotonic()
            ended = context.Process(target=backfill_without_spark, args=(str(store), str(target), HOURS))
            ended.start()
            ended.join()
            assert ended.exitcode == 0
            if whole < len(expected) / 4:
                seconds = time.monotonic() - started
            assert read_hours(target) == expected
            assert not staged.exists() or not any(staged.iterdir())
            counted["finished"] += 1
    report(
        f"killed backfills without Spark, seed {SEED}",
        f"{counted['kills']} kills, {counted['staging']} while files were staged; {counted['finished']} targets",
    )
    assert counted["staging"] >= PROCESS_KILLS // 4


@pytest.mark.spark
@pytest.mark.scaled(quick=0)  # a driver takes 15 s of CPU: `test_killed_drivers` has some in a quick run
def test_killed_backfills_lose_and_repeat_nothing(tmp_path: Path, report: Callable[[str, object], None]) -> None:
    rng = random.Random(SEED)
    store = build_hours(tmp_path / "store", HOURS, 120)
    expected = rows_by_hour(store)
    counted: Counter[str] = Counter()
    orphaned: list[SparkDriver] = []
    with ExitStack() as drivers:
        following = drivers.enter_context(SparkDriver(tmp_path / "driver0"))
        for number in range(KILLS):
            target = tmp_path / f"target{counted['finished']}"
            by = ["topic", "queueId", "tags"][: counted["finished"] % 3 + 1]
            driver = following
            assert driver.ask(do="ready") == {"error": None}
            watch = Watch(target, expected)
            with watch.watching():
                driver.tell(do="backfill", store=str(store), target=str(target), hours=HOURS, by=by)
                # It starts while this one runs.
                following = drivers.enter_context(SparkDriver(tmp_path / f"driver{number + 1}"))
                time.sleep(rng.uniform(0.5, 9))
                if number % 3:
                    counted["killed"] += driver.kill()
                else:
                    counted["orphans"] += driver.kill_driver()
                    orphaned.append(driver)
            counted["reads"] += watch.reads
            assert watch.wrong == [], f"seed {SEED}, kill {number}"
            counted["within"] += (finished := watch.read()) < len(expected)
            counted["hours"] += finished
            if finished == len(expected) or number == KILLS - 1:
                asked = {"store": str(store), "target": str(target), "hours": HOURS, "by": by}
                assert following.ask(do="backfill", **asked) == {"error": None}
                assert read_hours(target) == expected, f"seed {SEED}, kill {number}"
                assert list((target.parent / f".{target.name}.backfill" / "staging").glob("*")) == []
                counted["finished"] += 1
        for driver in orphaned:
            driver.wait_gone(300)
    report(
        f"killed backfills, seed {SEED}",
        f"{KILLS} kills, {counted['within']} within a backfill; {counted['killed']} processes were killed at once, "
        f"{counted['orphans']} found out by themselves; {counted['finished']} targets, {counted['reads']} reads",
    )
    assert counted["within"] >= KILLS // 2
    assert counted["reads"] >= 5 * KILLS


@pytest.mark.spark
@pytest.mark.cluster
def test_speculative_tasks_on_a_cluster_write_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speculation = {"speculation": "true"} | {
        f"speculation.{name}": value
        for name, value in {
            "interval": "10ms",
            "multiplier": "1.01",
            "quantile": "0.1",
            "minTaskRuntime": "0ms",
        }.items()
    }
    settings = " ".join(f"--conf spark.{name}={value}" for name, value in speculation.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{settings} pyspark-shell")
    store = build_hours(tmp_path / "store", 4, scale(200, 2_000, 2_000))
    expected, target = rows_by_hour(store), tmp_path / "target"
    watch = Watch(target, expected)
    with (
        StandaloneCluster(tmp_path / "cluster") as cluster,
        SparkDriver(tmp_path / "driver", cluster.master_url) as driver,
        watch.watching(),
    ):
        asked = {"store": str(store), "target": str(target), "hours": 4, "by": ["topic"]}
        assert driver.ask(do="backfill", **asked) == {"error": None}
    assert watch.wrong == []
    assert read_hours(target) == expected
