"""Commits batches into many queues of a disk that runs out of inodes. Run as a program, in its own mount namespace.

::

    unshare -m python -m support.full_inodes FOLDER INODES …        two lines of JSON for each number

    tmpfs of INODES    stage ──► commit   returned: committed     raised: not committed
                       inodes added ──► open                      the same rows are there, or none
                                        not committed: again      the rows are there once

A queue takes two inodes, a directory and a file, so the disk is full at any step of a commit. It stages, or the ledger
is not written yet, or the batch is committed and cannot be made visible. Each disk is used twice. First a
thread dispatches, which may take the last inodes before the ledger gets one. Then there is none: the ledger is first.
"""

import json
import logging
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest.mock import patch

from segmentlog.store import BatchId, MessageStore, NoSpaceError, Outgoing, Services, StoreReader
from segmentlog.store.sink import Staging, commit_batch, last_commit
from segmentlog.store.write.housekeeping import BackgroundServices

from .batches import batch_of
from .reading import read
from .written_stores import SMALL

QUEUES = 60
CONFIG = replace(SMALL, services=Services.BACKGROUND)  # else queues are filled before the ledger is written
ROWS = [Outgoing(topic="T", queue_id=number % QUEUES, body=b"%d" % number) for number in range(2 * QUEUES)]


def attempt(store: Path, name: str) -> bool:
    """Stage and commit all rows, without an id; False if that was refused."""
    try:
        with Staging.open(store, name, 0, "a", CONFIG) as staging:
            staging.add(batch_of(ROWS))
            staged = staging.finish()
        commit_batch(store, CONFIG, BatchId(), [staged])
    except NoSpaceError:
        return False
    return True


def commit_on(folder: Path, inodes: int, *, ledger_first: bool) -> dict[str, object]:
    """Commit on a disk of so many inodes; what was said, and when it showed."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=64m,nr_inodes={inodes}", "tmpfs", folder], check=True)
    try:
        store = folder / "store"
        try:
            MessageStore.open(store, CONFIG).close()
            opened = True
        except NoSpaceError:
            opened = False
        with patch.object(BackgroundServices, "start") if ledger_first else nullcontext():
            said = opened and attempt(store, "first")
        seen = sum(1 for _ in read(StoreReader.open(store))) if said else 0
        assert seen in {0, len(ROWS)}, "a part of a batch shows"
        subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=10000", folder], check=True)
        MessageStore.open(store, CONFIG).close()
        found = last_commit(store)
        assert (found is not None) == said, f"the commit said {said}, and the ledger {found}"
        if not said:
            assert attempt(store, "again")
        bodies = sorted(row["body"] for row in read(StoreReader.open(store)))
        assert bodies == sorted(row.body for row in ROWS), f"{len(bodies)} rows of {len(ROWS)}"
        return {
            "inodes": inodes,
            "ledger first": ledger_first,
            "opened": opened,
            "committed": said,
            "visible": bool(seen),
        }
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def main() -> None:
    logging.disable(logging.ERROR)
    folder, *numbers = sys.argv[1:]
    for inodes, ledger_first in product(map(int, numbers), (False, True)):
        try:
            told = commit_on(Path(folder), inodes, ledger_first=ledger_first)
        except Exception as error:
            error.add_note(f"a disk of {inodes} inodes")
            raise
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
