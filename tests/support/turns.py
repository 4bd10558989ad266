"""Processes that commit batches to one store, taking turns.

::

    test ── go, to all at once ──► committer: stage, commit, pause of up to 50 ms, stage, …
         ◄── "repeated" or "appended", one line a batch ────┘

Run as a program: ``python -m support.turns PATH APP BATCHES SEED``.
"""

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from segmentlog.store import Flush

from .commit_nursery import stage_and_commit

TESTS = Path(__file__).parent.parent


def commit_together(path: str, apps: Sequence[str], batches: int, seed: int) -> list[list[bool]]:
    """Let a process for each application commit its batches, all at once; of each batch, whether it was there."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "support.turns", path, app, str(batches), str(seed + number)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, app in enumerate(apps)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return [[word == "repeated" for word in words] for words in said]


def _commit(path: str, app: str, batches: int, seed: int) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    rng = random.Random(seed)
    for version in range(batches):
        repeated = stage_and_commit(path, version, f"a{seed}", Flush.SYNC, app=app)
        sys.stdout.write("repeated\n" if repeated else "appended\n")
        time.sleep(rng.uniform(0, 0.05))


if __name__ == "__main__":
    _commit(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
