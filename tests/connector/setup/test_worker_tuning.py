import errno
import gc
import importlib.util
import io
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from segmentlog.connector.find import LookupReader
from segmentlog.connector.metadata import MetadataReader
from segmentlog.connector.read import SegmentLogBatchReader
from segmentlog.connector.setup import worker_tuning as worker
from segmentlog.connector.stream.reader import SegmentLogStreamReader
from segmentlog.connector.write import writer
from segmentlog.store import MessageStore, Outgoing, StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPEND = """
import sys
from segmentlog.store import MessageStore, Outgoing
for _ in range(2):
    with MessageStore.open(sys.argv[1]) as store:
        store.append(Outgoing(topic="T", body=b"body", tags="a", keys="k l", properties={"color": "red"}))
        store.append(Outgoing(topic="T", body=b"body"))
        store.wait_dispatched()
    with open(sys.argv[1] + "/abort", "w"):  # as after a crash
        pass
print("pandas" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    worker.settle_worker.cache_clear()
    worker.keep_memory.cache_clear()
    monkeypatch.delenv(worker.SWITCH, raising=False)


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the ends of a TCP connection; the first has answered, and acknowledges late from now on."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            for _ in range(4):
                there.sendall(b"asked")
                here.recv(5)
                here.sendall(b"answered")
                there.recv(8)
            here.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            yield here, there


def acknowledges_at_once(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


class Sent(worker.SentToWorkers):
    """Stands for a reader or a writer."""

    def __init__(self) -> None:
        self.text = "state"


SENT = pickle.dumps(Sent())


def main(infile: object, outfile: object) -> None:
    """Stands for PySpark's: the frame whose ``outfile`` is the connection to Spark."""
    del infile
    assert pickle.loads(SENT).text == "state"


def test_a_worker_acknowledges_a_task_when_it_arrives_and_no_other_connection(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = connection
    with here.makefile("wb") as file:
        main(file, file)
        assert not acknowledges_at_once(here)  # not a worker of Spark's
        monkeypatch.setattr(worker.TaskContext, "get", object)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as spark:
            with spark.makefile("wb") as other:
                main(other, other)
            assert acknowledges_at_once(spark)
            assert not acknowledges_at_once(here)
        main(file, file)
    assert acknowledges_at_once(here)
    here.sendall(b"open as ever")
    assert there.recv(20) == b"open as ever"


def test_a_socket_option_that_the_kernel_refuses_is_not_an_error(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        asked.append(1)
        raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))

    asked: list[int] = []
    monkeypatch.setattr(worker.TaskContext, "get", object)
    monkeypatch.setattr(socket.socket, "setsockopt", refused)
    before = len(os.listdir("/proc/self/fd"))
    with connection[0].makefile("wb") as file:
        main(file, file)
    assert asked == [1]
    assert len(os.listdir("/proc/self/fd")) == before


def test_streams_without_a_tcp_connection_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.TaskContext, "get", object)
    before = len(os.listdir("/proc/self/fd"))
    one, other = socket.socketpair()
    with one, other, one.makefile("wb") as unix, (tmp_path / "file").open("wb") as file:
        for outfile in (unix, file, io.BytesIO(), None):
            main(outfile, outfile)
        closed = one.makefile("wb")
        closed.close()
        main(closed, closed)
    pickle.loads(SENT)  # no `main` of PySpark's calls it
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("text", ["off", "OFF", "false", " 0 "])
def test_the_switch_leaves_a_worker_as_it_is(
    text: str, connection: tuple[socket.socket, socket.socket], chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.TaskContext, "get", object)
    monkeypatch.setenv(worker.SWITCH, text)
    frozen = gc.get_freeze_count()
    with connection[0].makefile("wb") as file:
        main(file, file)
    worker.keep_memory()
    worker.settle_worker()
    assert (chosen, gc.get_freeze_count()) == ([], frozen)
    assert not acknowledges_at_once(connection[0])


@pytest.mark.parametrize(
    "kind", [SegmentLogBatchReader, SegmentLogStreamReader, MetadataReader, LookupReader, writer._Writer]
)
def test_all_that_spark_sends_with_a_task_is_acknowledged(kind: type) -> None:
    assert issubclass(kind, worker.SentToWorkers)


WATCHED = """
import socket
from pyspark.sql.datasource import DataSourceReader
from segmentlog.connector import SegmentLogDataSource
from segmentlog.connector.setup.worker_tuning import SentToWorkers

class Watching(SentToWorkers, DataSourceReader):
    def __init__(self, reader, path):
        self.reader = reader
        self.path = path

    def __setstate__(self, state):
        set_option, asked = socket.socket.setsockopt, []
        socket.socket.setsockopt = lambda connection, *option: asked.append(option) or set_option(connection, *option)
        try:
            super().__setstate__(state)
        finally:
            socket.socket.setsockopt = set_option
        self.asked = asked

    def partitions(self):
        return self.reader.partitions()

    def read(self, partition):
        import gc
        yield from self.reader.read(partition)
        with open(self.path + ".seen", "w") as file:
            print(gc.get_freeze_count() > 0, (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1) in self.asked, file=file)

class Watched(SegmentLogDataSource):
    @classmethod
    def name(cls):
        return "watched"

    def reader(self, schema):
        return Watching(SegmentLogDataSource.reader(self, schema), self.options["path"])
"""


@pytest.mark.spark
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize(("switch", "seen"), [("on", "True True"), ("off", "False False")])
def test_the_switch_works_in_the_workers_of_spark(
    switch: str, seen: str, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also, that the descriptor of PySpark is found where PySpark runs. Another environment has workers of its own."""
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=1 << 16)) as store:
        store.append(Outgoing(topic="T", body=b"body"))
    names: dict[str, Any] = {"__name__": "__main__"}  # so that its classes are sent to the workers, not their names
    exec(WATCHED, names)
    monkeypatch.setitem(spark.sparkContext.environment, worker.SWITCH, switch)
    spark.dataSource.register(names["Watched"])
    assert spark.read.format("watched").option("subscribe", "T").load(str(tmp_path / "store")).count() == 1
    assert (tmp_path / "store.seen").read_text(encoding="utf-8").strip() == seen


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Backends of the pools that Arrow is told to use; nothing is changed in this process."""
    pools: list[str] = []
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    monkeypatch.setattr(worker.pa, "set_memory_pool", lambda pool: pools.append(pool.backend_name))
    monkeypatch.setattr(worker.ctypes, "CDLL", lambda _: type("Libc", (), {"mallopt": staticmethod(lambda *_: 1)}))
    return pools


@pytest.mark.parametrize("reason", ["no worker", "another allocator is chosen", "no mallopt"])
def test_memory_is_kept_once_in_spark_s_workers_unless_there_is_a_reason(
    reason: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        if reason != "no worker":
            patched.setattr(worker.TaskContext, "get", object)
        if reason == "another allocator is chosen":
            patched.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
        if reason == "no mallopt":
            patched.setattr(worker.ctypes, "CDLL", lambda _: object())
        worker.keep_memory()
        assert chosen == []
    worker.keep_memory.cache_clear()
    monkeypatch.setattr(worker.TaskContext, "get", object)
    worker.keep_memory()
    worker.keep_memory()
    assert chosen == [pa.system_memory_pool().backend_name]


needs_pandas = pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="there is no pandas to load")


def loads_pandas(program: str, store: Path) -> bytes:
    return subprocess.run([sys.executable, "-c", program, str(store)], capture_output=True, check=True).stdout


@pytest.mark.slow
@needs_pandas
def test_appending_a_message_does_not_load_pandas(tmp_path: Path) -> None:
    assert loads_pandas(APPEND, tmp_path / "store") == b"False\n"
