import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.jobs.spread import spread
from segmentlog.store import MessageStore, Outgoing, Snapshot
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.maintenance import VerifyReport, log_parts, rebuild, rebuild_queues, verification, verify
from segmentlog.store.maintenance.index_check import IndexCheck
from segmentlog.store.maintenance.log_parts import by_segment, parts_of, walk_part
from support import fixtures
from support.scale import scale
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments
from support.tasks import Tasks
from support.written_stores import tree


def whole_segments(work: Callable[[Any], Any], parts: Sequence[Any], /) -> Iterable[Any]:
    """Call no part regular, so that every segment is walked as a whole."""
    return [None] * len(parts) if work is walk_part else map(work, parts)


def small_parts(monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    for module in (verification, rebuild):
        monkeypatch.setattr(module, "parts_of", partial(parts_of, part_bytes=part_bytes))


def check(store: Path, scratch: Path) -> VerifyReport:
    report = verify(store)
    assert report == verify(store, spread=whole_segments)
    if any(store.glob("dledger-*")):  # it cannot be rebuilt
        return report
    results = [
        (rebuild_queues(store, scratch / name, spread=spread), tree(scratch / name))
        for name, spread in (("parts", map), ("whole", whole_segments))
    ]
    assert results[0] == results[1]
    return report


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_small_store(tmp_path_factory.mktemp("small") / "store")
    with MessageStore.open(path, CONFIG) as opened:
        for number in range(40):
            opened.append(Outgoing(topic="orders", queue_id=number % 3, body=bytes(700), keys=f"k{number} a"))
    return path


@pytest.mark.scaled(quick=4)
@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in fixtures.kinds() if not name.startswith("default-sizes")])
def test_reports_of_stores_of_rocketmq(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch, 8000)
    check(fixtures.unpack(name, tmp_path), tmp_path)


@pytest.mark.conformance
@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_an_index_with_entries_of_tags_is_held(release: str, tmp_path: Path) -> None:
    snapshot = Snapshot.open(fixtures.unpack(f"basic-{release}", tmp_path))
    fs, stop = LocalFileSystem(), snapshot.log.data_stop()
    index = IndexCheck(fs, snapshot.path, snapshot.log, is_live=False)
    parts = parts_of(snapshot.log, fs, stop)
    walked = [walk_part(replace(part, queues=snapshot.path, index=index.part(*part.span))) for part in parts]
    assert [each is not None and each.is_held for each in walked] == [True] * len(parts)


def test_nearly_all_segments_are_regular(small: Path) -> None:
    log, fs = CommitLog(LocalFileSystem(), [str(small / "commitlog")]), LocalFileSystem()
    parts = parts_of(log, fs, log.data_stop(), part_bytes=5000)
    assert len(parts) > 2 * len(log.segments)
    found = dict(by_segment(parts, map(walk_part, parts)))
    assert list(found) == log.segments
    regular = [each for each in found.values() if each is not None]
    assert len(regular) == len(found)
    assert sum(each.records for each in regular) == ROWS + 40
    assert [each.after for each in regular[:-1]] == [each.start for each in regular[1:]]


@pytest.mark.parametrize("part_bytes", [400, 3000, 1 << 26])
def test_a_sound_store(small: Path, part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch, part_bytes)
    report = check(small, tmp_path)
    assert report.is_sound
    assert report.records == report.entries == ROWS + 40


@pytest.mark.slow
@pytest.mark.scaled
@settings(max_examples=scale(quick=6, attack=60, soak=5000), deadline=None)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 4), part_bytes=st.sampled_from([900, 3000, 1 << 26]))
def test_damage_anywhere_is_reported_the_same(
    small: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, part_bytes: int
) -> None:
    rng, scratch = np.random.default_rng(seed), tmp_path_factory.mktemp("damaged")
    store = Path(shutil.copytree(small, scratch / "store"))
    files = sorted(path for name in ("commitlog", "consumequeue", "index") for path in (store / name).rglob("0*"))
    files = [path for path in files if path.is_file()]
    for _ in range(count):
        file = files[int(rng.integers(len(files)))]
        if rng.random() < 0.1:
            file.unlink(missing_ok=True)
        elif file.exists():
            data = file.read_bytes()
            end = len(data.rstrip(b"\0")) + 20
            size = int(rng.choice([1, 8, 40, 400]))
            damage = rng.bytes(size) if rng.random() < 0.6 else bytes(size)
            put_at(file, int(rng.integers(0, max(1, min(end, len(data) - len(damage))))), damage[: len(data)])
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch, part_bytes)
        check(store, scratch)
    shutil.rmtree(scratch)


def test_tasks_verify_and_rebuild_as_one_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_parts, "_NEAR_BYTES", 0)
    by_tasks = partial(spread, spark=Tasks())
    store = write_small_store(tmp_path / "store")
    alone = rebuild_queues(store, tmp_path / "alone")
    assert rebuild_queues(store, tmp_path / "both", spread=by_tasks) == alone
    assert tree(tmp_path / "both") == tree(tmp_path / "alone") == tree(store / "consumequeue")
    put_at(segments(store)[1], 1000, b"\xff" * 250)
    found = verify(store, spread=by_tasks)
    assert found == verify(store)
    assert not found.is_sound
