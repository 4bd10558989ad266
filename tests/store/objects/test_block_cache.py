import errno
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.files.fs import release
from segmentlog.store.objects import block_cache
from segmentlog.store.objects.block_cache import BLOCK_BYTES, BlockCache, CachedFile
from support.scale import scale

BLOCK = BLOCK_BYTES
DATA = np.random.default_rng(2).integers(0, 256, 5 * BLOCK + 1234, dtype=np.uint8)
URL = "s3://bucket/p"


def _file(cache: BlockCache, key: str = "a", etag: str | None = '"1"', size: int = DATA.size) -> CachedFile:
    found = cache.file(URL, key, etag, size)
    assert found is not None
    return found


def _missing(file: CachedFile) -> list[tuple[int, int]]:
    return list(file.missing(0, DATA.size))


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    return BlockCache(str(tmp_path / "cache"), 1 << 30)


def _other_boot(monkeypatch: pytest.MonkeyPatch, cache: BlockCache) -> BlockCache:
    monkeypatch.setattr(block_cache, "_boot", lambda: 77)
    return BlockCache(cache.directory, 1 << 30)


def test_blocks_are_present_once_they_are_written_for_every_process_and_etag_by_etag(cache: BlockCache) -> None:
    file = _file(cache)
    assert _missing(file) == [(0, DATA.size)]
    assert file.put(BLOCK, DATA[BLOCK : 3 * BLOCK])
    assert file.put(5 * BLOCK, DATA[5 * BLOCK :])
    assert _missing(file) == [(0, BLOCK), (3 * BLOCK, 5 * BLOCK)]
    assert list(file.missing(BLOCK + 5, 3 * BLOCK)) == []
    assert list(file.missing(BLOCK - 1, BLOCK)) == [(0, BLOCK)]
    other = BlockCache(cache.directory, 1 << 30)
    assert _missing(_file(other)) == [(0, BLOCK), (3 * BLOCK, 5 * BLOCK)]
    found = _file(other).map(BLOCK + 7, 2 * BLOCK + 9)
    assert found is not None
    assert np.array_equal(found, DATA[BLOCK + 7 : 2 * BLOCK + 9])
    assert not found.flags.writeable
    release(found)
    assert np.array_equal(found, DATA[BLOCK + 7 : 2 * BLOCK + 9])
    last = _file(other).map(5 * BLOCK + 1, DATA.size)
    assert last is not None
    assert np.array_equal(last, DATA[5 * BLOCK + 1 :])
    assert _file(other).map(0, BLOCK) is None
    for file in (
        _file(cache, "b"),
        _file(cache, etag='"2"'),
        _file(cache, etag=None),
        _file(cache, size=DATA.size - 1),
    ):
        assert next(file.missing(0, 1)) == (0, BLOCK)
    assert os.stat(cache.directory).st_mode & 0o777 == 0o700


def test_blocks_of_an_earlier_boot_are_checked_before_their_first_use(
    cache: BlockCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _file(cache)
    file.put(0, DATA)
    path = os.path.join(cache.directory, file.name)
    with open(path, "r+b") as damaged:  # as a power cut may leave it: the entry was written, the data was not
        damaged.seek(2 * BLOCK)
        damaged.write(bytes(BLOCK))
    assert _missing(_file(BlockCache(cache.directory))) == [], "within one boot, the page cache is trusted"
    rebooted = _file(_other_boot(monkeypatch, cache))
    assert _missing(rebooted) == [(2 * BLOCK, 3 * BLOCK)]
    rebooted.put(2 * BLOCK, DATA[2 * BLOCK : 3 * BLOCK])
    with open(path, "r+b") as damaged:
        damaged.write(bytes(BLOCK))
    assert _missing(_file(_other_boot(monkeypatch, cache))) == [], "each was checked once, and is of this boot now"


def test_entries_without_their_data_or_crc_are_absent(cache: BlockCache, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(cache)
    path, table = os.path.join(cache.directory, file.name), DATA.size + -DATA.size % 4096
    file.put(0, DATA[:BLOCK])
    with open(path, "r+b") as torn:
        torn.seek(table + 16)
        torn.write(b"\1\2")  # a part of a boot, and no CRC
    assert next(_file(BlockCache(cache.directory)).missing(BLOCK, 2 * BLOCK)) == (BLOCK, 2 * BLOCK)
    os.truncate(path, table)
    assert _missing(_file(BlockCache(cache.directory))) == [(0, DATA.size)], "not of our size: begun again"
    assert os.stat(path).st_size > table
    assert _missing(_file(_other_boot(monkeypatch, cache))) == [(0, DATA.size)]


_WRITER = """
import sys, numpy as np
from segmentlog.store.objects.block_cache import BlockCache, BLOCK_BYTES
data = np.random.default_rng(2).integers(0, 256, 5 * BLOCK_BYTES + 1234, dtype=np.uint8)
cache = BlockCache(sys.argv[1], 1 << 30)
number = 0
while True:
    file = cache.file("s3://bucket/p", str(number), None, data.size)
    for block in range(6):
        file.put(block * BLOCK_BYTES, data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])
    number += 1
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.scaled
def test_a_killed_process_leaves_no_block_that_seems_present(tmp_path: Path) -> None:
    for run in range(scale(1, 5, 50)):
        directory = str(tmp_path / f"{run}")
        with subprocess.Popen([sys.executable, "-c", _WRITER, directory], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(run + 1):
                process.stdout.readline()
            process.kill()
        cache, seen = BlockCache(directory, 1 << 30), 0
        for number in range(1000):
            file = _file(cache, str(number), None)
            for block in range(6):
                start, stop = block * BLOCK, min((block + 1) * BLOCK, DATA.size)
                if (found := file.map(start, stop)) is not None:
                    seen += 1
                    assert np.array_equal(found, DATA[start:stop])
            if file.map(0, 1) is None:
                break
        assert seen


def test_the_least_recently_used_files_are_deleted_and_stay_mapped(tmp_path: Path) -> None:
    cache = BlockCache(str(tmp_path), 10 * BLOCK)
    files = []
    for number in range(4):
        file = _file(cache, str(number), size=3 * BLOCK)
        assert file.put(0, DATA[: 3 * BLOCK])
        files.append(file)
        os.utime(tmp_path / file.name, (0, number or 100))  # the first was used last
        mapped = file.map(0, 3 * BLOCK)
    assert mapped is not None
    assert not (tmp_path / files[1].name).exists()
    assert (tmp_path / files[0].name).exists()
    assert sum(each.stat().st_blocks * 512 for each in tmp_path.iterdir()) <= 10 * BLOCK + 16384
    gone = files[1].map(0, 3 * BLOCK)
    assert gone is not None
    assert np.array_equal(gone, DATA[: 3 * BLOCK])
    assert list(_file(cache, "1", size=3 * BLOCK).missing(0, 1)) == [(0, BLOCK)]


def test_a_file_that_the_same_request_needs_is_kept(tmp_path: Path) -> None:
    cache = BlockCache(str(tmp_path), 8 * BLOCK)
    first, second = _file(cache, "1"), _file(cache, "2")
    first.put(0, DATA[: 4 * BLOCK])
    with cache.needed([first.name, second.name]):
        assert second.put(0, DATA[: 2 * BLOCK])
        assert not second.put(2 * BLOCK, DATA[2 * BLOCK : 5 * BLOCK])
        assert first.map(0, 4 * BLOCK) is not None
    assert second.put(2 * BLOCK, DATA[2 * BLOCK : 5 * BLOCK])
    assert not (tmp_path / first.name).exists()


def test_without_room_the_cache_is_left_alone_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = BlockCache(str(tmp_path), 1 << 30)
    file = _file(cache)
    file.put(0, DATA[:BLOCK])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(block_cache.os, "pwrite", full)
    with caplog.at_level(logging.WARNING):
        assert not file.put(BLOCK, DATA[BLOCK : 2 * BLOCK])
        assert not file.put(BLOCK, DATA[BLOCK : 2 * BLOCK])
        assert cache.file(URL, "b", None, 100) is None
    assert [each.message for each in caplog.records] == [
        f"cache {tmp_path} is not used any more: No space left on device"
    ]
    assert file.map(BLOCK, 2 * BLOCK) is None
    assert file.map(0, BLOCK) is not None


def test_a_directory_that_another_user_may_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    (tmp_path / "file").touch()
    for name in ("open", "link", "file", "file/below"):
        assert BlockCache(str(tmp_path / name)).file(URL, "a", None, 100) is None, name


def test_a_cache_crosses_to_other_processes_by_its_directory(cache: BlockCache) -> None:
    _file(cache).put(0, DATA)
    other = pickle.loads(pickle.dumps(cache))
    assert _missing(_file(other)) == []


def test_the_limit_is_a_tenth_of_the_free_space_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BlockCache(str(tmp_path))
    found = os.statvfs(tmp_path)
    monkeypatch.setattr(
        block_cache.os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 0, 0, 20 * BLOCK // 4096, 0, 0, 0, 0, 255))
    )
    assert found.f_bavail
    assert not _file(cache).put(0, DATA), "2 blocks of 20"
    assert _file(cache).put(0, DATA[:BLOCK])
