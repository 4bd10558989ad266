import numpy as np
import pytest

from segmentlog.store.errors import CorruptError, StoreIOError, UnsupportedStoreError
from segmentlog.store.format.archive_manifest import Manifest, manifest_key
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects.manifests import newest, newest_or_empty, publish
from segmentlog.store.objects.object_store import ObjectInfo
from support.faulty_objects import Fault, FaultyObjects
from support.memory_objects import MemoryObjects

NOTHING = np.empty(0, np.uint8)


def of(push: str) -> Manifest:
    return Manifest({"push": push})


class RefusesAlways(MemoryObjects):
    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        return None


def test_the_newest_manifest_is_found_by_its_number() -> None:
    objects = MemoryObjects()
    for number in (9, 10, 11):
        assert publish(objects, number, of(str(number)))
    assert (newest(objects)[0], newest(objects)[1].store) == (11, {"push": "11"})


@pytest.mark.parametrize("key", ["commitlog/00000000000000000000", "notes.txt", "manifests/notes.txt"])
def test_a_place_with_other_objects_is_refused_with_a_name_that_was_found(key: str) -> None:
    objects = MemoryObjects()
    objects.put(key, np.ones(3, np.uint8))
    with pytest.raises(UnsupportedStoreError, match=key):
        newest(objects)


def test_probes_that_were_left_and_marks_of_folders_are_no_other_objects() -> None:
    objects = MemoryObjects()
    objects.put(".probe-0123456789abcdef", np.ones(3, np.uint8))
    for key in ("manifests", "log", "manifests/", "manifests/2025/"):
        objects.put(key, NOTHING)
    assert newest_or_empty(objects)[0] == 0
    assert publish(objects, 1, of("a"))
    assert newest(objects)[0] == 1


def test_a_damaged_manifest_is_an_error_and_not_an_empty_archive() -> None:
    objects = MemoryObjects()
    objects.put(manifest_key(1), np.frombuffer(b"damaged", np.uint8))
    with pytest.raises(CorruptError, match="manifests/0000000001"):
        newest(objects)


def test_a_publication_with_a_lost_answer_counts_if_the_content_is_ours() -> None:
    objects = FaultyObjects(Fault.AFTER, 0)
    assert publish(objects, 1, of("a"))
    assert not publish(FaultyObjects.copy(objects, Fault.AFTER, 0), 1, of("b"))


def test_a_publication_that_wrote_nothing_raises() -> None:
    with pytest.raises(StoreIOError, match="planted"):
        publish(FaultyObjects(Fault.BEFORE, 0), 1, of("a"))
    with pytest.raises(CorruptError, match="refused as if it existed"):
        publish(RefusesAlways(), 1, of("a"))
