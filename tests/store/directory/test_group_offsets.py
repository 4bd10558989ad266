import json
import os
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
from support import fixtures


def test_which_offset_counts() -> None:
    for stored, published, seen, expected in (
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
    ):
        assert later(stored, published, seen) == expected


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """The document that is written by us."""
    for name in ("config", ".segmentlog"):
        (tmp_path / name).mkdir()
    return tmp_path / ".segmentlog/groups.json"


def test_offsets_of_both_documents_are_merged(tmp_path: Path, ours: Path) -> None:
    assert group_offsets(tmp_path, "g") == {}
    (tmp_path / "config/consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:3,1:-1,2:9},"T@h":{0:1}}}')
    ours.write_text('{"offsetTable": {"T@g": {"0": 5, "7": 2}}, "seenTable": {"T@g": {"0": 3}}}')
    found = group_offsets(tmp_path, "g")
    assert found == {QueueKey("T", 0): 5, QueueKey("T", 2): 9, QueueKey("T", 7): 2}  # -1: RocketMQ's unknown
    assert group_offsets(tmp_path, "h") == {QueueKey("T", 0): 1}
    assert group_offsets(tmp_path, "i") == {}


def test_a_rendered_sidecar_is_read_unchanged_without_empty_entries(tmp_path: Path, ours: Path) -> None:
    group, empty = GroupTopic("T", "g"), dict[int, int]()
    table = {group: {0: 5, 11: 1 << 62}}
    sidecar = Sidecar(table, {group: {0: 3}}, {"g": {"10.0.0.1@DEFAULT": table}})
    text = render(sidecar_document(sidecar))
    ours.write_text(text)
    assert read_progress(LocalFileSystem(), str(tmp_path)).sidecar == sidecar
    assert json.loads(text) == parse(text)  # plain JSON, for other tools
    sidecar = Sidecar({group: empty}, {}, {"g": {"a": {group: empty}, "b": {}}, "h": {}})
    assert sidecar_document(sidecar) == {"broadcastTable": {"g": {"a": {}}}, "offsetTable": {}, "seenTable": {}}


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "etl"), [("lite-groups-5.1.0", {1: 0}), ("lite-groups-5.5.0", {0: 7, 1: 0})])
def test_positions_of_a_live_broker_with_light_queues_are_read(name: str, etl: dict[int, int], tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    orders = {QueueKey("Orders", queue_id): offset for queue_id, offset in etl.items()}
    assert group_offsets(store, "etl") == orders | {QueueKey("%LMQ%b", 0): 2}
    assert group_offsets(store, "%LMQ%a") == {QueueKey("%LMQ%a", 0): 5}


LIGHT = '{"lmqOffsetTable":{"%LMQ%a@%LMQ%a":5,"%LMQ%b@%LMQ%b":-1},"offsetTable":{"T@g":{0:7}}}'


@pytest.mark.parametrize(
    ("plain", "light", "counts"),
    [
        (None, 1, "light"),
        (1, 2, "light"),
        (2, 1, "plain"),
        (2, 2, "later file"),
        (None, None, "light"),
        (1, 2, "switched back"),  # a plain broker goes on with its old version
        (2, 1, "later file"),
    ],
)
def test_positions_of_a_broker_with_light_queues_are_read(
    tmp_path: Path, plain: int | None, light: int | None, counts: str
) -> None:
    """It keeps those of all groups in a document of its own; of two, that written last counts."""

    def written(name: str, text: str, timestamp: int | None) -> None:
        version = "" if timestamp is None else f'"dataVersion":{{"timestamp":{timestamp}}},'
        (tmp_path / "config" / name).write_text("{" + version + text[1:])

    (tmp_path / "config").mkdir()
    if plain is not None:
        written("consumerOffset.json", '{"offsetTable":{"T@g":{0:3}}}', plain)
    written("lmqConsumerOffset.json", LIGHT, light)
    if counts == "later file":
        os.utime(tmp_path / "config/consumerOffset.json", (1, 1))
    if counts == "switched back":
        os.utime(tmp_path / "config/lmqConsumerOffset.json", (1, 1))
        counts = "plain"
    expected = 3 if counts == "plain" else 7
    assert group_offsets(tmp_path, "g") == {QueueKey("T", 0): expected}
    assert group_offsets(tmp_path, "%LMQ%a") == ({} if counts == "plain" else {QueueKey("%LMQ%a", 0): 5})
    assert group_offsets(tmp_path, "%LMQ%b") == {}


@pytest.mark.parametrize("text", ["{ torn", '{"broadcastTable": [1]}', '{"offsetTable": {"T@g": 3}}'])
def test_a_damaged_document_is_named(tmp_path: Path, ours: Path, text: str) -> None:
    ours.write_text(text)
    with pytest.raises(FormatError) as caught:
        group_offsets(tmp_path, "g")
    assert caught.value.path == str(ours)


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
