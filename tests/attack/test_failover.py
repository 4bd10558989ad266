"""Failover: masters are killed under double writes, replicas take over, and nothing that was confirmed is lost."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from segmentlog.store import BatchGapError, BatchId, MessageStore, ReadFrom, Snapshot, StaleMasterError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import Address, FollowedLog, Quorum, ReplicationServer, Tls, demote, promote
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.log.confirmed import confirmed_offset
from segmentlog.store.log.epochs import check_current, find_epochs
from segmentlog.store.maintenance import verify
from segmentlog.store.sink import Staging, commit_batch
from segmentlog.store.write.batch_commit import CommittedBatch
from support import certificates
from support.batches import batch_of
from support.ha import free_port
from support.promoted import PLAIN, ROOMY, append, follow_up, served
from support.reading import read
from support.replicas import following, log_bytes, until
from support.scale import Report, scale
from support.written_stores import message

pytestmark = [
    pytest.mark.attack,
    pytest.mark.usefixtures("frequent_heartbeats"),
    pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING)),
]
FS = LocalWritableFileSystem()
Rows = dict[tuple[str, int, int], bytes]
JOBS = count()

MASTER = """
import sys
sys.path.insert(0, {tests!r})
from support.batches import batch_of
from support.promoted import {config}
from support.written_stores import message
from segmentlog.store import BatchId, MessageStore, NoReplicaError
from segmentlog.store.ha import Attachments, Quorum, ReplicationServer, ServerConfig, Tls
from segmentlog.store.sink import Staging
path = {path!r}
quorum = Quorum(2, timeout_s=60)
attached = Attachments(acknowledgers=[quorum], listeners=[quorum])
tls = Tls(certificate={tls.certificate!r}, key={tls.key!r}, authority={tls.authority!r})
with MessageStore.open(path, {config}, attached=attached) as store:
    with ReplicationServer(store, quorum, ServerConfig(port={port}, tls=tls)):
{work}
"""
"""A master that waits for one replica, in a process of its own."""
MESSAGES = """
for serial in range(1 << 30):
    try:
        placed = store.append(message(7, 1, serial))
    except NoReplicaError:
        continue
    print(placed.physical_offset + placed.size, flush=True)
"""
BATCHES = """
for number in range({first}, 1 << 30):
    with Staging.open(path, "job%d" % number, 0, "a", ROOMY) as staging:
        staging.add(batch_of([message(7, number + 2, serial) for serial in range({rows})]))
        staged = [staging.finish()]
    while True:
        try:
            store.commit_batch(BatchId("q", number, contiguous=True), staged)
        except NoReplicaError:
            continue
        break
    print(number, flush=True)
"""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.ha.replica.FIRST_PAUSE_S", 0.01)


@pytest.mark.scaled
def test_killed_masters_follow_the_replicas_that_replaced_them(tmp_path: Path) -> None:
    authority, draw = certificates.Authority(tmp_path / "ca"), random.Random(49)
    ours: Tls = authority.sign("peer")
    master, replica, port, cuts = tmp_path / "a", tmp_path / "b", free_port(), 0
    append(master, range(3))
    for number in range(1, scale(1, 5, 300) + 1):
        confirmed, seen = write_until_killed(master, replica, port, ours, draw.randrange(5, 60))
        promoted = promote(replica)
        assert promoted.epoch == number
        assert log_bytes(replica)[: len(confirmed)] == confirmed, "what was confirmed is lost"
        assert seen.items() <= rows_of(Snapshot.open(replica)).items(), "a reader saw what is lost"
        # The former master comes back, and writes on: no replica has told it yet.
        end = append(replica, range(number * 1_000_000, number * 1_000_000 + draw.randrange(1, 9)))
        append(master, range(number * 2_000_000, number * 2_000_000 + draw.randrange(1, 9)))
        step_down(master, replica, port, ours)
        with served(replica, ours) as server:
            cut = demote(master, Address("127.0.0.1", server.port), tls=ours)
            cuts += cut.stop > cut.start
            assert cut.start >= len(confirmed)
            follow_up(master, server.port, end, ours)
        check_current(FS, str(master))
        assert log_bytes(master)[:end] == log_bytes(replica)[:end]
        assert find_epochs(FS, str(master)) == find_epochs(FS, str(replica))
        assert verify(master).findings == verify(replica).findings == ()
        master, replica = replica, master
    assert cuts == number


def running(work: str, path: Path, port: int, tls: Tls, config: str = "PLAIN") -> subprocess.Popen[str]:
    """Start a master on a store, whose lines of output say what was acknowledged."""
    tests, work = str(Path(__file__).parents[1]), indent(work, " " * 8)
    program = MASTER.format(tests=tests, path=str(path), port=port, tls=tls, work=work, config=config)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def write_until_killed(master: Path, replica: Path, port: int, tls: Tls, count: int) -> tuple[bytes, Rows]:
    """Kill a master under double writes; return its confirmed log, and the rows that readers of it saw."""
    with running(MESSAGES, master, port, tls) as process:
        assert process.stdout is not None
        try:
            with following(replica, port, store_config=PLAIN, probe_s=0.3, tls=tls):
                acknowledged = [int(process.stdout.readline()) for _ in range(count)]
                seen = rows_of(Snapshot.open(master, read_from=ReadFrom.CONFIRMED))
                process.kill()
                acknowledged += [int(line) for line in process.stdout.read().split()]
        finally:
            process.kill()
    assert acknowledged[-1] <= confirmed_offset(FS, str(master))
    left = rows_of(Snapshot.open(master, read_from=ReadFrom.CONFIRMED))
    assert count <= len(seen) <= len(left)
    assert seen.items() <= left.items()
    return log_bytes(master)[: confirmed_offset(FS, str(master))], left


def rows_of(snapshot: Snapshot) -> Rows:
    rows = read(snapshot, columns=("topic", "queueId", "queueOffset", "body"))
    return {(row["topic"], row["queueId"], row["queueOffset"]): row["body"] for row in rows}


def step_down(stale: Path, replaced_by: Path, port: int, tls: Tls) -> None:
    """Serve a stale master until the store that replaced it, as a replica by mistake, tells it."""
    confirmed = confirmed_offset(FS, str(stale))
    with (
        served(stale, tls, port, copies=2) as server,
        following(replaced_by, port, store_config=PLAIN, tls=tls),
    ):
        until(lambda: "has replaced it" in server.problem)
    with pytest.raises(StaleMasterError):
        ReplicationServer(FollowedLog(stale), Quorum())
    with MessageStore.open(stale, PLAIN) as store, pytest.raises(StaleMasterError):
        store.append(message(7, 2, 1))
    assert confirmed_offset(FS, str(stale)) == confirmed


ROWS = 1500


@pytest.mark.scaled(quick=0)  # the test above has two stores of the chain
@pytest.mark.timeout(scale(600, 1800, 7200))
def test_batches_of_a_chain_are_there_once_whichever_store_is_promoted(tmp_path: Path, report: Report) -> None:
    """A master is killed under a sink; a replica, or a replica of it that lags, is promoted, and the others follow."""
    authority, draw = certificates.Authority(tmp_path / "ca"), random.Random(51)
    tls: Tls = authority.sign("peer")
    port, found, rounds = free_port(), Counter[str](), scale(1, 2, 100)
    for number in range(rounds + 20):
        # The master may die between two batches, so a few rounds can end without a part of one.
        if number >= rounds and found["parts"]:
            break
        if number % 5 == 0:  # every look reads all rows
            stores, first = [tmp_path / f"{name}{number}" for name in "abc"], 0
            append(stores[0], range(3), ROOMY)
        with running(BATCHES.format(first=first, rows=ROWS), stores[0], port, tls, "ROOMY") as process:
            last = batches_until_killed(process, stores[1:], port, tls, draw=draw)
        # The newest replica, or the last of the chain, which may lag by batches that were acknowledged.
        if draw.random() < 0.5:
            stores[1], stores[2] = stores[2], stores[1]
        old, promoted, other = stores
        for replica in stores[1:]:
            assert set(batches(replica).values()) <= {ROWS}, "readers see a part of a batch"
        for replica in stores[1:]:
            if draw.random() < 0.5:
                found["parts"] += demoted_in_part(replica, old, tls)
                assert set(batches(replica).values()) <= {ROWS}, "a demotion shows a part of a batch"
        found["parts"] += promote(promoted).copy is not None
        first, end = gone_on(promoted, last, found)
        with served(promoted, tls) as server:
            demote(old, Address("127.0.0.1", server.port), tls=tls)
            demote(other, Address("127.0.0.1", server.port), tls=tls)
            with following(old, server.port, store_config=ROOMY, probe_s=0.3, tls=tls) as middle:
                until(lambda middle=middle, end=end: middle.status.end == end)
                with served(old, tls) as chained:
                    follow_up(other, chained.port, end, tls, ROOMY)
        assert batches(old) == batches(promoted) == batches(other) == dict.fromkeys(range(first), ROWS)
        if number % 5 == 4:
            assert verify(promoted).findings == verify(other).findings == ()
        stores = [promoted, old, other]
    report("failovers of a chain", dict(found))
    assert found["parts"], "no promotion found a batch in part"


def demoted_in_part(replica: Path, master: Path, tls: Tls) -> bool:
    """Demote a replica to the master that it followed; return whether the replica had a part of a batch."""
    with MessageStore.open(master, ROOMY):
        pass  # as after a crash
    with served(master, tls) as server:
        return demote(replica, Address("127.0.0.1", server.port), tls=tls).copy is not None


def gone_on(path: Path, last: int, found: Counter[str]) -> tuple[int, int]:
    """Go on with a promoted store, as a stream does whose last batch was ``last``."""
    newest = max(batches(path), default=-1)
    assert newest <= last + 1
    try:
        commit(path, last + 1)
    except BatchGapError:
        found["gaps"] += 1
        assert newest < last, "a batch that follows is refused"
        for number in range(newest + 1, last + 2):
            assert not commit(path, number).repeated, "a lost batch counts as a repetition"
    else:
        assert newest >= last, "a batch is missing, and nobody is told"
    assert commit(path, last).repeated
    found["failovers"] += 1
    done = commit(path, last + 2)
    assert batches(path) == dict.fromkeys(range(last + 3), ROWS)
    return last + 3, done.stop


def batches_until_killed(
    master: subprocess.Popen[str], replicas: Sequence[Path], port: int, tls: Tls, *, draw: random.Random
) -> int:
    """Kill a master that commits batches, mostly after a replica left with a part of one; return the last number."""
    assert master.stdout is not None
    first, second = replicas
    settings: dict[str, Any] = {"store_config": ROOMY, "probe_s": 0.3, "tls": tls}
    try:
        with (
            following(first, port, **settings, bytes_per_s=1 << 20) as follower,
            served(first, tls) as chained,
            following(second, chained.port, **settings, bytes_per_s=draw.choice([1 << 17, 1 << 20])),
        ):
            done = [int(master.stdout.readline()) for _ in range(draw.randrange(1, 4))]
            assert set(batches(second).values()) <= {ROWS}, "readers see a part of a batch"
            if draw.random() < 0.7:
                until(lambda: has_part_of_a_batch(follower.store.end_offset, first))
            else:
                master.kill()
        # A replica that stayed would take the rest of the batch from its socket.
        master.kill()
        done += [int(line) for line in master.stdout.read().split()]
    finally:
        master.kill()
    return done[-1]


def has_part_of_a_batch(end: int, replica: Path) -> bool:
    return BatchRecords(FS, str(replica)).history().whole_end(end) < end


def commit(path: Path, number: int) -> CommittedBatch:
    """Commit a batch to a store that no process has open, as a sink does that goes on there."""
    with Staging.open(path, f"again{next(JOBS)}", 0, "a", ROOMY) as staging:
        staging.add(batch_of([message(7, number + 2, serial) for serial in range(ROWS)]))
        staged = [staging.finish()]
    return commit_batch(path, ROOMY, BatchId("q", number, contiguous=True), staged)


def batches(path: Path) -> dict[int, int]:
    """Return how many different rows of each batch are in a store; an `AssertionError` if one is there twice."""
    rows = [row["uniqKey"] for row in read(Snapshot.open(path), columns=("uniqKey", "properties"))]
    assert len(rows) == len(set(rows)), "a row is there twice"
    numbers = Counter(int(each.partition(".")[0]) - 2 for each in rows)
    assert numbers.pop(-1, 0) <= 3, "the messages that were there before"
    return dict(numbers)
