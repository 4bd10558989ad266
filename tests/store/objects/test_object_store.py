import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.errors import MissingFileError, StoreIOError
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects.object_store import ObjectStore
from segmentlog.store.objects.opening import open_objects
from support.cloud_servers import azurite, fake_gcs
from support.fault_server import serving
from support.memory_objects import MemoryObjects
from support.s3_servers import S3Server, versitygw


def _bytes(text: bytes) -> Bytes:
    return np.frombuffer(text, np.uint8)


@pytest.fixture(
    params=[
        *("memory", "obstore file", "obstore fault server", "obstore moto", "pyarrow file"),
        *(
            pytest.param(f"obstore {each}", marks=pytest.mark.scaled(quick=0))
            for each in ("versitygw", "gcs", "azurite")
        ),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    kind = request.param
    if kind == "memory":
        yield MemoryObjects()
    elif kind.endswith("file"):
        yield open_objects(f"file://{tmp_path}/a/prefix", {"library": kind.split()[0]})
    elif kind.endswith("moto"):
        server: S3Server = request.getfixturevalue("moto")
        yield open_objects(server.url(), server.options)
    elif kind.endswith("versitygw"):
        with versitygw(tmp_path / "server") as server:
            yield open_objects(server.url(), server.options)
    elif kind.endswith(("gcs", "azurite")):
        with fake_gcs() if kind.endswith("gcs") else azurite() as objects:
            yield objects
    else:
        with serving() as server:
            yield open_objects("s3://bucket/a/prefix", server.options())


KEYS = ["log/0/a.1", "log/0/b", "log/1", "logs", "top", "z/%RETRY%g/0/é x#?"]


def test_objects_are_listed_in_order_by_the_text_that_their_keys_begin_with(store: ObjectStore) -> None:
    assert list(store.list()) == []
    infos = [store.put(key, _bytes(key.encode())) for key in reversed(KEYS)]
    assert [each.key for each in store.list()] == KEYS
    assert sorted(each for each in infos if each) == sorted(store.list())
    for prefix in ("log", "log/", "log/0/", "log/0/a", "nope", "z/%RETRY%g/"):
        assert [each.key for each in store.list(prefix)] == [key for key in KEYS if key.startswith(prefix)]
    assert all(each == store.head(each.key) and each.size == len(each.key.encode()) for each in store.list())


def test_ranges_are_whole_and_read_only(store: ObjectStore) -> None:
    data = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8)
    info = store.put("a", data)
    assert info is not None
    assert info.size == data.size
    for etag in (None, info.etag):
        for start, stop in ((0, 1), (0, data.size), (99_999, 100_000), (5, 5), (12_345, 54_321)):
            found = store.get("a", start, stop, etag)
            assert np.array_equal(found, data[start:stop])
            assert not found.flags.writeable


def test_a_missing_object_and_a_range_beyond_the_end_are_errors(store: ObjectStore) -> None:
    assert store.head("a") is None
    with pytest.raises(MissingFileError) as missing:
        store.get("a", 0, 1)
    assert missing.value.path == f"{store.url}/a"
    assert missing.value.errno == errno.ENOENT
    store.put("a", _bytes(b"12345"))
    for start, stop in ((0, 6), (4, 9), (5, 6), (7, 9)):
        with pytest.raises(StoreIOError) as beyond:
            store.get("a", start, stop)
        assert not isinstance(beyond.value, MissingFileError)
        assert beyond.value.path == f"{store.url}/a"
    assert store.head("a/b") is None
    assert store.head("") is None or store.url.startswith("s3")  # a folder is not an object


def test_a_replaced_object_is_an_error_for_its_old_etag(store: ObjectStore) -> None:
    old = store.put("a", _bytes(b"12345"))
    new = store.put("a", _bytes(b"67890x"))
    assert old is not None
    assert new is not None
    assert old.etag != new.etag
    with pytest.raises(StoreIOError, match="replaced"):
        store.get("a", 0, 2, old.etag)
    assert bytes(store.get("a", 0, 2, new.etag)) == b"67"


def test_one_of_several_writers_creates_an_object(store: ObjectStore) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait()
        if store.put("manifests/1", _bytes(b"%d" % number * 1000), if_absent=True) is not None:
            won.append(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(8)))
    assert len(won) == 1
    assert bytes(store.get("manifests/1", 0, 1000)) == b"%d" % won[0] * 1000
    assert store.put("manifests/1", _bytes(b"x"), if_absent=True) is None
    assert [each.key for each in store.list()] == ["manifests/1"]


@pytest.mark.slow
@pytest.mark.scaled(quick=2)
def test_large_objects_are_sent_in_parts_and_read_back(store: ObjectStore) -> None:
    data = np.arange(9 << 20, dtype="<u8").view(np.uint8)  # 72 MiB
    info = store.put("a", data)
    assert info is not None
    assert info.size == data.size
    found = store.get("a", 63 << 20, 65 << 20, info.etag)
    assert np.array_equal(found, data[63 << 20 : 65 << 20])


def test_deleting_takes_keys_that_do_not_exist(store: ObjectStore) -> None:
    for key in KEYS:
        store.put(key, _bytes(b"x"))
    store.delete([])
    store.delete(["nope", KEYS[0], "log/nope", KEYS[-1]])
    assert [each.key for each in store.list()] == KEYS[1:-1]
    store.delete(KEYS)
    store.delete(KEYS)
    assert list(store.list()) == []


def test_folders_are_the_first_parts_of_keys(store: ObjectStore) -> None:
    assert list(store.folders()) == []
    for key in ("b/1", "a/2/3", "z", "a.b/4", "é ü/x"):
        store.put(key, _bytes(b"x"))
    assert list(store.folders()) == ["a", "a.b", "b", "é ü"]
