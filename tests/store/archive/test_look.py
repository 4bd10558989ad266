from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import Snapshot
from segmentlog.store.archive.look import describe, verify
from segmentlog.store.archive.prune import prune
from segmentlog.store.errors import NotAStoreError, UnsupportedStoreError
from segmentlog.store.format.archive_part import totals_of
from segmentlog.store.objects.manifests import newest
from support.archives import content, publish_part
from support.faulty_objects import FaultyObjects
from support.memory_objects import MemoryObjects

ROWS = 150


def test_an_archive_lists_the_queues_and_offsets_of_its_store(store: Path, objects: FaultyObjects) -> None:
    found, snapshot = describe(objects), Snapshot.open(store)
    expected = [
        (each.key.topic, each.key.queue_id, each.min_offset, each.max_offset)
        for topic in snapshot.topics()
        for each in snapshot.queues(topic)
    ]
    assert [queue[:4] for queue in found.queues] == expected
    assert sum(queue.messages for queue in found.queues) == ROWS
    assert (found.manifest, found.start, found.gaps, len(found.pushes)) == (1, 0, (), 1)
    assert found.store["path"] == str(store)


@pytest.mark.parametrize("ask", [describe, verify, partial(verify, deep=True), partial(prune, before_ms=0)])
def test_a_place_without_an_archive_is_an_error(ask: Callable[[MemoryObjects], object], objects: FaultyObjects) -> None:
    with pytest.raises(NotAStoreError, match="no archive here: there is nothing"):
        ask(MemoryObjects())
    objects.delete([key for key in objects.objects if key.startswith("manifests/")])
    with pytest.raises(NotAStoreError, match="there are pieces of the log, and no manifest"):
        ask(objects)


@pytest.mark.parametrize("deep", [False, True])
def test_an_archive_without_faults_has_no_findings(objects: FaultyObjects, deep: bool) -> None:
    found = verify(objects, deep=deep)
    assert (found.findings, found.records) == ((), ROWS if deep else 0)
    assert found.bytes == sum(info.size for key, (_, info) in objects.objects.items() if not key.startswith("manif"))


@pytest.mark.parametrize("kind", ["log/", "queues/", "files/", "parts/"])
def test_missing_and_short_objects_are_findings(objects: FaultyObjects, kind: str) -> None:
    key = next(key for key in objects.objects if key.startswith(kind))
    data, info = objects.objects[key]
    objects.objects[key] = data[:-1], info._replace(size=info.size - 1)
    assert {finding.key for finding in verify(objects, deep=True).findings} == {key}
    assert "bytes, and the manifest states" in verify(objects).findings[0].text
    del objects.objects[key]
    (finding,) = verify(objects).findings
    assert finding == (key, "this object is missing")


@pytest.mark.parametrize("kind", ["log/", "queues/", "files/", "parts/"])
def test_a_flipped_bit_is_found_by_a_deep_verification_alone(objects: FaultyObjects, kind: str) -> None:
    key = next(key for key, (data, _) in objects.objects.items() if key.startswith(kind) and data)
    data, info = objects.objects[key]
    objects.objects[key] = data[:-1] + bytes([data[-1] ^ 1]), info
    assert verify(objects).is_sound
    assert [finding.key for finding in verify(objects, deep=True).findings] == [key]


def test_a_pack_that_contradicts_its_piece_is_a_finding(objects: FaultyObjects) -> None:
    found = content(objects)
    found.runs["first_time"][1] += 1
    part = replace(found.part, totals=totals_of(found.runs, len(found.part.queues)))
    publish_part(objects, found.number + 1, part, store=found.manifest.store, files=found.manifest.files)
    (finding,) = verify(objects, deep=True).findings
    assert "contradict its pack" in finding.text


def test_a_damaged_older_manifest_is_a_finding_and_another_place_an_error(store: Path, objects: FaultyObjects) -> None:
    data, info = objects.objects["manifests/0000000001.arrow"]
    _, manifest = newest(objects)
    objects.put("manifests/0000000002.arrow", np.frombuffer(manifest.encode(), np.uint8))
    objects.objects["manifests/0000000001.arrow"] = data[:-1] + b"?", info
    assert [finding.key for finding in verify(objects).findings] == ["manifests/0000000001.arrow"]
    other = MemoryObjects()
    other.put("notes.txt", np.zeros(1, np.uint8))
    with pytest.raises(UnsupportedStoreError, match=r"notes\.txt"):
        verify(other)
