"""A stream beside a real broker's store that is written at full speed: every message once, in order in each queue.

::

    RocketMQ's DefaultMessageStore ──► store ◄── the stream's planner and tasks
      four threads, a queue each                 message n of queue q has the key …Mq(1,000,000,000 + n)
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support import oracle
from support.scale import scale
from support.streams import Stream

pytestmark = [*oracle.MARKS, pytest.mark.scaled, pytest.mark.timeout(900)]

TOPIC = "BenchTopic"
QUEUES = 4
SECONDS = scale(3, 5, 120)
# Small files, so that many end under the reader's eyes.
CONFIG = {
    "mappedFileSizeCommitLog": scale(16 << 20, 16 << 20, 256 << 20),
    "mappedFileSizeConsumeQueue": 20 * scale(5000, 5000, 100_000),
}

MODES = {
    "files": {},
    "rocksdb": {"storeType": "defaultRocksDB"},
    "both": {"rocksdbCQDoubleWriteEnable": True},
    "both apart": {"rocksdbCQDoubleWriteEnable": True, "useSeparateStorePathForRocksdbCQ": True},
}
"""Settings of RocketMQ 5.5 that say where queues are."""

FIRST_NUMBER = 1_000_000_000
NUMBER_DIGITS = 10
COLUMNS = ("queueId", "queueOffset", "uniqKey")


class Received:
    """Takes in what a stream delivers, in the order in which it does."""

    def __init__(self, queues: int) -> None:
        self.next = [0] * queues
        self.batches = 0

    @property
    def rows(self) -> int:
        return sum(self.next)

    def take(self, batch: pa.RecordBatch | pa.Table) -> None:
        queue_id, offset = (np.asarray(batch.column(name)) for name in COLUMNS[:2])
        number = pc.utf8_slice_codeunits(batch.column("uniqKey"), -NUMBER_DIGITS).cast(pa.int64())
        assert (np.asarray(number) == FIRST_NUMBER + offset).all()
        for each in np.unique(queue_id).tolist():
            found = offset[queue_id == each]
            assert (found == np.arange(self.next[each], self.next[each] + found.size)).all(), f"queue {each}"
            self.next[each] += found.size


def begun(folder: Path, version: str, mode: str = "files") -> Path:
    """Make a store in which there is something, but nothing to subscribe to; this builds the version, too."""
    first = [{"topic": "Before", "queueId": 0, "body": "first"}]
    oracle.write(folder / "store", CONFIG | MODES[mode], version, first)
    return folder / "store"


@contextmanager
def writing(store: Path, version: str, mode: str = "files") -> Iterator["subprocess.Popen[bytes]"]:
    """Let RocketMQ write for a while, as fast as it can."""
    config = store.parent / "config.json"
    config.write_text(json.dumps(CONFIG | MODES[mode]))
    command = [str(oracle.RUN), "bench-put", "--store", str(store), "--config", str(config), "--warmup", "0"]
    command += ["--size", "200", "--count", "1000000000", "--seconds", str(SECONDS), "--threads", str(QUEUES)]
    environment = {**os.environ, "ROCKETMQ_VERSION": version}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        try:
            yield writer
        finally:
            if writer.poll() is None:
                writer.kill()


def written(writer: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Say what RocketMQ says that it has written."""
    out, errors = writer.communicate()
    assert writer.returncode == 0, errors[-4000:]
    counted: dict[str, Any] = json.loads(out.splitlines()[-1])
    return counted


CASES = [
    *(("5.5.1", "both"), ("5.5.1", "rocksdb"), ("5.3.3", "files"), ("4.9.1", "files"), ("5.5.1", "both apart")),
    *scale((), (), (("5.1.0", "files"), ("5.4.0", "files"), ("5.5.0", "files"))),
]


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize(("version", "mode"), CASES)
def test_the_stream_reader_beside_a_live_broker(tmp_path: Path, version: str, mode: str) -> None:
    received = Received(QUEUES)
    store = begun(tmp_path, version, mode)
    stream = Stream(store, subscribePattern=TOPIC, startingOffsets="earliest", checkCrc="true")

    def batch() -> bool:
        found = stream.batches()
        for each in found or ():
            received.take(each)
        received.batches += found is not None
        return found is not None

    with writing(store, version, mode) as writer:
        while writer.poll() is None:
            if not batch():
                time.sleep(0.01)
        during = received.batches
        counted = written(writer)
    while batch():
        pass
    shutil.rmtree(store)  # some gigabytes in the long run
    assert received.rows == counted["count"]
    if not during:  # all came, but not beside the writer
        pytest.skip("nothing was read while it was written: the machine is too busy")
