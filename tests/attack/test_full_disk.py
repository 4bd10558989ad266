"""S7: the kernel has no more room for a file. A put is refused and changes nothing, and with room it goes on."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, NoSpaceError
from support.reading import read
from support.written_stores import SMALL, message

pytestmark = pytest.mark.attack


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size; Python ignores the signal, so it is an error of the call."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    def fill(store: MessageStore) -> None:
        while len(put) < 1_000:
            store.append(message(7, 1, len(put)))
            put.append(f"1.{len(put)}")

    put: list[str] = []
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append(message(7, 1, 0))  # makes a segment, and the spare one
        put.append("1.0")
        with files_of_at_most(SMALL.segment_bytes - 1):
            with pytest.raises(NoSpaceError, match="there is no room: File too large"):
                fill(store)
            end = store.end_offset
            assert end > SMALL.segment_bytes
            with pytest.raises(NoSpaceError):
                store.append(message(7, 1, len(put)))
            assert store.end_offset == end
        for _ in range(5):
            store.append(message(7, 1, len(put)))
            put.append(f"1.{len(put)}")
        store.wait_dispatched()
        rows = sorted(read(store.snapshot()), key=lambda row: row["physicalOffset"])
    assert [row["uniqKey"] for row in rows] == put
