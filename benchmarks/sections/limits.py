"""Limits of the machine: a copy in memory, a read from the page cache, checksums, writes and syncs.

Of PySpark's own limit, its transport, see the cases of the peer ``transport``.
"""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from free_memory import FreeMemory
from harness import Case, Found, Unit, measure
from isal import isal_zlib

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from bench import Bench

PIECE = 64 << 20
MANY = 1 << 30
FILE_BYTES = 256 << 20
WRITTEN_BYTES = 1 << 30  # enough to see the cost of a page that was never used
BODY = 1024
SYNCS, SYNC_BYTES = 100, 4096
BATCH_BYTES = 1 << 20


def limits(bench: "Bench") -> Found:
    """Measure all of them, in turns."""
    file, written = bench.folder / "limit", bench.folder / "limit-written"
    source = np.random.default_rng(1).integers(0, 256, PIECE, np.uint8)
    target = np.empty_like(source)
    file.write_bytes(source.tobytes() * (FILE_BYTES // PIECE))
    bodies = [memoryview(source)[at : at + BODY] for at in range(0, PIECE, BODY)]
    pieces = bench.scaled(MANY, PIECE) // PIECE
    actions: dict[str, tuple[int, Unit, Callable[[], object]]] = {
        "memory copy": (pieces * PIECE, Unit.BYTES, partial(_times, pieces, partial(np.copyto, target, source))),
        "page cache read": (pieces * PIECE, Unit.BYTES, partial(_read, file, target, pieces)),
        "CRC-32, long": (pieces * PIECE, Unit.BYTES, partial(_times, pieces, partial(isal_zlib.crc32, source))),
        "CRC-32, bodies of 1 KiB": (len(bodies), Unit.CALLS, partial(_checksums, bodies)),
        "write to the page cache": (WRITTEN_BYTES, Unit.BYTES, partial(_write, written, source, synced=False)),
        "write, synced at the end": (WRITTEN_BYTES, Unit.BYTES, partial(_write, written, source, synced=True)),
        "sync after 4 KiB": (SYNCS, Unit.CALLS, partial(_syncs, written, SYNC_BYTES)),
        "sync after 1 MiB": (SYNCS, Unit.CALLS, partial(_syncs, written, BATCH_BYTES)),
    }
    before = partial(_remove, written)
    cases = [
        Case(name=f"limit: {name}", peer="limit", rows=count, action=action, before=before, unit=unit)
        for name, (count, unit, action) in actions.items()
    ]
    results = bench.measure(cases)
    if bench.memory is not None:
        results += measure([_into_free_memory(bench.memory, written, source)], bench.rounds, bench.tell)
    return Found(results=results)


def _into_free_memory(memory: FreeMemory, path: Path, source: "npt.NDArray[np.uint8]") -> Case:
    def before() -> None:
        _remove(path)
        memory.empty()

    return Case(
        name="limit: write to the page cache, memory that was free",
        peer="limit",
        rows=WRITTEN_BYTES,
        action=partial(_write, path, source, synced=False),
        before=before,
        unit=Unit.BYTES,
    )


def _times(count: int, action: "Callable[[], object]") -> None:
    for _ in range(count):
        action()


def _read(path: Path, target: "npt.NDArray[np.uint8]", pieces: int) -> None:
    with open(path, "rb", buffering=0) as opened:
        for piece in range(pieces):
            assert os.preadv(opened.fileno(), [target], piece * PIECE % FILE_BYTES) == PIECE


def _checksums(bodies: list[memoryview]) -> None:
    for body in bodies:
        isal_zlib.crc32(body)


def _write(path: Path, source: "npt.NDArray[np.uint8]", *, synced: bool) -> None:
    with open(path, "wb", buffering=0) as opened:
        opened.writelines(source for _ in range(WRITTEN_BYTES // PIECE))
        if synced:
            os.fsync(opened.fileno())


def _syncs(path: Path, size: int) -> None:
    """Write and sync, as the log of a store that is synced does: into a file whose space was set aside."""
    data = os.urandom(size)
    with open(path, "wb", buffering=0) as opened:
        os.posix_fallocate(opened.fileno(), 0, SYNCS * size)
        for number in range(SYNCS):
            os.pwrite(opened.fileno(), data, number * size)
            os.fdatasync(opened.fileno())


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.sync()
