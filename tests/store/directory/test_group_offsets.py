"""Two documents about one group: which of them counts, and how they are read."""

import json
from pathlib import Path

import pytest

from segmentlog.store.directory.group_offsets import (
    Sidecar,
    client_progress,
    group_offsets,
    later,
    read_progress,
    sidecar_document,
)
from segmentlog.store.errors import ConfigError, FormatError, UnsafeFileError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.broker_config import ClientQueue, GroupTopic
from segmentlog.store.format.documents import parse, render
from segmentlog.store.types import QueueKey


@pytest.mark.parametrize(
    ("stored", "published", "seen", "expected"),
    [
        (5, None, None, 5),
        (None, 7, None, 7),
        (None, 7, 5, 7),  # the broker dropped the group: it saw none of its consumers for long
        (5, 7, 5, 7),
        (5, 3, 5, 3),  # set back by us
        (6, 7, 5, 7),
        (9, 7, 5, 9),  # consumed through the broker
        (9, 3, 5, 9),
        (4, 7, 5, 4),  # set back at the broker
        (7, 7, 5, 7),  # written there by us
        (6, 7, None, 7),
        (9, 7, None, 9),
    ],
)
def test_which_word_counts(stored: int | None, published: int | None, seen: int | None, expected: int) -> None:
    assert later(stored, published, seen) == expected


def test_offsets_of_both_documents_are_merged(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / ".segmentlog").mkdir()
    (tmp_path / "config/consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:3,1:-1,2:9},"T@h":{0:1}}}')
    ours = {"offsetTable": {"T@g": {"0": 5, "7": 2}}, "seenTable": {"T@g": {"0": 3}}}
    (tmp_path / ".segmentlog/groups.json").write_text(json.dumps(ours))
    found = group_offsets(tmp_path, "g")
    assert found == {QueueKey("T", 0): 5, QueueKey("T", 2): 9, QueueKey("T", 7): 2}  # -1: RocketMQ's unknown
    assert group_offsets(tmp_path, "h") == {QueueKey("T", 0): 1}
    assert group_offsets(tmp_path, "i") == {}


def test_a_rendered_sidecar_is_read_unchanged(tmp_path: Path) -> None:
    (tmp_path / ".segmentlog").mkdir()
    table = {GroupTopic("T", "g"): {0: 5, 11: 1 << 62}}
    sidecar = Sidecar(table, {GroupTopic("T", "g"): {0: 3}}, {"g": {"10.0.0.1@DEFAULT": table}})
    text = render(sidecar_document(sidecar))
    (tmp_path / ".segmentlog/groups.json").write_text(text)
    assert read_progress(LocalFileSystem(), str(tmp_path)).sidecar == sidecar
    assert json.loads(text) == parse(text)  # plain JSON, for other tools


def test_empty_entries_are_not_written() -> None:
    empty: dict[int, int] = {}
    sidecar = Sidecar({GroupTopic("T", "g"): empty}, {}, {"g": {"a": {GroupTopic("T", "g"): empty}, "b": {}}, "h": {}})
    assert sidecar_document(sidecar) == {"broadcastTable": {"g": {"a": {}}}, "offsetTable": {}, "seenTable": {}}


@pytest.mark.parametrize("text", ["{ torn", '{"broadcastTable": [1]}', '{"offsetTable": {"T@g": 3}}'])
def test_a_damaged_document_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / ".segmentlog").mkdir()
    (tmp_path / ".segmentlog/groups.json").write_text(text)
    with pytest.raises(FormatError) as caught:
        group_offsets(tmp_path, "g")
    assert caught.value.path == str(tmp_path / ".segmentlog/groups.json")


@pytest.mark.parametrize("name", ["config", ".segmentlog"])
def test_a_link_in_place_of_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError, match="symbolic link"):
        group_offsets(tmp_path, "g")


def test_broadcast_offsets_are_read_from_the_directory_of_the_client(tmp_path: Path) -> None:
    folder = tmp_path / "10.0.0.7@DEFAULT" / "viewers"
    folder.mkdir(parents=True)
    queue = '{"brokerName":"broker-a","queueId":1,"topic":"Prices"}'
    (folder / "offsets.json.bak").write_text('{"offsetTable":{' + queue + ":6}}")
    found = client_progress("10.0.0.7@DEFAULT", "viewers", directory=str(tmp_path))
    assert found == {ClientQueue("Prices", "broker-a", 1): 6}
    (folder / "offsets.json").write_text('{\n\t"offsetTable":{' + queue + ":7\n\t}\n}")
    found = client_progress("10.0.0.7@DEFAULT", "viewers", directory=str(tmp_path))
    assert found == {ClientQueue("Prices", "broker-a", 1): 7}
    assert client_progress("10.0.0.8@DEFAULT", "viewers", directory=str(tmp_path)) == {}
    with pytest.raises(ConfigError, match="not a client id or group"):
        client_progress("../..", "viewers", directory=str(tmp_path))


@pytest.mark.parametrize(
    ("document", "backup", "expected"),
    [
        ('{"offsetTable":{"Orders@g":{0:3,1:5},"Orders@other":{0:1}}}', None, {0: 3, 1: 5}),
        ("{ torn", '{"offsetTable":{"Orders@g":{2:9}}}', {2: 9}),
        (None, '{"offsetTable":{"Orders@g":{2:9}}}', {2: 9}),
        (None, None, {}),
        ('{"offsetTable":{}}', None, {}),
    ],
)
def test_a_group_by_document_and_backup(
    tmp_path: Path, document: str | None, backup: str | None, expected: dict[int, int]
) -> None:
    (tmp_path / "config").mkdir()
    for name, text in (("consumerOffset.json", document), ("consumerOffset.json.bak", backup)):
        if text is not None:
            (tmp_path / "config" / name).write_text(text)
    assert group_offsets(tmp_path, "g") == {QueueKey("Orders", q): o for q, o in expected.items()}


def test_a_store_without_config_has_no_group(tmp_path: Path) -> None:
    assert group_offsets(tmp_path, "g") == {}
