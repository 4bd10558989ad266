import json
import os
import subprocess
from pathlib import Path

import pytest

from segmentlog.store import NotAStoreError, QueueKey, QueueRange, ScanSpec, StoreReader
from segmentlog.store.files.fs import LocalFileSystem
from support import oracle, releases

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=0)]  # `test_live_stream.py` reads beside the same writer

TOPIC = "BenchTopic"
QUEUES = 4
COUNT = 160_000
FIRST_NUMBER = 1_000_000_000
# Small files, so that segments and queue files end under the reader's eyes.
CONFIG = {"mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20 * 3000}
SPEC = ScanSpec(columns=("queueId", "queueOffset", "uniqKey", "body"), check_crc=True)


class Follower:
    """Reads what is new in a store, again and again, and checks each row."""

    def __init__(self, store: Path) -> None:
        self.reader = StoreReader.open(store)
        self.next = dict.fromkeys((QueueKey(TOPIC, queue_id) for queue_id in range(QUEUES)), 0)
        self.bodies: set[bytes] = set()
        self.rounds = 0

    @property
    def rows(self) -> int:
        return sum(self.next.values())

    def read(self) -> None:
        """Read from where the last round ended."""
        self.reader.refresh()
        ranges = []
        for key, start in self.next.items():
            bounds = self.reader.bounds(key)
            assert bounds.min_offset == 0
            assert bounds.max_offset >= start, f"{key} went back"
            ranges.append(QueueRange(key, start, bounds.max_offset))
        before = self.rows
        for task in self.reader.plan(ranges, max_bytes=8 << 20):
            for batch in self.reader.scan(task, SPEC):
                queues, offsets, keys, bodies = (column.to_pylist() for column in batch.columns)
                self.bodies.update(bodies)
                for queue_id, offset, uniq_key in zip(queues, offsets, keys, strict=True):
                    key = QueueKey(TOPIC, queue_id)
                    assert offset == self.next[key]
                    # The writer numbers the messages of each queue as it puts them.
                    assert uniq_key.endswith(f"M{queue_id}{FIRST_NUMBER + offset}")
                    self.next[key] += 1
        assert self.rows == before + sum(map(len, ranges))
        self.rounds += self.rows > before


@pytest.mark.parametrize("version", releases.STORES)
def test_a_reader_follows_a_live_writer(tmp_path: Path, version: str) -> None:
    oracle.write(tmp_path / "first", {}, version, [])  # builds this version, where it has not been
    store, config = tmp_path / "store", tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    command = [str(oracle.RUN), "bench-put", "--store", str(store), "--config", str(config), "--warmup", "0"]
    command += ["--size", "200", "--count", str(COUNT), "--threads", str(QUEUES), "--window", "8"]
    environment = {**os.environ, "ROCKETMQ_VERSION": version}
    follower: Follower | None = None
    owners: set[int | None] = set()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        try:
            while writer.poll() is None:
                try:
                    follower = follower or Follower(store)
                except NotAStoreError:
                    continue
                follower.read()
                if follower.reader.is_live:
                    owners.add(LocalFileSystem().lock_owner(str(store / "lock")))
        finally:
            if writer.poll() is None:
                writer.kill()
        _, errors = writer.communicate()
    assert writer.returncode == 0, errors[-4000:]
    assert follower is not None
    follower.read()
    assert follower.rows == COUNT
    assert len(follower.bodies) == 1
    assert follower.rounds > 3, "nothing was read while it was written"
    assert owners - {None} == {writer.pid}  # `run` becomes the Java process
    assert not follower.reader.is_live
    assert len(list((store / "commitlog").iterdir())) > 5
