import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.store import MessageStore, Outgoing
from segmentlog.store.format.walk import walk
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.maintenance import Difference, Side, compare_windows, log_span, log_windows, logs_align, merged
from support.scale import scale
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import overwrite, segments


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_store(tmp_path_factory.mktemp("original") / "store")


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def compared(a: Path, b: Path, window_bytes: int = 1 << 20, *, both: bool = False) -> list[Difference]:
    sides = Side(str(a)), Side(str(b))
    windows = log_windows(*sides, both=both, window_bytes=window_bytes)
    return merged(each for window in windows for each in compare_windows(window))


def records(log: CommitLog) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for segment in log.segments:
        view = log.view(segment)
        walked = walk(view, segment.base, 0, view.size)
        for start, size in zip(walked.positions.tolist(), walked.sizes.tolist(), strict=True):
            found[segment.base + start] = view[start : start + size].tobytes()
    return found


def messages(found: list[Difference], letter: str) -> int:
    return sum(each.messages for each in found if each.kind == f"missing in {letter}")


def test_a_copy_is_equal(original: Path, copy: Path) -> None:
    assert compared(original, copy) == compared(original, copy, 300) == []
    assert logs_align(Side(str(original)), Side(str(copy)))


def test_a_damaged_body_is_named_with_its_place_in_both(original: Path, copy: Path) -> None:
    place = sorted(records(Side(str(copy)).open().log))[100]
    overwrite(copy, place + 90, b"?")
    (found,) = compared(original, copy)
    assert (found.kind, found.topic, found.messages, found.offset_a) == ("damaged in B", "refunds", 1, place)
    assert found.offset_a == found.offset_b
    assert found.file_a == str(segments(original)[place // CONFIG.segment_bytes])
    assert found.file_b == str(segments(copy)[place // CONFIG.segment_bytes])
    (other,) = compared(copy, original)
    assert other.kind == "damaged in A"


def test_messages_after_the_end_of_a_replica_are_a_run_of_each_queue(original: Path, copy: Path) -> None:
    with MessageStore.open(copy, CONFIG) as opened:
        for number in range(40):
            opened.append(Outgoing(topic="orders", queue_id=number % 2, body=b"new"))
    found = compared(original, copy, 500)
    assert [(each.kind, each.topic, each.queue_id, each.messages) for each in found] == [
        ("missing in A", "orders", 0, 20),
        ("missing in A", "orders", 1, 20),
    ]
    assert all(each.offset_a is None and each.file_a is None for each in found)
    assert compared(original, copy, both=True) == []
    assert messages(compared(copy, original), "B") == 40


def test_messages_before_the_start_of_one_store_are_not_compared(original: Path, copy: Path) -> None:
    segments(copy)[0].unlink()
    assert compared(original, copy) == compared(copy, original) == []
    assert log_span(Side(str(copy)).open()).start == CONFIG.segment_bytes


def test_a_missing_and_a_short_segment_lack_their_messages(original: Path, copy: Path) -> None:
    every = records(Side(str(original)).open().log)
    second = segments(copy)[1]
    lost = [place for place in every if place // CONFIG.segment_bytes == 1]
    data = second.read_bytes()
    second.unlink()
    assert messages(compared(original, copy, 700), "B") == len(lost)
    cut = lost[10] - CONFIG.segment_bytes + 50  # within the eleventh record
    second.write_bytes(data[:cut])
    for window_bytes in (200, 700, 1 << 20):
        assert messages(compared(original, copy, window_bytes), "B") == len(lost) - 10


def test_logs_of_stores_that_were_written_apart_do_not_align(original: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with MessageStore.open(other, CONFIG) as opened:
        opened.append(Outgoing(topic="orders", queue_id=0, body=b"1"))
    assert not logs_align(Side(str(original)), Side(str(other)))
    with MessageStore.open(tmp_path / "empty", CONFIG):
        pass
    assert not logs_align(Side(str(original)), Side(str(tmp_path / "empty")))


@pytest.mark.slow
@pytest.mark.scaled
@settings(max_examples=scale(quick=10, attack=60, soak=4000), deadline=None)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 12), window_bytes=st.sampled_from([150, 400, 1000, 1 << 20]))
def test_windows_find_the_same_as_a_comparison_of_all_records(
    original: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, window_bytes: int
) -> None:
    rng = np.random.default_rng(seed)
    copy = Path(shutil.copytree(original, tmp_path_factory.mktemp("damaged") / "store"))
    stop = Side(str(original)).open().log.data_stop()
    for _ in range(count):
        overwrite(copy, int(rng.integers(0, stop - 300)), rng.bytes(int(rng.choice([1, 4, 30, 300]))))
    one, two = (records(Side(str(path)).open().log) for path in (original, copy))
    wanted = {place for place in one.keys() | two.keys() if one.get(place) != two.get(place)}
    windows = log_windows(Side(str(original)), Side(str(copy)), window_bytes=window_bytes)
    found = [each for window in windows for each in compare_windows(window)]
    assert sum(each.messages for each in found) == len(wanted)
    assert {each.place for each in found} <= wanted
    lacking = {place for place in wanted if place not in two}
    assert messages(found, "B") == len(lacking) <= ROWS
    shutil.rmtree(copy.parent)
