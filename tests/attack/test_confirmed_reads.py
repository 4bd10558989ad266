"""Nothing confirmed is lost by a failover: masters are killed between append and acknowledgement, again and again.

::

    master process ── appends ──► replica          killed at a random moment; its directory is given up
          ▲ confirmed offset          │
       reader: remembers all rows     └──► the next master; an empty directory follows it

    model    what any confirmed reader saw, and what any append acknowledged  ⊆  the new master, unchanged
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import ReadFrom, StoreReader, UnconfirmedError
from support.reading import read
from support.replicas import following, until
from support.scale import scale
from support.written_stores import SMALL

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

PLAIN = replace(SMALL, record_crc=False)
COLUMNS = ("topic", "queueId", "queueOffset", "body")

WRITER = """
import sys, time
from contextlib import suppress
from dataclasses import replace
sys.path.insert(0, {tests!r})
from segmentlog.store import BatchId, MessageStore, NoReplicaError
from segmentlog.store.ha import Attachments, Quorum, ReplicationServer, ServerConfig
from segmentlog.store.sink import Staging
from support.batches import batch_of
from support.written_stores import SMALL, message
config = replace(SMALL, record_crc=False)
acknowledged = open({path!r} + ".acknowledged", "w")
quorum = Quorum(2, timeout_s=30)
attached = Attachments(acknowledgers=[quorum] if {waits} else [], listeners=[quorum])
with MessageStore.open({path!r}, config, attached=attached) as store:
    with ReplicationServer(store, quorum, ServerConfig(port=0)) as server:
        print(server.port, flush=True)
        with suppress(NoReplicaError):
            store.append(message({seed}, 1, 0))  # an empty log has nothing to acknowledge
        while server.confirmed < store.end_offset:
            time.sleep(0.01)
        with suppress(NoReplicaError):
            for serial in range(1 << 30):
                if serial % 7 == 6:
                    with Staging.open({path!r}, f"job{{serial}}", 0, "a", config) as staging:
                        staging.add(batch_of([message({seed}, 2 + serial, each) for each in range(20)]))
                        staged = [staging.finish()]
                    committed = store.commit_batch(BatchId(), staged)
                    end = committed.stop
                else:
                    placed = store.append(message({seed}, 0, serial))
                    end = placed.physical_offset + placed.size
                print(end, file=acknowledged, flush=True)
                time.sleep(0.002)  # a log that grows as fast as it can has thousands of segments in the end
        time.sleep(600)
"""


class Model:
    def __init__(self) -> None:
        self.rows: dict[tuple[str, int, int], bytes] = {}
        self.reads = 0

    def look(self, path: Path) -> int:
        """Read everything that is confirmed; return the number of rows."""
        try:
            reader = StoreReader.open(path, read_from=ReadFrom.CONFIRMED)
        except UnconfirmedError:  # the next master has just begun
            return 0
        found = rows_of(reader)
        self.check(found)
        self.rows |= found
        self.reads += 1
        return len(found)

    def check(self, found: dict[tuple[str, int, int], bytes]) -> None:
        for key in self.rows.keys() & found.keys():
            assert self.rows[key] == found[key], f"{key} was another message before"


@contextmanager
def running(script: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a master; yield it with its port, and kill it in the end."""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as master:
        try:
            assert master.stdout is not None
            yield master, int(master.stdout.readline())
        finally:
            master.kill()


def stop_of(path: Path) -> int:
    return StoreReader.open(path).readable_stop()


def rows_of(reader: StoreReader) -> dict[tuple[str, int, int], bytes]:
    rows = read(reader, columns=COLUMNS)
    return {(row["topic"], row["queueId"], row["queueOffset"]): row["body"] for row in rows}


@pytest.mark.parametrize("waits", [True, False], ids=["synchronous", "asynchronous"])
def test_nothing_confirmed_is_lost_by_a_failover(
    tmp_path: Path, record_property: Callable[[str, object], None], *, waits: bool
) -> None:
    draw, model, undone = random.Random(17 + waits), Model(), 0
    kills = scale(2, 10, 100)
    for kill in range(kills):
        first, copy = tmp_path / f"{kill}", tmp_path / f"{kill + 1}"
        script = WRITER.format(tests=str(Path(__file__).parents[1]), path=str(first), seed=kill, waits=waits)
        with running(script) as (master, port):
            with following(copy, port, store_config=PLAIN, probe_s=0.3):
                before = len(model.rows)
                until(lambda: model.look(first) > before + 20)  # noqa: B023
                time.sleep(draw.random() * 0.2)
                if kill % 2:
                    os.kill(master.pid, signal.SIGKILL)
                    master.wait()
            # The network fails before the other masters: what they append after that is not confirmed.
            until(lambda: waits or kill % 2 or stop_of(first) > stop_of(copy))  # noqa: B023
            model.look(first)
        model.look(first)  # what a killed master left is read, too
        ends = Path(f"{first}.acknowledged").read_text().split("\n")[:-1]
        acknowledged = max(map(int, ends), default=0)
        survivor = StoreReader.open(copy)
        assert not waits or survivor.readable_stop() >= acknowledged
        held = rows_of(survivor)
        model.check(held)
        assert not model.rows.keys() - held.keys(), "a confirmed message is lost"
        undone += len(rows_of(StoreReader.open(first)).keys() - held.keys())
    assert waits or undone, "each replica had everything: no failover could undo anything"
    record_property("failovers", kills)
    record_property("confirmed reads", model.reads)
    record_property("messages undone by failovers, none of them confirmed", undone)
