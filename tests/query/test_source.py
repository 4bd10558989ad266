import pickle
from pathlib import Path

import pytest

from segmentlog.query.source import OpenedSource, StoreSource
from segmentlog.store import NotAStoreError, QueueKey
from support.store_builder import StoreBuilder, messages


def test_a_source_opens_the_store_as_it_is(path: Path) -> None:
    source = pickle.loads(pickle.dumps(StoreSource(path=str(path), broker_name="b")))
    reader = source.open()
    assert (reader.broker_name, reader.topics()) == ("b", ["%RETRY%etl", "orders", "payments"])
    with pytest.raises(NotAStoreError):
        StoreSource(path=str(path / "config")).open()


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, {"XDG_CACHE_HOME": "/c"}, "/c/segmentlog/queues"),
        (None, {"HOME": "/h"}, "/h/.cache/segmentlog/queues"),
        (None, {"HOME": "nowhere"}, None),
        ("none", {"HOME": "/h"}, None),
        ("~/q", {"HOME": "/h"}, "/h/q"),
    ],
)
def test_derived_queues_are_kept_in_the_cache_of_the_user(
    path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, environment: dict[str, str], expected: str | None
) -> None:
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert StoreSource.of(path, queue_cache=asked).open().sources.cache == expected


def test_an_opened_source_hands_its_reader_over_once_and_looks_again(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    builder = StoreBuilder(tmp_path / "s")
    builder.append(messages(4, queues=1))
    source = StoreSource(path=path)
    reader = source.open()
    opened = OpenedSource(source, reader)
    builder.append(messages(3, first=4, queues=1))
    first, second = opened.open(), opened.open()
    assert [len(each.bounds(QueueKey("Orders", 0))) for each in (first, second)] == [7, 7]
    assert first.location is reader.location is not second.location
    assert pickle.loads(pickle.dumps(opened)).path == path


def test_an_idle_snapshot_holds_no_map_and_asks_for_the_named_queues_again(tmp_path: Path) -> None:
    path, key = str(tmp_path / "s"), QueueKey("Orders", 0)
    builder = StoreBuilder(tmp_path / "s")
    builder.append(messages(4, queues=1))
    snapshot = StoreSource(path=path).open()
    assert snapshot.bounds(key).max_offset == 4
    assert snapshot.message_at(0) is not None
    assert path in Path("/proc/self/maps").read_text()
    opened = OpenedSource(StoreSource(path=path), snapshot)
    assert path not in Path("/proc/self/maps").read_text()
    builder.append(messages(3, first=4, queues=1))
    assert opened.open([key]).bounds(key).max_offset == 7
