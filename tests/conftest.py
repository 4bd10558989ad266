"""Fixtures for all tests."""

import atexit
import gc
import os
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.s3_servers import S3Server

# Spark hands timestamps to Python in the zone of the process. Tests state instants in UTC, on every machine.
os.environ["TZ"] = "UTC"
time.tzset()

pytest.register_assert_rewrite("support")

from support import device  # noqa: E402 - its assertions are rewritten from here on
from support.scale import LONGEST, SCALE, SPREAD_MARKS, Scale, runs, scale, thinned  # noqa: E402 - as above
from support.spark_session import set_driver_options  # noqa: E402 - as above

set_driver_options()

# Hypothesis would fail a test that takes 200 ms once: that is the machine's doing, and no test of ours asserts a time.
# CI runs the same examples each time, so that a change is judged by what it changed; other runs explore.
settings.register_profile(
    "segmentlog",
    deadline=None,
    max_examples=scale(10, 60, 2_000, check=5),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="SEGMENTLOG_DERANDOMIZE" in os.environ,
)
settings.load_profile("segmentlog")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave the processor to the processes with a JVM: Spark gives a Python process 10 s to start, by a constant."""
    config.add_cleanup(gc.unfreeze)  # the first one added is called last: after the garbage collections of pytest
    if not hasattr(config, "workerinput"):
        return
    from support.spread import WITH_JVM  # noqa: PLC0415 - a run in one process needs no xdist

    atexit.register(os._exit, 0)  # called last: to free every object takes longer than to collect the tests
    if config.workerinput["workerid"] not in WITH_JVM:
        os.nice(5)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep derived queues out of the user's home; RocketMQ's jars stay where they are."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    os.environ.setdefault("SEGMENTLOG_ORACLE_CACHE", os.path.join(caches, "segmentlog-oracle"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """Say what was counted: at the end of the run, and in the XML report."""

    def say(name: str, counted: object) -> None:
        record_property(name, str(counted))

    return say


@pytest.fixture
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send 25 heartbeats in place of one: a replica has followed only when it gets one, and most tests wait for it."""
    monkeypatch.setattr("segmentlog.store.ha.master.HEARTBEAT_S", 0.2)
    monkeypatch.setattr("segmentlog.store.ha.server._CHECK_S", 0.1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not belong to a run of this scale, and mark tests of Hypothesis as scaled."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.scaled)
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[pytest.Item] = set()
    for each in cases.values():
        is_spread = any(each[0].get_closest_marker(kind) for kind in SPREAD_MARKS)
        sized = [
            item
            for number, item in enumerate(each)
            if runs(item.get_closest_marker("scaled"), number, len(each), is_spread=is_spread)
        ]
        chosen.update(thinned(sized))
    if SCALE is Scale.CHECK:
        chosen = {item for item in chosen if item.get_closest_marker("slow") is None}
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Start a JVM in two processes of a run alone."""
    from support.spread import SparkApart  # noqa: PLC0415 - a run in one process needs no xdist

    return SparkApart(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: what is made stays, and to look at it again and again takes a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take thousands of collected tests out of each garbage collection of the run: tests ask for hundreds.

    They return at the end, so that libraries that count their objects find none left.
    """
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Decide, before its fixtures are made, whether a test waits for the device."""
    device.prepare(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the attacks counted, also where they ran in other processes."""
    ended = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    lines = [f"{name}: {counted}" for test in ended for name, counted in test.user_properties]
    if lines:
        terminalreporter.section("what the attacks counted")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Return the one Spark session of the run: two cores, Spark's own defaults where a user would have them too."""
    from support.spark_session import local_session  # noqa: PLC0415 - tests without Spark need no PySpark

    session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def moto() -> Iterator["S3Server"]:
    """Return the one server of S3 of the run."""
    from support.s3_servers import moto_server  # noqa: PLC0415 - tests without objects need no server

    with moto_server() as server:
        yield server
