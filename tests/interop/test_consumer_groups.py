"""Consumer groups: RocketMQ's offset manager and allocation strategies, and ours.

Its jars come from Maven's own cache, or once from its repository, and are kept where the other oracle's are.
"""

import json
import os
import random
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey
from segmentlog.store.format.broker_config import ClientQueue
from segmentlog.store.groups import group_offsets
from segmentlog.store.groups.admin import publish_progress
from segmentlog.store.groups.allocation import allocate_averagely, allocate_by_circle, allocate_consistent_hash
from support import oracle, releases
from support.oracle import BRIEF, output_of

FOLDER = Path(__file__).parent / "groups"
NEEDED = ("java", "javac", "mvn")
MISSING = oracle.available(NEEDED)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.scaled(quick=1),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

SEED = 20261121
STRATEGIES = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": allocate_consistent_hash,
}


def loaded_offsets(document: Path, version: str) -> list[str]:
    """Return the content that a broker loads from a ``consumerOffset.json``: ``topic@group queue offset``, sorted."""
    return _ask(version, "offsets", str(document))


def commit_offset(document: Path, version: str, group: str, queue: tuple[str, int], offset: int) -> list[str]:
    """Let a broker load a document, set an offset and save it; return the content that it then loads."""
    return _ask(version, "commit", str(document), group, queue[0], str(queue[1]), str(offset))


def allocated(version: str, cases: Sequence[tuple[Sequence[str], Sequence[tuple[str, str, int]]]]) -> list[list[str]]:
    """Return the queues of each consumer of each case by each strategy: ``strategy consumer topic:broker:queue,…``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases"
        lines = [
            ",".join(consumers) + "\t" + ",".join(":".join(map(str, queue)) for queue in queues)
            for consumers, queues in cases
        ]
        file.write_text("\n".join(lines), encoding="utf-8")
        answers = iter(_ask(version, "allocate", str(file)))
        return [[next(answers) for _ in range(3 * len(consumers))] for consumers, _ in cases]


def _ask(version: str, *arguments: str) -> list[str]:
    with tempfile.TemporaryDirectory() as home:  # where its loggers make their folder
        jars = _jars(version)
        options = [*BRIEF.split(), f"-Duser.home={home}", "-Dfile.encoding=UTF-8", "-cp", f"{jars}:{jars}/*"]
        lines = output_of(["java", *options, "GroupsOracle", *arguments], f"RocketMQ {version}")
    return [line.removeprefix("> ") for line in lines if line.startswith("> ")]


def _jars(version: str) -> Path:
    """Make the folder of a version's jars and our class, whole or not at all."""
    source = FOLDER / "GroupsOracle.java"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("SEGMENTLOG_ORACLE_CACHE") or caches / "segmentlog-oracle")
    jars = cache / f"groups-{version}-{zlib.crc32(source.read_bytes()):08x}"
    if not jars.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            made = Path(folder) / "jars"
            options = [f"-Drocketmq.version={version}", f"-DoutputDirectory={made}", "-DincludeScope=runtime"]
            command = ["mvn", "-q", "-B", "-f", FOLDER / "pom.xml", "dependency:copy-dependencies", *options]
            output_of(command, f"Maven for RocketMQ {version}")
            # Once: each start of a source file would compile it, which takes longer than all else.
            output_of(["javac", "-cp", f"{made}/*", "-d", made, source], f"javac for RocketMQ {version}")
            if not jars.exists():  # another worker may have been first
                made.rename(jars)
    return jars


def _cases() -> list[tuple[list[str], list[tuple[str, str, int]]]]:
    """Groups and topics of many sizes, in no order; some with more consumers than queues."""
    choose = random.Random(SEED)
    cases = []
    for number in range(60):
        consumers = [f"10.0.{choose.randrange(4)}.{n}@{choose.randrange(1 << 20)}" for n in range(1 + number % 13)]
        brokers = choose.sample(["broker-a", "broker-b", "Broker", "broker-é"], 1 + number % 3)
        queues = [(f"Topic{number % 5}", broker, n) for broker in brokers for n in range(choose.randrange(1, 12))]
        choose.shuffle(consumers)
        choose.shuffle(queues)
        cases.append((consumers, queues))
    return cases


@pytest.mark.parametrize("version", releases.BROKERS)
def test_queues_are_allocated_as_clients_do_it(version: str) -> None:
    cases = _cases()
    for (consumers, queues), answers in zip(cases, allocated(version, cases), strict=True):
        own = [ClientQueue(*queue) for queue in queues]
        ours = [
            f"{name} {consumer} " + ",".join(f"{q.topic}:{q.broker_name}:{q.queue_id}" for q in got)
            for name, allocate in STRATEGIES.items()
            for consumer in sorted(consumers)
            for got in [allocate(own, consumers, consumer)]
        ]
        assert ours == answers


@pytest.mark.scaled(quick=0)  # `test_served_store` has the whole broker of a quick run
@pytest.mark.parametrize("version", releases.BROKERS)
def test_published_group_offsets_are_loaded_by_brokers_and_read_after_they_save_them(
    tmp_path: Path, version: str
) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store) as made:
        made.append(Outgoing(topic="Orders", body=b"x"))
    document = store / "config" / "consumerOffset.json"
    document.write_text('{"offsetTable":{"Orders@theirs":{0:12,1:30},"%RETRY%g@g":{0:1}},"unknown":[1]}')
    published = {QueueKey("Orders", 1): 7, QueueKey("Orders", 11): 1 << 40}
    publish_progress(str(store), "spark-jobs", published)
    whole = ["%RETRY%g@g 0 1", "Orders@spark-jobs 1 7", f"Orders@spark-jobs 11 {1 << 40}"]
    theirs = ["Orders@theirs 0 12", "Orders@theirs 1 30"]
    assert loaded_offsets(document, version) == [*whole, *theirs]
    assert json.loads(document.read_text())["unknown"] == [1]

    document.write_text("{ torn")  # the broker takes the former document
    assert loaded_offsets(document, version) == ["%RETRY%g@g 0 1", *theirs]
    publish_progress(str(store), "spark-jobs", published | {QueueKey("Orders", 1): 8})
    assert loaded_offsets(document, version)[1] == "Orders@spark-jobs 1 8"

    commit_offset(document, version, "spark-jobs", ("Orders", 1), 9)
    assert "{" in document.read_text()
    offsets = group_offsets(store, "spark-jobs")
    assert offsets == {QueueKey("Orders", 1): 9, QueueKey("Orders", 11): 1 << 40}
    assert group_offsets(store, "theirs") == {QueueKey("Orders", 0): 12, QueueKey("Orders", 1): 30}
