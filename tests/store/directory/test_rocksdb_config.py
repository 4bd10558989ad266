import json
import logging
import sys
from pathlib import Path

import pytest

from segmentlog.store import MissingExtraError, QueueKey
from segmentlog.store.directory.group_offsets import group_offsets
from segmentlog.store.directory.topics import topic_queues
from segmentlog.store.errors import FormatError, UnsafeFileError
from segmentlog.store.files.fs import LocalFileSystem

rocksdict = pytest.importorskip("rocksdict")

FS = LocalFileSystem()

Tables = dict[str, dict[str, object]]


def database(directory: Path, tables: Tables) -> None:
    directory.mkdir(parents=True)
    made = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))
    for family, items in tables.items():
        held = made if family == "default" else made.create_column_family(family, rocksdict.Options(raw_mode=True))
        for key, value in items.items():
            held[key.encode()] = value if isinstance(value, bytes) else json.dumps(value).encode()
        held.flush()
    made.close()


def version(counter: int) -> dict[str, object]:
    return {"kvDataVersionKey": {"counter": counter, "stateVersion": 0, "timestamp": 1}}


def topic(count: int) -> dict[str, object]:
    return {"readQueueNums": count, "writeQueueNums": count}


def write_json(store: Path, counter: int, name: str, field: str, table: dict[str, object]) -> None:
    (store / "config").mkdir(exist_ok=True)
    document = {"dataVersion": {"counter": counter}, field: table}
    (store / "config" / name).write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(("counter", "found"), [(3, {"A": 4, "B": 2}), (4, {"A": 8, "B": 2, "C": 1})])
def test_a_document_counts_if_its_counter_is_higher(counter: int, found: dict[str, int], tmp_path: Path) -> None:
    database(tmp_path / "config" / "topics", {"default": {"A": topic(4), "B": topic(2)}, "kvDataVersion": version(3)})
    write_json(tmp_path, counter, "topics.json", "topicConfigTable", {"A": topic(8), "C": topic(1)})
    assert topic_queues(tmp_path) == found


@pytest.mark.parametrize(("counter", "found"), [(6, {"A": 4}), (5, {"B": 2}), (4, {"B": 2})])
def test_of_two_databases_the_one_with_the_higher_counter_counts(
    counter: int, found: dict[str, int], tmp_path: Path
) -> None:
    database(tmp_path / "config" / "topics", {"default": {"A": topic(4)}, "kvDataVersion": version(counter)})
    database(tmp_path / "config" / "metadata", {"topic": {"B": topic(2)}, "topicVersion": version(5)})
    assert topic_queues(tmp_path) == found


def test_offsets_of_groups_are_read_also_with_keys_without_quotes(tmp_path: Path) -> None:
    stored: Tables = {"default": {"A@g": {"offsetTable": {"0": 5, "1": 7}}, "B@g": b'{"offsetTable":{0:9}}'}}
    database(tmp_path / "config" / "consumerOffsets", stored)
    assert group_offsets(tmp_path, "g") == {QueueKey("A", 0): 5, QueueKey("A", 1): 7, QueueKey("B", 0): 9}
    assert group_offsets(tmp_path, "other") == {}


def test_a_damaged_value_is_an_error_with_the_path(tmp_path: Path) -> None:
    database(tmp_path / "config" / "consumerOffsets", {"default": {"A@g": b"{"}})
    with pytest.raises(FormatError) as error:
        group_offsets(tmp_path, "g")
    assert error.value.path == str(tmp_path / "config" / "consumerOffsets")


def test_a_damaged_database_is_an_error_with_the_path(tmp_path: Path) -> None:
    directory = tmp_path / "config" / "consumerOffsets"
    database(directory, {"default": {"A@g": {"offsetTable": {"0": 5}}}})
    for table in directory.glob("*.sst"):
        table.unlink()
    with pytest.raises(FormatError) as error:
        group_offsets(tmp_path, "g")
    assert error.value.path == str(directory)


def test_a_link_to_a_database_is_refused(tmp_path: Path) -> None:
    database(tmp_path / "elsewhere", {"default": {}})
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffsets").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError):
        group_offsets(tmp_path, "g")


def test_without_the_extra_offsets_are_an_error_and_topics_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("topics", "consumerOffsets"):
        database(tmp_path / "config" / name, {"default": {}})
    write_json(tmp_path, 1, "topics.json", "topicConfigTable", {"A": topic(8)})
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(MissingExtraError, match=r"segmentlog\[rocksdb\]"):
        group_offsets(tmp_path, "g")
    with caplog.at_level(logging.WARNING):
        assert topic_queues(tmp_path) == {"A": 8}
    assert "topics without messages are unknown" in caplog.text


def test_the_format_of_version_2_is_named_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database(tmp_path / "config" / "rdb", {"default": {}})
    assert group_offsets(tmp_path, "g") == {}
    assert "configManagerVersion=v2" in caplog.text
