"""Fills small disks with a store, makes room, and goes on. Run as a program, in a mount namespace of its own.

::

    unshare -m python -m support.full_disk FOLDER SEED SIZE …      one line of JSON for each size, in KiB

    tmpfs of SIZE    [ballast][lock … commitlog ████████]  full: put refused, all can be read
                     [       ][lock … commitlog ████████]  ballast gone, or the disk made larger: put goes on
"""

import json
import logging
import os
import random
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from segmentlog.store import Flush, MessageStore, NoSpaceError, Services, Snapshot

from .reading import read
from .written_stores import SMALL, Heard, Judge, Pipe, open_files, put

PUTS_MAX = 4_000
ROOM_KIB = 512


@dataclass(slots=True)
class Filling:
    folder: Path
    seed: int
    size: int
    refused_open: int = 0
    refused_close: int = 0
    refused: int = 0
    acknowledged: int = 0
    after: int = 0
    made: int = 0

    def run(self) -> None:
        rng = random.Random(f"{self.seed} {self.size}")
        mount(self.folder, self.size)
        try:
            self._fill(rng)
        finally:
            subprocess.run(["umount", "-l", self.folder], check=True)

    def _fill(self, rng: random.Random) -> None:
        config = replace(SMALL, flush=rng.choice(list(Flush)), services=rng.choice(list(Services)))
        ballast = self.folder / "ballast"
        ballast.write_bytes(b"x" * (self.size * 1024 // 4))
        path = self.folder / "store"
        try:
            store = MessageStore.open(path, config)
        except NoSpaceError:
            self.refused_open += 1
            assert not open_files(self.folder), "a store that could not be opened left files open"
            self._make_room(ballast)
            store = MessageStore.open(path, config)
        said, saying = os.pipe()
        os.set_blocking(said, False)
        os.set_blocking(saying, False)
        pipe, heard, refused = Pipe(saying), Heard(), list[tuple[int, int]]()

        def take_note() -> None:
            new = Heard.of(os.read(said, 1 << 16))
            heard.issued |= new.issued
            heard.placed += new.placed

        def put_more(serial: int, count: int) -> bool:
            try:
                put(store, pipe, self.seed, 1, first=serial, count=count)
            except NoSpaceError:
                refused.extend((1, serial + row) for row in range(count))
                self.refused += 1
                take_note()
                return False
            take_note()
            return True

        serial = 0
        while put_more(serial, count := rng.choice([1, 1, 1, 15])) and serial < PUTS_MAX:
            serial += count
        assert serial < PUTS_MAX, "the disk is not full"
        serial += count
        for count in (1, 20, 1):
            put_more(serial, count)
            serial += count
        for _ in read(Snapshot.open(path)):  # each row is checked there
            pass
        if rng.random() < 0.5:
            try:
                store.close()
            except NoSpaceError:
                self.refused_close += 1
            assert not open_files(self.folder)
            self._make_room(ballast)
            store = MessageStore.open(path, config)
        else:
            self._make_room(ballast)
        full = len(heard.placed)
        for count in (1, 12, 1, 30, 1):
            assert put_more(serial, count), "there is room, and a put is refused"
            serial += count
        store.wait_dispatched()
        assert sum(1 for _ in read(store.snapshot())) == len(heard.placed)
        store.close()
        judge = Judge(self.seed, SMALL)
        judge.judge(path, heard, refused=refused)
        assert judge.tally.kept == 0
        self.acknowledged, self.after = full, len(heard.placed) - full
        os.close(said)
        os.close(saying)

    def _make_room(self, ballast: Path) -> None:
        ballast.unlink(missing_ok=True)
        self.made += ROOM_KIB
        subprocess.run(["mount", "-o", f"remount,size={self.size + self.made}k", self.folder], check=True)


def mount(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", folder], check=True)


def main() -> None:
    logging.disable(logging.WARNING)
    folder, seed, *sizes = sys.argv[1:]
    for size in sizes:
        filling = Filling(Path(folder), int(seed), int(size))
        try:
            filling.run()
        except Exception as error:
            error.add_note(f"a disk of {size} KiB, seed {seed}")
            raise
        told = {name: getattr(filling, name) for name in Filling.__slots__ if name != "folder"}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
