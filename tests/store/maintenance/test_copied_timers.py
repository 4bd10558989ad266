import struct
from pathlib import Path

import pytest

from segmentlog.store import Snapshot
from segmentlog.store.maintenance import salvage
from segmentlog.store.maintenance.copied_timers import timer_check_of
from support.system_store import START_MS, SystemStore

LONGS = struct.Struct(">qqqq")
VERSION = b"\0\0\0\7" + bytes(4056)


def checked(path: Path, *longs: int) -> tuple[int, ...]:
    found = timer_check_of(Snapshot.open(path), LONGS.pack(*longs) + VERSION)
    assert found[LONGS.size :] == VERSION
    return LONGS.unpack_from(found)


@pytest.mark.parametrize(
    ("delivered", "read", "first"),
    [
        (15, 4, 2),  # its timer is pending
        (15, 2, 2),  # nor was it read
        (25, 4, 4),  # all that were read are delivered
        (25, 9, 9),
        (-START_MS // 1000, 4, 0),  # the broker had delivered none
    ],
)
def test_a_broker_begins_at_the_first_timer_that_is_pending(
    tmp_path: Path, delivered: int, read: int, first: int
) -> None:
    made = SystemStore(tmp_path)
    for due in (10, 11, 20, 12):
        made.timer("T", START_MS + due * 1000)
    delivered_ms = START_MS + delivered * 1000
    assert checked(made.close(), delivered_ms, 520, read, read + 1) == (delivered_ms, 0, first, first)


def test_a_copy_without_timers_and_a_short_file_change_nothing_else(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put("orders")
    path = made.close()
    assert checked(path, START_MS, 52, 3, 2) == (START_MS, 0, 2, 2)
    assert timer_check_of(Snapshot.open(path), b"short") == b"short"


def test_a_salvaged_store_keeps_its_pending_timers(tmp_path: Path) -> None:
    made = SystemStore(tmp_path / "store")
    made.timer("delivered", START_MS)
    made.timer("pending", START_MS + 60_000)
    made.progress(timer_ms=START_MS + 1000)
    path = made.close()
    check = path / "config" / "timercheck"
    check.write_bytes(LONGS.pack(START_MS + 1000, 104, 2, 2) + VERSION)
    salvage(path, tmp_path / "copy")
    copied = (tmp_path / "copy" / "config" / "timercheck").read_bytes()
    assert LONGS.unpack_from(copied) == (START_MS + 1000, 0, 1, 1)
