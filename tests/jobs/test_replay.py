import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from segmentlog.jobs import replay
from segmentlog.jobs.replay import ReplaySettings
from segmentlog.jobs.report import Report
from segmentlog.query.source import StoreSource
from segmentlog.store import ChangedReplayError, ConfigError, FormatError, MessageStore, Outgoing
from segmentlog.store.sink import last_commit
from support.jobs_without_spark import killed_replay, replay_without_spark
from support.processes import fork_server
from support.replays import MESSAGES, QUEUES, build_source, check_same, replayed, rows
from support.written_stores import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_source(tmp_path_factory.mktemp("model") / "source")


@pytest.fixture
def path(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "source"))


class Replayed(NamedTuple):
    path: Path
    expected: list[dict[str, Any]]
    found: list[dict[str, Any]]
    stopped: Report
    report: Report


@pytest.fixture(scope="module")
def once(spark: "SparkSession", model: Path, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    path = Path(shutil.copytree(model, tmp_path_factory.mktemp("replay") / "source"))
    expected, stop = rows(path), threading.Event()
    stop.set()
    stopped = replayed(spark, path, stop=stop)
    with MessageStore.open(path, SMALL) as store:
        store.append(Outgoing(topic="orders", queue_id=1, body=b"later"))
    report = replayed(spark, path)
    return Replayed(path, expected, rows(path.parent / "target"), stopped, report)


@pytest.mark.spark
def test_replayed_rows_are_equal_and_in_order_although_the_source_grows(once: Replayed) -> None:
    assert (once.stopped.numbers["messages"], once.stopped.has_findings) == (0, True)
    assert (once.report.numbers["messages"], once.report.has_findings) == (QUEUES * MESSAGES, False)
    assert int(str(once.report.numbers["parts"])) > 1
    assert once.report.table.to_pylist() == [
        {"topic": topic, "queueId": each, "messages": MESSAGES, "firstOffset": 0, "lastOffset": MESSAGES - 1}
        for topic, each in (("orders", 1), ("orders", 2), ("payments", 0))
    ]
    check_same(once.found, once.expected)


@pytest.mark.spark
def test_a_finished_job_is_replayed_again_if_asked_and_other_state_files_are_refused(
    spark: "SparkSession", once: Replayed
) -> None:
    path, target = once.path, once.path.parent / "target"
    before = len(rows(target))
    again = replayed(spark, path)
    assert (again.numbers["messages"], again.has_findings) == (0, False)
    with pytest.raises(ConfigError, match=r"is of another job: where was None, and is 'flag > 1'"):
        replayed(spark, path, where="flag > 1")
    with pytest.raises(ConfigError, match=r"has parts of this job, and --state .* does not exist"):
        replayed(spark, path, state="other")
    (path.parent / "damaged").write_text("{")
    with pytest.raises(FormatError, match="is not the state file of a replay"):
        replayed(spark, path, state="damaged")
    assert len(rows(target)) == before
    assert replayed(spark, path, state="other", again=True, part_bytes=1 << 20).numbers["messages"] == before + 1
    assert len(rows(target)) == 2 * before + 1


@pytest.mark.spark
def test_filters_topics_and_keys(spark: "SparkSession", path: Path) -> None:
    odd = {" a": "t-a", "a  b ": "t-a t-b", "  ": "  ", None: None}
    with MessageStore.open(path, SMALL) as store:
        for keys in odd:
            store.append(Outgoing(topic="orders", queue_id=1, body=b"1/", tags="paid", keys=keys, flag=1))
    report = replayed(
        spark,
        path,
        where="flag < 10 AND body LIKE '1/%'",
        read={"tags": "paid"},
        map_topic={"orders": "test"},
        key_prefix="t-",
        part_bytes=1 << 20,
    )
    found = rows(path.parent / "target", "test")
    assert report.numbers["messages"] == len(found) == 5 + len(odd)
    assert [row["keys"] for row in found] == [*(f"t-k{serial} t-all" for serial in (1, 3, 5, 7, 9)), *odd.values()]


class Pauses(threading.Event):
    """Stands for ``stop``: notes how long the job would wait, and lets it go on at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


@pytest.fixture
def spark_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_frame", "_append"):
        monkeypatch.setattr(replay, name, getattr(replay, name))  # so that they are put back


@pytest.mark.usefixtures("spark_is_replaced")
def test_a_last_part_that_a_kill_left_hidden_is_shown_by_the_next_run(path: Path) -> None:
    arguments = (str(path), "target", "state", 4000)
    replay_without_spark(str(path), "model", "model.state", 4000)
    last = last_commit(path.parent / "model")
    assert last is not None
    killed = fork_server().Process(target=killed_replay, args=arguments, kwargs={"parts": last.version + 1})
    killed.start()
    killed.join()
    assert killed.exitcode == 9
    target, expected = path.parent / "target", rows(path)
    assert last_commit(target) is not None
    assert len(rows(target)) == len(expected) - last.rows  # it is in the ledger, and hidden
    for _ in range(2):
        replay_without_spark(*arguments)
        check_same(rows(target), expected)


def begun_between(monkeypatch: pytest.MonkeyPatch, second: Callable[[], None], path: Path) -> None:
    """Run a job; ``second`` runs when the job has made its plan, and has not written it."""
    cut = replay._cut

    def interrupted(*arguments: Any) -> Any:
        found = cut(*arguments)
        monkeypatch.setattr(replay, "_cut", cut)
        second()
        return found

    monkeypatch.setattr(replay, "_cut", interrupted)
    replay_without_spark(str(path), "target", "state", 1 << 20)


@pytest.mark.usefixtures("spark_is_replaced")
def test_a_replay_that_begins_while_another_one_plans_with_its_state_file_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second() -> None:
        with pytest.raises(ConfigError, match="state is used by another process"):
            replay_without_spark(str(path), "target", "state", 1 << 20)

    begun_between(monkeypatch, second, path)
    check_same(rows(path.parent / "target"), rows(path))


@pytest.mark.usefixtures("spark_is_replaced")
def test_parts_that_a_replay_with_another_state_file_appended_are_not_taken_for_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second() -> None:
        with MessageStore.open(path, SMALL) as store:
            store.append(Outgoing(topic="orders", queue_id=1, body=b"later"))
        replay_without_spark(str(path), "target", "other", 1 << 20)

    with pytest.raises(ChangedReplayError, match=r"has 361 messages in .*, and its state file plans 360"):
        begun_between(monkeypatch, second, path)
    check_same(rows(path.parent / "target"), rows(path))


def test_a_pace_follows_store_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = [1_700_000_000_000]
    with MessageStore.open(tmp_path / "source", SMALL, clock=lambda: now_ms[0]) as store:
        for _ in range(4):
            for topic, queue_id in (("orders", 1), ("payments", 0)):
                store.append(Outgoing(topic=topic, queue_id=queue_id, body=b"1"))
            now_ms[0] += 500
    for name in ("_frame", "_append", "last_commit"):
        monkeypatch.setattr(replay, name, lambda *_: None)
    began, pauses = time.monotonic(), Pauses()
    report = replayed(None, tmp_path / "source", speed=0.5, stop=pauses)
    assert int(str(report.numbers["parts"])) == len(pauses.seconds) >= 3
    # 1.5 s between the first message and the last, at half their pace; the parts took a moment themselves.
    assert 3.0 - (time.monotonic() - began) <= pauses.seconds[-1] <= 3.01


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("source", "the target of the replay is its source"),
        ("link", "the target of the replay is its source"),
        ("target", "no messages found between start and end"),
    ],
)
def test_bad_input_is_refused_before_spark_is_asked(path: Path, target: str, problem: str) -> None:
    (path.parent / "link").symlink_to(path)
    with pytest.raises(ConfigError, match=problem):
        replay.run(
            None,  # type: ignore[arg-type] # it is not asked
            StoreSource.of(str(path)),
            [],
            str(path.parent / target),
            str(path.parent / "state"),
            settings=ReplaySettings(),
            asked={},
            stop=threading.Event(),
        )
    assert sorted(each.name for each in path.parent.iterdir()) == ["link", "source"]
