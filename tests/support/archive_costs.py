"""Requests and bytes of questions to one archive, counted at the server: many queues, whose messages come at random.

::

    Shape ──► store ── push ──► FaultServer ◄── each question, in a process or worker that knows nothing yet
                                  └─► Cost: lists, heads, gets, bytes, of them metadata
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import segmentlog
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.store import Flush, MessageStore, StoreConfig
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects

from .fault_server import FaultServer, serving

_BATCH_ROWS = 10_000


class Shape(NamedTuple):
    """Size of an archive: queues are those of topics of 10 queues each."""

    queues: int
    messages: int
    segment_bytes: int
    body_bytes: int = 900


class Cost(NamedTuple):
    """What one question asked of the server."""

    lists: int
    heads: int
    gets: int
    bytes: int
    metadata: int  # gets of manifests and parts


class Place(NamedTuple):
    """An archive, and a cache that questions may share."""

    server: FaultServer
    store: Path
    url: str
    folder: Path
    schema: Any = None  # of a DataFrame: load() looks at the place, for one list

    def storage(self) -> dict[str, str]:
        return self.server.options()

    @contextmanager
    def counted(self) -> Iterator[Callable[[], Cost]]:
        begin = len(self.server.requests)
        yield lambda: _cost(self.server.requests[begin:], self.server)


def _cost(requests: list[tuple[str, str, str]], server: FaultServer) -> Cost:
    lists = sum(method == "GET" and not key for method, key, _ in requests)
    gets = [(key, span) for method, key, span in requests if method == "GET" and key]
    size = 0
    for key, span in gets:
        first, _, last = span.removeprefix("bytes=").partition("-")
        size += int(last) + 1 - int(first) if span else len(server.objects[f"b/{key}"][0])
    names = [key.removeprefix("archive/") for key, _ in gets]
    metadata = sum(name.startswith(("manifests/", "parts/")) for name in names)
    return Cost(lists, sum(method == "HEAD" for method, _, _ in requests), len(gets), size, metadata)


def write_store(path: Path, shape: Shape) -> None:
    """Write a closed store."""
    config = StoreConfig(
        flush=Flush.ASYNC, segment_bytes=shape.segment_bytes, index_slots=100_000, index_entries=1_000_000
    )
    draw = np.random.default_rng(5)
    body = draw.bytes(shape.body_bytes)
    with MessageStore.open(path, config) as store:
        for first in range(0, shape.messages, _BATCH_ROWS):
            rows = min(_BATCH_ROWS, shape.messages - first)
            queue = draw.integers(0, shape.queues, rows)
            columns = {
                "topic": [f"topic-{number // 10}" for number in queue.tolist()],
                "queueId": pa.array(queue % 10, pa.int32()),
                "body": [body] * rows,
                "keys": [f"k{first + row}" for row in range(rows)],
            }
            store.append_batch(pa.RecordBatch.from_pydict(columns))
        store.wait_dispatched()


@contextmanager
def archive_of(shape: Shape, folder: Path) -> Iterator[Place]:
    """Serve the archive of a store of a shape."""
    write_store(folder / "store", shape)
    with serving() as server:
        url = "s3://b/archive"
        push(folder / "store", open_objects(url, server.options()))
        options = {f"storage.{name}": value for name, value in server.options().items()}
        schema = SegmentLogDataSource({"path": url, "subscribe": "topic-1", "cacheDir": "none", **options}).schema()
        yield Place(server, folder / "store", url, folder, schema)


def spark_tasks(place: Place, cache: str, topic: str, tasks: int) -> tuple[int, int]:
    """Plan and read a topic as Spark does, each task as if its worker were new; return tasks and rows."""
    options = {f"storage.{name}": value for name, value in place.storage().items()}
    source = SegmentLogDataSource(
        {"path": place.url, "subscribe": topic, "minPartitions": str(tasks), **options, "cacheDir": cache}
    )
    reader = source.reader(place.schema)
    planned = [pickle.loads(pickle.dumps(each)) for each in reader.partitions()]
    return len(planned), sum(batch.num_rows for each in planned for batch in reader.read(each))


def questions(place: Place, topic: str, tasks: int) -> dict[str, Callable[[str], Any]]:
    """Return questions by name; each is asked with the directory of a cache."""

    def opened(cache: str) -> Any:
        return segmentlog.open(place.url, storage=place.storage(), cache_dir=cache)

    return {
        "tasks of Spark, one topic": lambda cache: spark_tasks(place, cache, topic, tasks),
        "count of one topic": lambda cache: opened(cache).scan(topic).count(),
        "topics": lambda cache: opened(cache).topics().to_arrow().num_rows,
        "queues": lambda cache: opened(cache).queues().to_arrow().num_rows,
        "one key": lambda cache: len(opened(cache).find(topic, keys="k77").to_arrow()),
        "last:10 of a topic": lambda cache: opened(cache).scan(topic, start="last:10").to_arrow().num_rows,
    }


def costs(place: Place, topic: str, tasks: int) -> dict[str, tuple[Cost, Cost]]:
    """Ask each question with an empty cache, and again; return what each cost."""
    found = {}
    for number, (name, ask) in enumerate(questions(place, topic, tasks).items()):
        cache = str(place.folder / f"cache-{number}")
        both = []
        for _ in range(2):
            with place.counted() as cost:
                ask(cache)
            both.append(cost())
        found[name] = both[0], both[1]
    with place.counted() as cost:
        report = push(place.store, open_objects(place.url, place.storage()))
        assert report.sent_bytes == 0
    found["push of nothing new"] = cost(), cost()
    return found
