import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import segmentlog
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.read import plan_partitions
from segmentlog.query.position import AtTime
from segmentlog.query.times import Instant
from segmentlog.store import CorruptRecordError, OffsetOutOfRangeError, ScanSpec, Snapshot, UnknownQueueError
from segmentlog.store.entries import walk_span
from support.scale import scale
from support.store_builder import Geometry, Queues, StoreBuilder, messages
from support.tampering import overwrite, segments

SIZE = 4096
EARLY, LATE = AtTime(Instant(100)), AtTime(Instant(200))
SPEC = ScanSpec(columns=("topic", "queueId", "queueOffset", "body"))


def build(path: Path, batches: list[tuple[str, int, int]], *, start_ms: int = 1_000_000_000_000) -> tuple[int, int]:
    """Write batches of (topic, messages, ms after the batch before) without queues; return first and last time."""
    time = start_ms
    with StoreBuilder(path, geometry=Geometry(segment_bytes=SIZE), queues=Queues.MISSING) as builder:
        for topic, count, after in batches:
            time += after
            builder.append(messages(count, topic=topic, queues=2, body_bytes=150, store_time_start=time, step_ms=1))
            time += count - 1
    return start_ms, time


@pytest.fixture(autouse=True)
def _small_logs_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_span, "WALKED_WHOLE_BYTES", 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Segments of about 16 messages: Rare only at the beginning, Orders throughout."""
    build(tmp_path / "s", [("Rare", 4, 0), *[("Orders", 40, 1000)] * 5])
    return tmp_path / "s"


def python(path: Path, topic: str, start: int | None, end: int | None) -> list[tuple[object, ...]]:
    times = [None if each is None else segmentlog.Time(ms=each) for each in (start, end)]
    found = segmentlog.open(path, queue_cache="none").scan(topic, start=times[0], end=times[1])
    return sorted(tuple(row.values()) for row in found.to_arrow().select(list(SPEC.columns)).to_pylist())


def spark(path: Path, topic: str, start: int | None, end: int | None, **more: str) -> list[tuple[object, ...]]:
    options = {"path": str(path), "subscribe": topic, "queueCache": "none", **more}
    options |= {} if start is None else {"startingTimestamp": str(start)}
    options |= {} if end is None else {"endingTimestamp": str(end)}
    found = []
    for partition in plan_partitions(parse_read_options(options), SPEC):
        for batch in partition.source.open().scan(partition.task, partition.spec):
            found += [tuple(row.values()) for row in batch.select(list(SPEC.columns)).to_pylist()]
    return sorted(found)


def whole(monkeypatch: pytest.MonkeyPatch, read: Callable[[], list[tuple[object, ...]]]) -> object:
    """Return the rows, or the kind of the error, of a reader that leaves no segment out."""
    with monkeypatch.context() as patched:
        patched.setattr(Snapshot, "within", lambda snapshot, _: snapshot)
        return outcome(read)


def outcome(read: Callable[[], list[tuple[object, ...]]]) -> object:
    try:
        return read()
    except (UnknownQueueError, OffsetOutOfRangeError, CorruptRecordError) as error:
        return type(error), error.problem


@pytest.mark.parametrize("read", [python, spark])
def test_segments_outside_of_the_times_are_not_read(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[..., list[tuple[object, ...]]]
) -> None:
    files = segments(store)
    firsts = [Snapshot.open(store).log.store_time_at(int(each.name)) or 0 for each in files]
    start, end = firsts[4] + 1, firsts[7]
    more = {"startingOffsetsByTimestampStrategy": "latest"} if read is spark else {}
    expected = whole(monkeypatch, lambda: read(store, "Orders", start, end, **more))
    for number, each in enumerate(files):
        if not 4 <= number < 7:  # all but the first record of a segment is gone
            content = np.fromfile(each, np.uint8)
            content[int.from_bytes(content[:4].tobytes(), "big") :] = 0
            content.tofile(each)
    assert read(store, "Orders", start, end, **more) == expected
    assert expected


@pytest.mark.parametrize("strategy", ["error", "latest", "earliest"])
def test_a_topic_without_messages_in_the_part_is_found(store: Path, strategy: str) -> None:
    start = (Snapshot.open(store).log.store_time_at(int(segments(store)[4].name)) or 0) + 1
    assert python(store, "Rare", start, None) == []
    asked = {"startingOffsetsByTimestampStrategy": strategy}
    if strategy == "error":
        with pytest.raises(OffsetOutOfRangeError, match="Rare/0 has no message stored at or after"):
            spark(store, "Rare", start, start + 500, **asked)
    else:
        assert spark(store, "Rare", start, start + 500, **asked) == []
    with pytest.raises(UnknownQueueError, match=r"there is no topic `Rarely`.*`Orders`, `Rare`"):
        python(store, "Rarely", start, None)


def test_a_scan_with_times_still_sees_lost_messages(store: Path) -> None:
    files = segments(store)
    start = (Snapshot.open(store).log.store_time_at(int(files[4].name)) or 0) + 1
    scan = segmentlog.open(store, queue_cache="none").scan("Orders", start=segmentlog.Time(ms=start))
    for each in files[:6]:
        each.unlink()
    with pytest.raises(segmentlog.DataLossError, match="are gone"):
        scan.to_arrow()


def test_a_damaged_queue_offset_is_judged_by_the_whole_log(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = segments(store)
    log = Snapshot.open(store).log
    start = (log.store_time_at(int(files[4].name)) or 0) + 1
    records = next(log.walk(int(files[5].name), log.stop)).records
    overwrite(store, int(files[5].name) + int(records.positions[3]) + 20, (1 << 40).to_bytes(8, "big"))
    found = outcome(lambda: python(store, "Orders", start, None))
    assert isinstance(found, tuple)
    assert found[0] is CorruptRecordError  # its neighbours tell which queue offset its header should state
    assert found == whole(monkeypatch, lambda: python(store, "Orders", start, None))


@given(data=st.data())
@settings(
    max_examples=scale(12, 120, 3_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_parts_have_the_rows_of_whole_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    path = tmp_path / "random"
    shutil.rmtree(path, ignore_errors=True)
    topic, count, after = st.sampled_from(["A", "B", "C"]), st.integers(1, 40), st.integers(0, 100)
    first, last = build(path, data.draw(st.lists(st.tuples(topic, count, after), min_size=1, max_size=12)))
    time = st.none() | st.integers(first - 10, last + 10)
    start, end = data.draw(st.tuples(time, time).filter(lambda each: None in each or each[0] <= each[1]))
    asked = data.draw(topic)
    strategy = data.draw(st.sampled_from(["error", "latest", "earliest"]))
    boundary = data.draw(st.sampled_from(["lower", "upper"]))
    more = {"startingOffsetsByTimestampStrategy": strategy, "timestampBoundary": boundary} if start is not None else {}
    for read in (lambda: python(path, asked, start, end), lambda: spark(path, asked, start, end, **more)):
        assert outcome(read) == whole(monkeypatch, read)
