"""The command ``segmentlog`` in processes of its own, as a shell starts it: each timing has the start of Python in it.

::

    --help                                        a process that imports little
    get --key, a store of 10 GiB                  the search, and the start; the index was not open before
    cat -o jsonl      beside  kcat -J             the same messages, with the same fields
    cat -o arrow      beside  Store.scan          the same columns, in a process as well
    tail -f                                       from the append to the line

Output goes to ``/dev/null``. Stores and topics are in the page cache, but for what does not fit. kcat is a package of
Debian and Ubuntu (``apt-get install kcat``).
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench import Bench
from harness import OURS, Case, Result, Unit, expect, run_program
from store_work import fill

from segmentlog.store import MessageStore, Outgoing

TOPIC, QUEUES = "bench", 4
MESSAGES, BODY_BYTES, BATCH_ROWS = 1_000_000, 1024, 10_000
LARGE_BYTES = 10 << 30
TAILED = 100
FIELDS = "topic,queueId,queueOffset,storeTimestamp,keys,body"
"""Those that kcat prints."""
PROGRAM = Path(sys.executable).with_name("segmentlog")
KCAT_PRODUCER = ("-K", "\t", "-X", "batch.size=524288", "-X", "linger.ms=20")
CHARACTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;-", np.uint8)
SCANS = """
import sys, segmentlog
scan = segmentlog.open(sys.argv[1]).scan(sys.argv[2], columns=sys.argv[3].split(","))
print(sum(batch.num_rows for batch in scan.to_batches()))
"""


def commands(bench: Bench) -> list[Result]:
    """Measure the command in stores that are made for it."""
    store, lines = bench.place("commanded"), bench.place("commanded.txt")
    count = bench.scaled(MESSAGES, BATCH_ROWS)
    fill(store, printable(count, lines))

    cat = [PROGRAM, "cat", store, TOPIC, "--columns", FIELDS, "-o"]
    scan = [sys.executable, "-c", SCANS, store, TOPIC, FIELDS]
    results = bench.measure(
        [
            _case(f"{OURS}: start for --help", 1, PROGRAM, "--help"),
            _case(f"{OURS}: cat to JSON lines", count, *cat, "jsonl"),
            _case(f"{OURS}: cat to Arrow", count, *cat, "arrow"),
            _case("Store.scan: scan in a process", count, *scan),
            *bench.from_peers(kafka=partial(_kcat, lines, count)),
        ]
    )
    expect(int(subprocess.check_output(scan)), count)
    fill(bench.place("commanded"), printable(bench.scaled(LARGE_BYTES // (BODY_BYTES + 200), BATCH_ROWS)))
    get = ("get", store, "--key", "order-599", "--json")
    results += bench.measure([_case(f"{OURS}: start for get --key", 1, PROGRAM, *get)])
    shutil.rmtree(store)
    return [*results, _tail(bench)]


def _case(name: str, rows: int, *command: object) -> Case:
    unit = Unit.CALLS if rows == 1 else Unit.ROWS
    return Case(name=name, rows=rows, action=partial(run_program, *command), unit=unit)


def printable(count: int, lines: Path = Path(os.devnull)) -> Iterator[pa.RecordBatch]:
    """Yield messages of printable bodies with a key each, in whole batches; write the same as lines for kcat."""
    rng = np.random.default_rng(7)
    with lines.open("wb") as text:
        for first in range(0, count, BATCH_ROWS):
            bodies = [row.tobytes() for row in rng.choice(CHARACTERS, (BATCH_ROWS, BODY_BYTES))]
            keys = [f"order-{first + row}" for row in range(BATCH_ROWS)]
            columns = {
                "topic": pa.repeat(TOPIC, BATCH_ROWS),
                "queueId": pa.array(np.arange(BATCH_ROWS) % QUEUES, pa.int32()),
                "body": pa.array(bodies, pa.binary()),
                "keys": pa.array(keys),
            }
            yield pa.RecordBatch.from_pydict(columns)
            text.writelines(b"%s\t%s\n" % (key.encode(), body) for key, body in zip(keys, bodies, strict=True))


def _kcat(lines: Path, count: int, bench: Bench) -> list[Case]:
    program = shutil.which("kcat")
    if program is None:
        bench.skip("kcat", "it is not on the PATH; on Debian and Ubuntu: apt-get install kcat")
        return []
    kcat = [program, "-b", bench.kafka.server, "-t", bench.kafka.fresh("commanded", QUEUES)]
    subprocess.run([*kcat, "-P", *KCAT_PRODUCER, "-l", str(lines)], check=True)
    return [_case("kcat: cat to JSON lines", count, *kcat, "-C", "-o", "beginning", "-e", "-q", "-J")]


def _tail(bench: Bench) -> Result:
    path, waits = bench.place("tailed"), []
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
    shutil.rmtree(path)
    return Result(name=f"{OURS}: from append to tail -f", rows=1, seconds=waits, unit=Unit.LATENCY)
