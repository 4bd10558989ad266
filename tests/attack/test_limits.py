"""Input that wants more memory or time than there is: it costs no more than its kind may, and the error says so.

::

    small files of 6 GiB            ─┐
    documents of a million topics   ─┤
    bodies beyond the limit         ─┼──► public operations, 512 MiB of new addresses ──► an answer, or an error of ours
    many that inflate to 15 MiB     ─┤
    very many queues                ─┘
"""

import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from segmentlog.store import BatchId, Flush, MessageStore, Outgoing, QueueKey, Services, StoreConfig
from segmentlog.store.groups import publish_progress
from segmentlog.store.sink import Staging
from support.scale import Report, scale

pytestmark = pytest.mark.attack

PROBE: Final = Path(__file__).parent / "limits_probe.py"
CONFIG: Final = StoreConfig(
    segment_bytes=1 << 22, queue_segment_entries=20, index=False, services=Services.ON_CALL, flush=Flush.SYNC
)
MIB: Final = 1 << 20
HUGE: Final = 6 << 30
SECONDS: Final = 2.0
Found = dict[str, Any]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("limits") / "clean"
    with MessageStore.open(store, CONFIG) as opened:
        opened.append(Outgoing(topic="T", queue_id=0, body=b"body"))
        with Staging.open(store, "job", 0, "a", CONFIG) as staging:
            staging.add(pa.record_batch({"topic": ["T"], "queueId": pa.array([1], pa.int32()), "body": [b"row"]}))
            staged = staging.finish()
        opened.commit_batch(BatchId("app", 1), [staged])
    publish_progress(str(store), "group", {QueueKey("T", 0): 1})
    return store


def probe(clean: Path, cases: Sequence[Found], *arguments: str) -> dict[str, Found]:
    """Run operations in another process; findings by the names of the cases."""
    lines = [{"name": "", "do": "facts", "with": [str(clean)]}, *cases]
    done = subprocess.run(
        [sys.executable, str(PROBE), *arguments],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert [found["name"] for found in findings] == [case["name"] for case in cases]
    return {found["name"]: found for found in findings}


READ_WHOLE: Final = (
    *(".segmentlog/batch", ".segmentlog/id", ".segmentlog/ledger", ".segmentlog/groups.json"),
    *("config/topics.json", "config/topics.json.bak", "config/consumerOffset.json", "config/consumerOffset.json.bak"),
)
READ_IN_FRONT: Final = (".segmentlog/durable", "checkpoint", "abort", "lock")
REFUSED_TO_WRITERS: Final = (".segmentlog/batch", ".segmentlog/id")


def grow(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


def test_small_files_of_six_gigabytes(clean: Path, tmp_path: Path) -> None:
    cases, places = [], {}
    for number, name in enumerate((*READ_WHOLE, *READ_IN_FRONT)):
        store = tmp_path / str(number)
        shutil.copytree(clean, store)
        grow(store / name)
        for operation in ("facts", "open"):
            cases.append({"name": f"{operation} {name}", "do": operation, "with": [str(store)]})
            places[f"{operation} {name}"] = str(store / name)
    findings = probe(clean, cases)
    for name, found in findings.items():
        operation, _, file = name.partition(" ")
        assert found["seconds"] < SECONDS, found
        assert found["grown"] < 80 * MIB, found
        if file in (READ_WHOLE if operation == "facts" else REFUSED_TO_WRITERS):
            assert found.get("error") == "FileTooLargeError", found
            assert found["path"] == places[name]
            assert f"has {HUGE} bytes, a file of its kind has at most" in found["text"]
        else:
            assert "error" not in found, found
    for path in places.values():
        Path(path).unlink(missing_ok=True)


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("topics", [200_000, 1_000_000])
def test_the_memory_of_documents_with_very_many_topics_is_limited(clean: Path, tmp_path: Path, topics: int) -> None:
    store = tmp_path / "store"
    shutil.copytree(clean, store)
    entry = '"Topic%07d":{"perm":6,"readQueueNums":8,"topicName":"Topic%07d","topicSysFlag":0,"writeQueueNums":8}'
    table = ",\n".join(entry % (number, number) for number in range(topics))
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{' + table + "}}")
    (found,) = probe(clean, [{"name": "topics", "do": "facts", "with": [str(store)]}]).values()
    assert found.get("error") == (None if topics == 200_000 else "FileTooLargeError"), found
    assert found["seconds"] < SECONDS * (1 + topics // 200_000 % 5), found  # a second, and a machine that is busy


def zlib_body(body: bytes) -> bytes:
    return zlib.compress(body)


def stream_body(codec: str) -> Callable[[bytes], bytes]:
    def pack(body: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(body)
        return bytes(sink.getvalue())

    return pack


CODECS: Final[dict[int, Callable[[bytes], bytes]]] = {
    0x001: zlib_body,
    0x101: stream_body("lz4"),
    0x201: stream_body("zstd"),
}


def compressed(folder: Path, sys_flag: int, body: bytes, rows: int) -> str:
    with MessageStore.open(folder, CONFIG) as store:
        for _ in range(rows):
            store.append(Outgoing(topic="T", queue_id=0, body=body, sys_flag=sys_flag))
    return str(folder)


@pytest.mark.scaled
def test_bodies_that_inflate_without_end(clean: Path, tmp_path: Path) -> None:
    """Bodies far beyond the limit are refused; many that are just within it are read, a few at a time."""
    just_within, beyond = bytes(15 * MIB), bytes(scale(64, 128, 1024) * MIB)
    cases, rows = [], scale(4, 40, 400)
    for flag, pack in CODECS.items():
        many = compressed(tmp_path / f"many{flag}", flag, pack(just_within), rows)
        bomb = compressed(tmp_path / f"bomb{flag}", flag, pack(beyond), 3)
        cases += [
            {"name": f"many {flag:#x}", "do": "scan", "with": [many]},
            {"name": f"fail {flag:#x}", "do": "scan", "with": [bomb]},
            {"name": f"skip {flag:#x}", "do": "scan", "with": [bomb, "skip"]},
            {"name": f"null {flag:#x}", "do": "scan", "with": [bomb, "null"]},
        ]
    for name, found in probe(clean, cases).items():
        match name.split()[0]:
            case "many":
                assert found.get("result", [0, 0])[0] == rows, found
                assert found["result"][1] >= rows * len(just_within)
            case "fail":
                assert found.get("error") == "CorruptRecordError", found
                assert found["seconds"] < SECONDS
            case "skip":
                assert found.get("result") == [0, 0], found
            case "null":
                assert found.get("result", [0])[0] == 3, found
        assert found["grown"] < 448 * MIB, found  # however many there are: some 25 bodies of the greatest size


@pytest.mark.scaled
def test_the_memory_of_very_many_queues_is_limited(clean: Path, tmp_path: Path, report: Report) -> None:
    """Queues without a message, of 6 MB each: sparse files that are one and the same, under different names."""
    topics, store = scale(500, 3_000, 200_000), tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    empty = tmp_path / "empty"
    empty.touch()
    os.truncate(empty, 6_000_000)
    links = 30_000  # a file cannot have more than 65,000 names
    for number in range(topics):
        if number % links == links - 1:
            empty = empty.with_name(f"empty{number}")
            empty.touch()
            os.truncate(empty, 6_000_000)
        queue = store / "consumequeue" / f"Topic{number}" / "0"
        queue.mkdir(parents=True)
        os.link(empty, queue / f"{0:020d}")
    cases = [{"name": do, "do": do, "with": [str(store)]} for do in ("plan", "scan")]
    findings = probe(clean, cases, "256")
    report("very many queues", {name: (found["seconds"], found["grown"] // MIB) for name, found in findings.items()})
    assert findings["plan"].get("result") == topics, findings
    assert findings["scan"].get("result") == [0, 0], findings
    for found in findings.values():
        assert found["grown"] < 32 * MIB + topics * 4096
        assert found["seconds"] < 3 + topics * 0.0006
    shutil.rmtree(store)


def test_the_probe_sees_a_process_that_grows(clean: Path, tmp_path: Path) -> None:
    """A check that can fail: within its limits, a plain body of 4 MiB grows the process by some of that."""
    store = compressed(tmp_path / "plain", 0, os.urandom(3 * MIB), 3)
    (found,) = probe(clean, [{"name": "scan", "do": "scan", "with": [store]}]).values()
    assert found["result"][0] == 3
    assert found["grown"] > 3 * MIB


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("limit", [48, 256])
def test_a_low_limit_of_descriptors_is_kept_while_writing_and_reading(clean: Path, tmp_path: Path, limit: int) -> None:
    queues = 600
    case = {"name": "many", "do": "many", "with": [str(tmp_path / "store"), queues]}
    (found,) = probe(clean, [case], str(limit)).values()
    assert found.get("result") == 2 * queues, found
    assert found["left open"] <= limit // 16
