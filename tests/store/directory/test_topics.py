import json
import logging
from typing import Any

import pytest

from segmentlog.store.directory.topics import TopicTable
from segmentlog.store.errors import NoSpaceError
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.types import QueueKey
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem


def disk(content: str | None = None, backup: str | None = None) -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/config")
    made.make_dir("/.segmentlog")
    for name, text in (("topics.json", content), ("topics.json.bak", backup)):
        if text is not None:
            file = made.create(f"/config/{name}")
            file.write(0, text.encode())
            file.close()
    return made


def table(fs: MemoryFileSystem, name: str = "topics.json") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(fs.files()[f"/config/{name}"])
    return loaded


def topics(fs: MemoryFileSystem) -> TopicTable:
    return TopicTable(fs, StorePaths("/"))


def test_new_topics_have_as_many_queues_as_were_seen_and_a_known_queue_is_not_written_again() -> None:
    fs = disk()
    noted = topics(fs)
    noted.note([QueueKey("A", 3), QueueKey("B", 0), QueueKey("A", 1), QueueKey("SCHEDULE_TOPIC_XXXX", 2)])
    written = table(fs)["topicConfigTable"]
    assert written.keys() == {"A", "B"}
    assert [written["A"][name] for name in ("readQueueNums", "writeQueueNums", "perm", "topicName")] == [4, 4, 6, "A"]
    assert table(fs)["dataVersion"]["counter"] == 1
    before = fs.files()
    noted.note([QueueKey("A", 3), QueueKey("A", 0)])
    topics(fs).note([QueueKey("A", 2)])
    assert fs.files() == before
    noted.note([QueueKey("A", 4)])
    counts = [table(fs, name)["topicConfigTable"]["A"]["readQueueNums"] for name in ("topics.json", "topics.json.bak")]
    assert counts == [5, 4]


def test_settings_that_a_broker_wrote_are_kept() -> None:
    held = {
        "dataVersion": {"counter": 41, "stateVersion": 7, "timestamp": 1},
        "topicConfigTable": {
            "A": {"topicName": "A", "readQueueNums": 8, "writeQueueNums": 2, "perm": 4, "order": True, "later": [1]},
            "B": {"topicName": "B", "readQueueNums": 1, "writeQueueNums": 1},
        },
        "another": {"x": 1},
    }
    fs = disk(json.dumps(held))
    topics(fs).note([QueueKey("A", 3)])
    written = table(fs)
    assert written["topicConfigTable"]["A"] == {**held["topicConfigTable"]["A"], "writeQueueNums": 4}  # type: ignore[index]
    assert written["topicConfigTable"]["B"] == held["topicConfigTable"]["B"]  # type: ignore[index]
    assert (written["another"], written["dataVersion"]["counter"]) == ({"x": 1}, 42)
    assert written["dataVersion"]["stateVersion"] == 7
    assert table(fs, "topics.json.bak") == held


@pytest.mark.parametrize("strange", ['{"topicConfigTable": []}', '{"topicConfigTable": {"A": 3}}'])
def test_a_document_of_unknown_form_is_left_alone(strange: str, caplog: pytest.LogCaptureFixture) -> None:
    fs = disk(strange)
    with caplog.at_level(logging.WARNING):
        topics(fs).note([QueueKey("A", 0)])
    assert fs.files()["/config/topics.json"] == strange.encode()
    assert "stays as it is, new topics are not added to it" in caplog.text


def test_a_full_disk_leaves_the_old_one_and_it_is_tried_again() -> None:
    inner = disk('{"topicConfigTable": {}}')
    noted = TopicTable(FaultyFileSystem(inner, Fault(error=Failure.ENOSPC, at=1, calls=("write",))), StorePaths("/"))
    with pytest.raises(NoSpaceError):
        noted.note([QueueKey("A", 0)])
    assert table(inner)["topicConfigTable"] == {}
    noted.note([QueueKey("A", 0)])
    assert table(inner)["topicConfigTable"].keys() == {"A"}
