"""The command ``segmentlog`` in processes of its own, as a shell starts it: each timing has the start of Python in it.

::

    --help                                        a process that imports little
    get --key, a store of 10 GiB                  the search, and the start; the index was not open before
    cat -o jsonl      beside  kcat -J             the same messages, with the same fields
    put --input jsonl                             what cat -o jsonl prints, into a new store
    cat -o arrow      beside  Store.scan          the same columns, in a process as well
    cat --grep                                    all bodies searched, one found
    tail -f                                       from the append to the line

Output goes to ``/dev/null``. Stores and topics are in the page cache, but for what does not fit.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from harness import Case, Found, Unit, environment, expect_rows, nothing, result_of
from peers.kcat import Kcat

import segmentlog
from segmentlog.store import Flush, MessageStore, Outgoing, StoreConfig

if TYPE_CHECKING:
    from bench import Bench
    from harness import Result

OURS, KCAT, SCAN = "segmentlog", "kcat", "Store.scan"
TOPIC = "bench"
MESSAGES, BODY_BYTES, BATCH_ROWS = 1_000_000, 1024, 10_000
LARGE_BYTES = 10 << 30
TAILED = 100
PUT = 100_000
FIELDS = "topic,queueId,queueOffset,storeTimestamp,keys,body"
"""Those that kcat prints."""
PROGRAM = Path(sys.executable).with_name("segmentlog")
CHARACTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;-", np.uint8)
SCANS = """
import sys, segmentlog
scan = segmentlog.open(sys.argv[1]).scan(sys.argv[2], columns=sys.argv[3].split(","))
print(sum(batch.num_rows for batch in scan.to_batches()))
"""


def commands(bench: "Bench") -> Found:
    """Measure the command in stores that are made for it."""
    source, lines = bench.place("commanded"), bench.place("commanded.txt")
    count = max(BATCH_ROWS, bench.scaled(MESSAGES))
    written(source, count, lines)
    with ExitStack() as held:

        def kcat(bench: "Bench") -> list[Case]:
            peer = held.enter_context(Kcat.running(bench.place("kcat"), lines))
            return [_kcat(peer, count, bench.place("kcat.jsonl"))]

        results = bench.measure([_help(), *_cats(source, count), *bench.from_peer("kafka", kcat, tool=KCAT)])
    results += bench.measure([_put(bench, source, max(BATCH_ROWS, bench.scaled(PUT)))])
    shutil.rmtree(source, ignore_errors=True)
    lines.unlink()
    results.append(_tail(bench))
    large = bench.place("commanded-large")
    written(large, max(BATCH_ROWS, bench.scaled(LARGE_BYTES // (BODY_BYTES + 200))))
    results += bench.measure([_start("start for get --key, 10 GiB", "get", large, "--key", "order-599", "--json")])
    shutil.rmtree(large, ignore_errors=True)
    return Found(results=results)


def written(path: Path, count: int, lines: Path | None = None) -> None:
    """Append messages of printable bodies with a key each, in whole batches; and the same as lines for kcat."""
    rng = np.random.default_rng(7)
    output = Path(os.devnull) if lines is None else lines
    with output.open("wb") as text, MessageStore.open(path, StoreConfig(flush=Flush.ASYNC)) as store:
        for first in range(0, count, BATCH_ROWS):
            bodies = [row.tobytes() for row in rng.choice(CHARACTERS, (BATCH_ROWS, BODY_BYTES))]
            keys = [f"order-{first + row}" for row in range(BATCH_ROWS)]
            columns = {
                "topic": pa.array([TOPIC] * BATCH_ROWS),
                "queueId": pa.array(np.arange(BATCH_ROWS) % 4, pa.int32()),
                "body": pa.array(bodies, pa.binary()),
                "keys": pa.array(keys),
            }
            store.append_batch(pa.RecordBatch.from_pydict(columns))
            text.write(b"".join(b"%s\t%s\n" % (key.encode(), body) for key, body in zip(keys, bodies, strict=True)))
        store.wait_dispatched()


def run(*arguments: object, output: Path = Path(os.devnull)) -> None:
    """Run the installed command."""
    with output.open("wb") as stdout:
        subprocess.run([PROGRAM, *map(str, arguments)], check=True, stdout=stdout, env=environment())


def scanned(store: Path, columns: str) -> int:
    """Count the rows of a plain scan in a new process."""
    command = [sys.executable, "-c", SCANS, store, TOPIC, columns]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment())
    return int(found.stdout)


def _help() -> Case:
    return _start("start for --help", "--help")


def _start(name: str, *arguments: object) -> Case:
    return Case(name=f"{OURS}: {name}", peer=OURS, rows=1, action=lambda: run(*arguments), unit=Unit.CALLS)


def _cats(store: Path, count: int) -> list[Case]:
    (body,) = segmentlog.open(store).scan(TOPIC, columns="body").head(1)["body"].to_pylist()
    return [
        Case(
            name=f"{OURS}: cat --grep, bytes",
            peer=OURS,
            rows=count * BODY_BYTES,
            action=lambda: run("cat", store, TOPIC, "--grep", body[:20].decode(), "-o", "jsonl"),
            unit=Unit.BYTES,
        ),
        Case(
            name=f"{OURS}: cat to JSON lines",
            peer=OURS,
            rows=count,
            action=lambda: run("cat", store, TOPIC, "-o", "jsonl", "--columns", FIELDS),
        ),
        Case(
            name=f"{OURS}: cat to Arrow",
            peer=OURS,
            rows=count,
            action=lambda: run("cat", store, TOPIC, "-o", "arrow", "--columns", FIELDS),
        ),
        Case(
            name=f"{SCAN}: scan in a process",
            peer=SCAN,
            rows=count,
            action=lambda: scanned(store, FIELDS),
            check=lambda: expect_rows(scanned(store, FIELDS), count),
        ),
    ]


def put(lines: Path, target: Path) -> None:
    """Append JSON lines to a store, which may be a new one."""
    with lines.open("rb") as stdin:
        command = [PROGRAM, "put", str(target), "--create", "--input", "jsonl"]
        subprocess.run(command, check=True, stdin=stdin, stdout=subprocess.DEVNULL, env=environment())


def _put(bench: "Bench", store: Path, count: int) -> Case:
    lines, target = bench.place("put.jsonl"), bench.place("put")
    run("cat", store, TOPIC, "-n", count, "-o", "jsonl", output=lines)

    def check() -> None:
        put(lines, target)
        expect_rows(scanned(target, "queueId"), count)

    return Case(
        name=f"{OURS}: put of JSON lines",
        peer=OURS,
        rows=count,
        action=lambda: put(lines, target),
        check=check,
        before=lambda: shutil.rmtree(target, ignore_errors=True),
    )


def _kcat(peer: Kcat, count: int, file: Path) -> Case:
    def check() -> None:
        peer.json_lines(file)
        with file.open("rb") as lines:
            expect_rows(sum(1 for _ in lines), count)
        file.unlink()

    name = f"{KCAT}: cat to JSON lines"
    return Case(name=name, peer=KCAT, rows=count, action=lambda: peer.json_lines(Path(os.devnull)), check=check)


def _tail(bench: "Bench") -> "Result":
    path = bench.place("tailed")
    waits = []
    with MessageStore.open(path) as store:
        store.append(Outgoing(topic=TOPIC, queue_id=0, body=b"0"))
        command = [PROGRAM, "tail", path, TOPIC, "-f", "--format", r"%s\n"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            for number in range(1, bench.scaled(TAILED, 10) + 1):
                body = b"%d" % number
                store.append(Outgoing(topic=TOPIC, queue_id=0, body=body))
                started = time.perf_counter()
                assert process.stdout.readline() == body + b"\n"
                waits.append(time.perf_counter() - started)
            process.terminate()
    shutil.rmtree(path, ignore_errors=True)
    case = Case(name=f"{OURS}: from append to tail -f", peer=OURS, rows=1, action=nothing, unit=Unit.LATENCY)
    return result_of(case, waits)
