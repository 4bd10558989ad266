"""S15: many processes open the same store, one gets it, and the others name the owner and have written nothing.

::

    two Pythons at once        one opens, one is refused        forked children    have no store, and take none away
    Java's FileChannel lock    Python is refused, and back

What holds in all of them: the loser is done within a second, and the store's files are those of the winner.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Services, Snapshot, StoreInUseError
from support.parted_store import PartedStore
from support.reading import read
from support.scale import Report, scale
from support.written_stores import SMALL, message, tree

pytestmark = pytest.mark.attack

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
RACES = scale(8, 30, 6_000)
HOLDS = scale(7, 14, 2_000)
LOSER_SECONDS_MAX = 20.0  # milliseconds, but on a busy machine

CONTENDER = """
import os, sys, time
from segmentlog.store import MessageStore, Outgoing, StoreInUseError
from support.written_stores import SMALL
for line in sys.stdin:
    path, moment = line.rsplit(" ", 1)
    while time.monotonic() < float(moment):
        pass
    began = time.monotonic()
    try:
        store = MessageStore.open(path, SMALL)
    except StoreInUseError as error:
        print("lost", time.monotonic() - began, str(error), flush=True)
        sys.stdin.readline()
    else:
        store.append(Outgoing(topic="Won", body=str(os.getpid()).encode()))
        print("won", time.monotonic() - began, os.getpid(), flush=True)
        sys.stdin.readline()
        store.close()
    print("done", flush=True)
"""

HOLDER = """
import java.io.*;
import java.nio.channels.*;

class Holder {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            try (RandomAccessFile file = new RandomAccessFile(path, "rw");
                    FileLock lock = file.getChannel().tryLock(0, 1, false)) {
                System.out.println(lock == null ? "refused" : "held " + ProcessHandle.current().pid());
                in.readLine();
            }
            System.out.println("done");
        }
    }
}
"""


@contextmanager
def program(*command: str | Path) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TESTS) as started:
        yield started
        started.communicate()


TESTS = Path(__file__).parent.parent


def tell(other: "subprocess.Popen[str]", line: str) -> None:
    assert other.stdin is not None
    other.stdin.write(line + "\n")
    other.stdin.flush()


def hear(other: "subprocess.Popen[str]") -> str:
    assert other.stdout is not None
    return other.stdout.readline().rstrip("\n")


@pytest.mark.scaled
def test_two_writers_never_open_a_store_at_once(tmp_path: Path, report: Report) -> None:
    rng, outcomes, slowest = random.Random(SEED), Counter[str](), 0.0
    with program(sys.executable, "-c", CONTENDER) as one, program(sys.executable, "-c", CONTENDER) as other:
        both = (one, other)
        for race in range(RACES):
            path = tmp_path / f"store-{race % 8}"
            moment = time.monotonic() + 0.005
            for contender in both:
                tell(contender, f"{path} {moment + rng.choice([0, 0, rng.uniform(0, 0.003)])}")
            said = [hear(contender).split(" ", 2) for contender in both]
            with_store = [each for each in said if each[0] == "won"]
            assert len(with_store) == 1, said
            ((_, _, winner),) = with_store
            ((_, took, text),) = (each for each in said if each[0] == "lost")
            assert f"process {winner} has this store open" in text
            slowest = max(slowest, float(took))
            outcomes["first" if said[0][0] == "won" else "second"] += 1
            assert (path / "abort").read_text().split()[0] == winner  # and it was not written again
            for contender in both:
                tell(contender, "on")
            assert [hear(contender) for contender in both] == ["done", "done"]
    bodies = [
        bytes(row["body"])
        for number in range(min(8, RACES))
        for row in read(Snapshot.open(tmp_path / f"store-{number}"))
    ]
    report(f"S15 races, seed {SEED}", dict(outcomes))
    assert len(bodies) == RACES
    assert slowest < LOSER_SECONDS_MAX
    assert min(outcomes["first"], outcomes["second"]) >= RACES // 20


def in_child(act: Callable[[], object]) -> str:
    """Do something in a forked child, and say what it raised."""
    hearing, saying = os.pipe()
    child = os.fork()
    if child == 0:
        text = "nothing"
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - said to the parent
            text = f"{type(error).__name__}: {error}"
        os.write(saying, text.encode())
        os._exit(0)
    os.close(saying)
    with os.fdopen(hearing) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.scaled
@pytest.mark.parametrize("services", Services)
def test_a_forked_child_has_no_store_and_takes_none_away(tmp_path: Path, services: Services) -> None:
    path = tmp_path / "store"
    with PartedStore.open(
        path, replace(SMALL, services=services, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    ) as store:
        store.append(message(SEED, 1, 0))
        store.wait_dispatched()
        store.parts.log.supply.prepare()
        serial = 1
        for turn in range(HOLDS):
            store.wait_dispatched()
            before = tree(path)
            calls: list[Callable[[], object]] = [
                lambda: store.append(message(SEED, 1, 999)),
                store.close,
                store.tick,
                store.flush,
                store.wait_dispatched,
                lambda: PartedStore.open(path, SMALL),
                store.snapshot,
            ]
            said = in_child(calls[turn % len(calls)])
            if turn % len(calls) == 5:
                assert said.startswith("StoreInUseError")
                assert f"process {os.getpid()} has this store open" in said
            else:
                assert said.startswith("StoreClosedError")
                assert f"process {os.getpid()} has it open, and this process was forked from that one" in said
            assert tree(path) == before
            for _ in range(30):  # goes over the end of a segment now and then
                store.append(message(SEED, 1, serial))
                serial += 1
    assert sum(1 for _ in read(Snapshot.open(path))) == serial


@pytest.mark.scaled
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK")
def test_java_and_python_keep_each_other_out(tmp_path: Path, report: Report) -> None:
    (tmp_path / "Holder.java").write_text(HOLDER)
    subprocess.run(["javac", "-d", tmp_path, tmp_path / "Holder.java"], check=True)
    path = tmp_path / "store"
    slowest = 0.0
    with program("java", "-cp", tmp_path, "Holder") as holder:
        for turn in range(HOLDS):
            with MessageStore.open(path, SMALL) as store:
                store.append(message(SEED, 1, turn))
                tell(holder, str(path / "lock"))
                assert hear(holder) == "refused"
                tell(holder, "on")
                assert hear(holder) == "done"
            before = tree(path)
            tell(holder, str(path / "lock"))
            assert hear(holder) == f"held {holder.pid}"
            began = time.monotonic()
            with pytest.raises(StoreInUseError, match=f"process {holder.pid} has this store open") as raised:
                MessageStore.open(path, SMALL)
            slowest = max(slowest, time.monotonic() - began)
            assert raised.value.fix
            assert tree(path) == before
            tell(holder, "on")
            assert hear(holder) == "done"
    assert slowest < LOSER_SECONDS_MAX
