"""S7: disks that are really full. A put is refused and changes nothing, all can be read, and with room it goes on."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, NoSpaceError
from support.reading import read
from support.scale import Report, scale
from support.written_stores import SMALL, message

pytestmark = pytest.mark.attack

TESTS = Path(__file__).parent.parent
SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
SIZES = scale(4, 20, 2_000)
STEP_KIB = 16


def unshared() -> list[str]:
    """Command prefix that starts a program with the right to mount; empty if there is none."""
    if shutil.which("unshare") is None:
        return []
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    probe = "mount -t tmpfs -o size=64k tmpfs /mnt"
    done = subprocess.run([*command, "sh", "-c", probe], check=False, capture_output=True)
    return command if done.returncode == 0 else []


UNSHARED = unshared()


@pytest.mark.scaled(quick=0)  # `test_failing_calls` and crash/test_io_errors.py fill a disk at each call
@pytest.mark.skipif(not UNSHARED, reason="this process can mount no file system, not even as unshare -Urm")
def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path, report: Report) -> None:
    sizes = [str(16 + STEP_KIB * (number * 64 // min(SIZES, 64) % 64)) for number in range(SIZES)]
    done = subprocess.run(
        [*UNSHARED, sys.executable, "-m", "support.full_disk", tmp_path, str(SEED), *sizes],
        cwd=TESTS,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    total = Counter[str]()
    for line in done.stdout.splitlines():
        total.update({name: value for name, value in json.loads(line).items() if name not in {"seed", "size", "made"}})
    report(f"S7, seed {SEED}", f"{len(sizes)} disks of {sizes[0]} to {sizes[-1]} KiB: {dict(total)}")
    assert len(done.stdout.splitlines()) == SIZES
    assert total["refused"] >= SIZES
    assert total["acknowledged"] >= 50 * SIZES
    assert total["after"] == 45 * SIZES
    assert total["refused_open"] >= 1


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
            store.append(message(SEED, 1, len(put)))
            put.append(f"1.{len(put)}")

    put: list[str] = []
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append(message(SEED, 1, 0))  # makes a segment, and the spare one
        put.append("1.0")
        with files_of_at_most(SMALL.segment_bytes - 1):
            with pytest.raises(NoSpaceError, match="there is no room: File too large"):
                fill(store)
            end = store.end_offset
            assert end > SMALL.segment_bytes
            with pytest.raises(NoSpaceError):
                store.append(message(SEED, 1, 1_000))
            assert store.end_offset == end
        for _ in range(5):
            store.append(message(SEED, 1, len(put)))
            put.append(f"1.{len(put)}")
        store.wait_dispatched()
        rows = sorted(read(store.snapshot()), key=lambda row: row["physicalOffset"])
    assert [row["uniqKey"] for row in rows] == put
