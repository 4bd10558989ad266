import errno
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.errors import MissingFileError, StoreIOError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.objects.block_cache import BlockCache
from segmentlog.store.objects.remote_fs import ObjectPart, RemoteFile, RemoteFileSystem
from support.memory_objects import MemoryObjects

ROOT = "s3://bucket/store"
LOCAL = LocalFileSystem()
MIB = 1 << 20
FILES = {
    "commitlog/00000000000000000000": 20 * MIB,
    "commitlog/00000000000020971520": 3 * MIB + 17,
    "config/topics.json": 300,
    "consumequeue/orders/0/00000000000000000000": 5000,
    "consumequeue/orders/1/00000000000000000000": 0,
    "consumequeue/two/0/00000000000000000000": 40,
    "consumequeue/two/0/00000000000000000040": 40,
    "checkpoint": 4096,
}


def _content(size: int) -> bytes:
    """Bytes that end in zeros, for the last fifth."""
    made = np.random.default_rng(size).integers(1, 256, size, dtype=np.uint8)
    made[size - size // 5 :] = 0
    return made.tobytes()


@pytest.fixture(params=["memory", "cache", "full cache"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> BlockCache | None:
    if request.param == "memory":
        return None
    return BlockCache(str(tmp_path / "cache"), (1 << 30) if request.param == "cache" else MIB)


@pytest.fixture
def objects() -> MemoryObjects:
    store = MemoryObjects(ROOT)
    for path, size in FILES.items():
        store.put(path, np.frombuffer(_content(size), np.uint8))
    return store


@pytest.fixture
def local(tmp_path: Path) -> str:
    for path, size in FILES.items():
        place = tmp_path / "store" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_content(size))
    return str(tmp_path / "store")


@pytest.mark.slow
def test_a_copy_is_read_as_the_files_that_it_is_a_copy_of(
    objects: MemoryObjects, local: str, cache: BlockCache | None
) -> None:
    remote = RemoteFileSystem.listed(objects, ROOT, objects.list(), cache)
    folders = ["", "/commitlog", "/consumequeue", "/consumequeue/orders", "/config", "/nope", "/checkpoint"]
    for folder in folders:
        expected = [each._replace(modified_ms=0) for each in LOCAL.list_dir(local + folder)]
        assert remote.list_dir(ROOT + folder) == expected, folder
        assert (remote.stamp(ROOT + folder) is None) == (not expected)
    random = np.random.default_rng(1)
    for path, size in FILES.items():
        here, there = f"{local}/{path}", f"{ROOT}/{path}"
        assert remote.size(there) == size
        assert remote.data_end(there) == LOCAL.data_end(here)
        assert np.array_equal(remote.map(there), LOCAL.map(here))
        for _ in range(10):
            start, stop = sorted(random.integers(0, size + 10, 2).tolist())
            found = remote.map(there, start, stop)
            assert np.array_equal(found, LOCAL.map(here, start, stop))
            assert not found.flags.writeable or not found.size
            assert remote.read(there, start, stop - start) == LOCAL.read(here, start, stop - start)
    queues = ["orders/0", "orders/1", "two/0", "nope"]
    for limit in (10, 4096, 100_000):
        found_fronts = remote.fronts([f"{ROOT}/consumequeue/{each}" for each in queues], limit)
        expected_fronts = LOCAL.fronts([f"{local}/consumequeue/{each}" for each in queues], limit)
        for one, other in zip(found_fronts, expected_fronts, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one[:3] == other[:3]
                assert one.end > limit or one.data[: one.end] == other.data[: one.end]
    pieces = [(path, offset, 30) for path in FILES for offset in (0, 25, 299)] + [("nope", 0, 10)]
    assert remote.read_each([(f"{ROOT}/{path}", offset, count) for path, offset, count in pieces]) == LOCAL.read_each(
        [(f"{local}/{path}", offset, count) for path, offset, count in pieces]
    )


def test_a_path_that_is_not_a_file_has_no_bytes(objects: MemoryObjects) -> None:
    remote = RemoteFileSystem.listed(objects, f"{ROOT}/", objects.list())
    for path in (f"{ROOT}/nope", f"{ROOT}/config", ROOT, "s3://bucket/stores/checkpoint", "/x"):
        assert remote.size(path) is None
        for call in (remote.map, remote.data_end, lambda path: remote.read(path, 0, 1)):
            with pytest.raises(MissingFileError) as raised:
                call(path)
            assert raised.value.errno == errno.ENOENT
    assert remote.lock_owner(f"{ROOT}/lock") is None
    assert RemoteFileSystem.listed(MemoryObjects(), ROOT, ()).list_dir(ROOT) == []
    assert RemoteFileSystem.listed(MemoryObjects(), ROOT, ()).stamp(ROOT) is None


def test_a_file_of_several_objects_is_one_file_that_ends_in_zeros(cache: BlockCache | None) -> None:
    objects = MemoryObjects(ROOT)
    content = np.frombuffer(_content(7 * MIB), np.uint8)
    cuts = [0, 2 * MIB + 5, 2 * MIB + 6, 5 * MIB, 6 * MIB]
    parts = []
    for start, stop in pairwise(cuts):
        objects.put(f"log/{start}", np.concatenate([np.ones(7, np.uint8), content[start:stop], np.ones(9, np.uint8)]))
        parts.append(ObjectPart(f"log/{start}", start, 7, stop - start))
    remote = RemoteFileSystem(objects, ROOT, {"commitlog/0": RemoteFile("", 7 * MIB, parts=tuple(parts))}, cache)
    path = f"{ROOT}/commitlog/0"
    expected = content.copy()
    expected[6 * MIB :] = 0
    for start, stop in ((0, 7 * MIB), (0, 10), (2 * MIB, 2 * MIB + 10), (MIB, 6 * MIB + 9), (6 * MIB, 6 * MIB + 3)):
        assert np.array_equal(remote.map(path, start, stop), expected[start:stop])
    assert remote.data_end(path) == np.flatnonzero(expected)[-1] + 1
    holes = {"a": RemoteFile("", 7 * MIB, parts=(parts[1], parts[3]))}
    remote = RemoteFileSystem(objects, ROOT, holes, cache)
    assert np.array_equal(remote.map(f"{ROOT}/a", 5 * MIB, 7 * MIB), expected[5 * MIB : 7 * MIB])
    for start, stop in ((0, 10), (cuts[1], cuts[3]), (cuts[2], cuts[2] + 1), (4 * MIB, 7 * MIB)):
        with pytest.raises(StoreIOError, match=r"the objects have \[2097157, 2097158\), \[5242880, 6291456\)"):
            remote.map(f"{ROOT}/a", start, stop)


def test_a_second_read_from_the_cache_makes_no_request(objects: MemoryObjects, tmp_path: Path) -> None:
    for _ in range(2):
        remote = RemoteFileSystem.listed(objects, ROOT, objects.list(), BlockCache(str(tmp_path / "cache"), 1 << 30))
        for path in FILES:
            remote.map(f"{ROOT}/{path}")
    assert objects.bytes_read == sum(FILES.values())


def test_a_replaced_object_is_an_error_until_the_store_is_opened_again(
    objects: MemoryObjects, cache: BlockCache | None
) -> None:
    remote = RemoteFileSystem.listed(objects, ROOT, objects.list(), cache)
    path = f"{ROOT}/checkpoint"
    old = remote.read(path, 0, 10)
    objects.put("checkpoint", np.full(4096, 7, np.uint8))
    objects.put("config/topics.json", np.full(300, 7, np.uint8))
    with pytest.raises(StoreIOError, match="replaced"):
        remote.read(f"{ROOT}/config/topics.json", 0, 10)
    again = RemoteFileSystem.listed(objects, ROOT, objects.list(), cache)
    assert again.read(path, 0, 10) == b"\7" * 10 != old


@pytest.mark.parametrize(("gap", "requests"), [(0, 3), (100, 2), (1 << 20, 1)])
def test_ranges_are_one_request_up_to_the_gap_of_the_object_store(gap: int, requests: int) -> None:
    objects = MemoryObjects()
    objects.gap_bytes = gap
    objects.put("a", np.arange(200_000, dtype=np.uint32).view(np.uint8))
    fs = RemoteFileSystem(objects, "r", {"a": RemoteFile("a", 800_000)})
    fs.fetch([("r/a", 0, 100), ("r/a", 150, 200), ("r/a", 500_000, 500_100)])
    assert objects.calls["get"] == requests
    assert fs.window_bytes == gap
