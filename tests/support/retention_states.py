"""States of stores for retention, generated from a seed, and what RocketMQ or our rules do with them.

::

    seed ──► Case: store, modification times, configuration, clock, disks, rounds, references
               ├─► RocketMQ's cleaning (oracle verb `retain`)  ──► Round, Round, …
               └─► policy.decide on arrays, round by round     ──► Round, Round, …

A case and RocketMQ's outcome are plain data: recorded, the comparison runs without Java.
"""

import gzip
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from segmentlog.store import Flush, MessageStore, QueueKey, Services, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem, Space
from segmentlog.store.retention.policy import Disks, Plan, decide
from segmentlog.store.retention.settings import RetentionSettings
from segmentlog.store.retention.state import FileId, FileKind, IndexFiles, LogFiles, Memory, Moment, QueueFiles, State
from segmentlog.store.retention.survey import StoreFiles

from . import oracle, releases

Json = dict[str, Any]

NOW_MS = 1_763_700_000_000
HOUR_MS = 3_600_000
DISK_BYTES = 10**12
STORES = {"rows-20": 20, "rows-60": 60, "rows-300": 300, "rows-900": 900, "rows-2400": 2400, "early-900": 900}
"""Rows of each store that cases are about: one segment up to 60; of ``early`` keys and one topic end after a third."""
CONFIG = StoreConfig(
    segment_bytes=4 << 10,
    queue_segment_entries=20,
    index_slots=20,
    index_entries=80,
    flush=Flush.ASYNC,
    services=Services.ON_CALL,
)
_TOPICS = ("orders", "refunds", "audit")
_HELD_KINDS = ("log", "log", "queue", "index")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One state of a store and what happens to it."""

    store: str  # name in `STORES`
    ages_ms: tuple[int, ...]  # age of each segment, oldest first; the last one repeats
    properties: Json  # broker's configuration
    # rounds, advance_ms, hour, manual, disk_bytes, usages: options of the oracle's verb `retain`; percent of the
    # CommitLog's and the queues' disk per round
    rounds: int
    advance_ms: int
    hour: int
    manual: bool
    disk_bytes: int
    usages: tuple[tuple[float, float], ...]
    # holds, release_after: files that are referenced, as the oracle names them, and the round after which they are
    # not
    holds: tuple[str, ...]
    release_after: int

    def as_json(self) -> Json:
        return asdict(self)

    @classmethod
    def of(cls, plain: Json) -> "Case":
        lists = {name: tuple(plain[name]) for name in ("ages_ms", "holds")}
        return cls(**{**plain, **lists, "usages": tuple(tuple(each) for each in plain["usages"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Outcome of one run: deleted files in order (queue files per queue), and what the run decided."""

    log: tuple[int, ...]
    queues: tuple[tuple[str, int, tuple[int, ...]], ...]
    index: tuple[int, ...]
    disk_full: bool
    disk_full_checked: bool
    time_up: bool | None
    space_short: bool | None
    manual: bool
    forced: bool | None
    manual_left: int
    log_start: int

    @classmethod
    def of(cls, plain: Json) -> "Round":
        queues = tuple((topic, queue_id, tuple(bases)) for topic, queue_id, bases in plain["queues"])
        return cls(**{**plain, "queues": queues, "log": tuple(plain["log"]), "index": tuple(plain["index"])})


# -- cases


def generate(version: str, seed: int) -> Case:
    """Return a random case for a release; every rule comes up in some of a hundred."""
    draw = random.Random(f"{version} {seed}")
    v4 = version == "4.9.1"
    hour = draw.randrange(24)
    properties: Json = {"deleteCommitLogFilesInterval": 0, "deleteConsumeQueueFilesInterval": 0}
    reserved = draw.choice([72, 72, 1, 0, 24, 720])
    properties["fileReservedTime"] = reserved
    properties["deleteWhen"] = _delete_when(draw, hour)
    if draw.random() < 0.4:
        properties["diskMaxUsedSpaceRatio"] = draw.choice([5, 30, 60, 80, 90, 95, 99])
    if draw.random() < 0.2:
        properties["cleanFileForciblyEnable"] = False
    if draw.random() < 0.3:
        properties["destroyMapedFileIntervalForcibly"] = draw.choice([0, 1_000, 15_000, 60_000])
        properties["redeleteHangedFileInterval"] = draw.choice([0, 5_000, 60_000])
    if draw.random() < 0.2:
        properties["system.rocketmq.broker.diskSpaceWarningLevelRatio"] = draw.choice([0.2, 0.5, 0.8, 0.97])
    if draw.random() < 0.2:
        properties["system.rocketmq.broker.diskSpaceCleanForciblyRatio"] = draw.choice([0.1, 0.4, 0.7, 0.95])
    disk_bytes = DISK_BYTES
    if not v4:
        properties["deleteFileBatchMax"] = draw.choice([10, 10, 10, 1, 3, 0, -4, 1000])
        if draw.random() < 0.2:
            properties["diskSpaceWarningLevelRatio"] = draw.choice([20, 50, 80, 99])
            properties["diskSpaceCleanForciblyRatio"] = draw.choice([20, 45, 75, 99])
        if draw.random() < 0.15:
            properties["replicasPerDiskPartition"] = draw.choice([2, 3, 8])
            properties["logicalDiskSpaceCleanForciblyThreshold"] = draw.choice([0.3, 0.8])
            disk_bytes = draw.choice([10**5, 10**6, 5 * 10**6, DISK_BYTES])
    store = draw.choice(list(STORES))
    rounds = draw.choice([1, 1, 2, 3, 6, 24])
    edge = reserved * HOUR_MS
    ages = tuple(
        max(0, draw.choice([edge, edge, edge + 1, edge - 1, 2 * edge, edge // 2, draw.randrange(1, 2 * edge + 2)]))
        for _ in range(draw.choice([1, 4, 12, 40]))
    )
    if draw.random() < 0.7:
        ages = tuple(sorted(ages, reverse=True))
    holds = tuple({draw.choice(_HELD_KINDS) for _ in range(draw.choice([0, 0, 0, 1, 2, 3]))})
    return Case(
        store=store,
        ages_ms=ages,
        properties=properties,
        rounds=rounds,
        advance_ms=draw.choice([0, 10_000, 10_000, 61_000, 130_000, HOUR_MS]),
        hour=hour,
        manual=draw.random() < 0.3,
        disk_bytes=disk_bytes,
        usages=tuple((_usage(draw), _usage(draw)) for _ in range(draw.choice([1, 2, 3]))),
        holds=_named_holds(draw, store, holds),
        release_after=draw.choice([1, 2, 1000]),
    )


def _delete_when(draw: random.Random, hour: int) -> str:
    other = (hour + draw.randrange(1, 24)) % 24
    return draw.choice(
        [
            *("04", f"{hour:02d}", f"{other}", f"{other:02d};{hour}", f"{hour};{other};", f"{hour};x", f"x;{hour}"),
            *(f"{other}; {hour}", f"{other};;{hour}", "", ";", f"+{hour}", f"{other:02d}", f"{other:02d}"),
        ]
    )


def _usage(draw: random.Random) -> float:
    return draw.choice(
        [10, 10, 40, 70, 75, 75.01, 76, 84.99, 85, 85.01, 87, 90, 90.01, 91, 97, round(draw.random() * 100, 2)]
    )


def _named_holds(draw: random.Random, store: str, kinds: Iterable[str]) -> tuple[str, ...]:
    """Name files to hold as the oracle does; only files that are there."""
    files = listed(store)
    names: set[str] = set()
    for kind in kinds:
        if kind == "log":
            bases = files.log["base"][:-1]
            names.add(str(draw.choice(bases[:3])) if len(bases) > 1 else "first")
        elif kind == "queue" and files.first_files:
            names.add("/".join(map(str, draw.choice(files.first_files))))
        elif kind == "index" and files.index["name"]:
            names.add("index")
    return tuple(sorted(names))


# -- stores


@dataclass(frozen=True, slots=True)
class Listing:
    """Files of a store, as plain data; ``bytes`` are those of all files.

    ``first_files``: topic and number of queues that have a file.
    """

    log: dict[str, list[int]]
    queues: Json
    index: dict[str, list[int]]
    bytes: int
    first_files: list[list[Any]]


@cache
def template(name: str) -> Path:
    """Write one of `STORES`; it is kept for the process."""
    path = Path(tempfile.mkdtemp(prefix="retention-")) / name
    rows = STORES[name]
    draw = random.Random(name)
    early = rows // 3 if name.startswith("early") else rows
    topic = [draw.choice(_TOPICS if row < early else _TOPICS[:2]) for row in range(rows)]
    with MessageStore.open(path, CONFIG, clock=lambda: NOW_MS - 100 * HOUR_MS) as store:
        for first in range(0, rows, 100):
            part = topic[first : first + 100]
            ids = [draw.randrange(2) if each == "orders" else 0 for each in part]
            columns: Json = {"topic": part, "queueId": pa.array(ids, pa.int32())}
            columns["body"] = [draw.randbytes(draw.randrange(60)) for _ in part]
            columns["keys"] = [f"k{first + row}" if first + row < early else None for row in range(len(part))]
            store.append_batch(pa.RecordBatch.from_pydict(columns))
            store.tick()
    return path


@cache
def listed(name: str) -> Listing:
    """List the files of one of `STORES` as `StoreFiles` does; all of each queue, so that any start may be asked."""
    files = StoreFiles(LocalFileSystem(), str(template(name)))
    log = files.log()
    queues, index = files.below(1 << 62)
    firsts = [[key.topic, key.queue_id] for key in files.queues()]
    return Listing(
        log={"base": log.base.tolist(), "size": log.size.tolist()},
        queues={
            "queues": [list(key) for key in queues.queues],
            "queue_of": queues.queue_of.tolist(),
            "base": queues.base.tolist(),
            "last_physical": queues.last_physical.tolist(),
        },
        index={"name": index.name.tolist(), "end_physical": index.end_physical.tolist()},
        bytes=files.bytes(),
        first_files=firsts,
    )


def ages_of(case: Case, count: int) -> list[int]:
    return [case.ages_ms[min(at, len(case.ages_ms) - 1)] for at in range(count)]


# -- our rules


def settings_of(case: Case, version: str) -> RetentionSettings:
    properties = {name.removeprefix("system."): str(value) for name, value in case.properties.items()}
    return RetentionSettings.from_broker(properties, releases.RETENTION[version])


def decided(case: Case, version: str, files: Listing) -> Iterator[Round]:
    settings = settings_of(case, version)
    memory = Memory().triggered() if case.manual else Memory()
    held = set(_held(case, files))
    gone: set[FileId] = set()
    for number in range(case.rounds):
        at = number * case.advance_ms
        hour = (case.hour * HOUR_MS + at) // HOUR_MS % 24
        state = _state(case, files, gone, held if number < case.release_after else set(), memory)
        usage = case.usages[min(number, len(case.usages) - 1)]
        disks = Disks((_space(case, usage[0]),), _space(case, usage[1]))
        plan = decide(state, Moment(NOW_MS + at, hour), disks, settings)
        memory = plan.memory
        gone.update(each.file for each in plan.deletions)
        yield _round(plan)
        # 4.9's own look at the disk runs between two runs
        memory = replace(memory, disk_full=plan.disk_full_checked)


def _held(case: Case, files: Listing) -> Iterator[FileId]:
    for name in case.holds:
        if name == "index":
            yield FileId(FileKind.INDEX, files.index["name"][0])
        elif "/" in name:
            topic, queue_id = name.split("/")
            yield FileId(FileKind.QUEUE, 0, QueueKey(topic, int(queue_id)))
        else:
            yield FileId(FileKind.LOG, files.log["base"][0] if name == "first" else int(name))


def _space(case: Case, percent: float) -> Space:
    free = case.disk_bytes - int(round(percent * 100) * case.disk_bytes // 10_000)
    return Space(case.disk_bytes, free, free)


def _state(case: Case, files: Listing, gone: set[FileId], held: set[FileId], memory: Memory) -> State:
    bases = files.log["base"]
    ids = [FileId(FileKind.LOG, base) for base in bases]
    rows = [row for row, file in enumerate(ids) if file not in gone]
    ages = ages_of(case, len(bases))
    log = LogFiles(
        np.array(bases, np.int64)[rows],
        np.array(files.log["size"], np.int64)[rows],
        NOW_MS - np.array(ages, np.int64)[rows],
        np.array([ids[row] in held for row in rows], np.bool_),
    )

    def below(_: int) -> tuple[QueueFiles, IndexFiles]:
        keys = [QueueKey(*key) for key in files.queues["queues"]]
        queue_of, base = files.queues["queue_of"], files.queues["base"]
        own = [FileId(FileKind.QUEUE, base[row], keys[queue_of[row]]) for row in range(len(base))]
        left = [row for row, file in enumerate(own) if file not in gone]
        names = [name for name in files.index["name"] if FileId(FileKind.INDEX, name) not in gone]
        ends = dict(zip(files.index["name"], files.index["end_physical"], strict=True))
        return (
            QueueFiles(
                keys,
                np.array(queue_of, np.int64)[left],
                np.array(base, np.int64)[left],
                np.array(files.queues["last_physical"], np.int64)[left],
                np.array([own[row] in held for row in left], np.bool_),
            ),
            IndexFiles(
                np.array(names, np.int64),
                np.array([ends[name] for name in names], np.int64),
                np.array([FileId(FileKind.INDEX, name) in held for name in names], np.bool_),
            ),
        )

    return State(log, below, files.bytes - _bytes_of(gone, files), memory)


def _bytes_of(gone: set[FileId], files: Listing) -> int:
    sizes = {FileKind.LOG: CONFIG.segment_bytes, FileKind.QUEUE: CONFIG.queue_segment_entries * 20}
    index = 40 + 4 * CONFIG.index_slots + 20 * CONFIG.index_entries
    assert not files.log["size"] or files.log["size"][0] == sizes[FileKind.LOG]
    return sum(sizes.get(file.kind, index) for file in gone)


def _round(plan: Plan) -> Round:
    by_queue: dict[QueueKey, list[int]] = {}
    for each in plan.deletions:
        if each.file.queue is not None:
            by_queue.setdefault(each.file.queue, []).append(each.file.base)
    return Round(
        log=tuple(each.file.base for each in plan.deletions if each.file.kind is FileKind.LOG),
        queues=tuple(sorted((key.topic, key.queue_id, tuple(bases)) for key, bases in by_queue.items())),
        index=tuple(each.file.base for each in plan.deletions if each.file.kind is FileKind.INDEX),
        disk_full=plan.memory.disk_full,
        disk_full_checked=plan.disk_full_checked,
        time_up=plan.time_up,
        space_short=plan.space_short,
        manual=plan.manual,
        forced=None if plan.space_short is None else plan.forced,
        manual_left=plan.memory.manual_left,
        log_start=plan.log_start,
    )


# -- recorded outcomes


@dataclass(frozen=True, slots=True)
class Recorded:
    """Cases of a release with RocketMQ's outcomes, and the files of the stores they are about."""

    stores: dict[str, Listing]
    cases: list[tuple[Case, list[Round]]]


def record(path: Path, version: str, count: int) -> None:
    cases = [generate(version, seed) for seed in range(count)]
    outcomes = ask_rocketmq(cases, version)
    content = {
        "stores": {name: asdict(listed(name)) for name in STORES},
        "cases": [
            {"case": case.as_json(), "rounds": [asdict(each) for each in rounds]}
            for case, rounds in zip(cases, outcomes, strict=True)
        ],
    }
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0))


def recorded(path: Path) -> Recorded:
    content = json.loads(gzip.decompress(path.read_bytes()))
    return Recorded(
        {name: Listing(**plain) for name, plain in content["stores"].items()},
        [(Case.of(each["case"]), [Round.of(plain) for plain in each["rounds"]]) for each in content["cases"]],
    )


def differences(case: Case, rounds: Sequence[Round], version: str, files: Listing) -> list[str]:
    """Compare our rules with RocketMQ's outcome of a case; what differs, round by round."""
    ours = list(decided(case, version, files))
    assert len(ours) == len(rounds)
    return [
        f"round {number}, {name}: ours {getattr(our, name)}, RocketMQ's {getattr(their, name)}"
        for number, (our, their) in enumerate(zip(ours, rounds, strict=True))
        for name in Round.__dataclass_fields__
        if getattr(our, name) != getattr(their, name)
    ]


# -- RocketMQ

_PER_JVM = 40


def ask_rocketmq(cases: Sequence[Case], version: str) -> list[list[Round]]:
    """Run RocketMQ's cleaning on each case; the rounds of each."""
    outcomes: list[list[Round]] = []
    for first in range(0, len(cases), _PER_JVM):
        with tempfile.TemporaryDirectory(prefix="retain-") as folder:
            lines = []
            for number, case in enumerate(cases[first : first + _PER_JVM]):
                lines.append(json.dumps(_arguments(case, Path(folder) / str(number))))
            (Path(folder) / "cases").write_text("\n".join(lines) + "\n")
            for line in oracle.retain(version, "--cases", Path(folder) / "cases"):
                if line["type"] == "case":
                    outcomes.append([])
                elif line["type"] == "round":
                    outcomes[-1].append(_round_of(line))
    return outcomes


def _arguments(case: Case, folder: Path) -> list[str]:
    folder.mkdir()
    store = folder / "store"
    subprocess.run(["cp", "-a", "--sparse=always", template(case.store), store], check=True)
    shutil.rmtree(store / ".segmentlog")
    segments = sorted((store / "commitlog").iterdir())
    for segment, age in zip(segments, ages_of(case, len(segments)), strict=True):
        os.utime(segment, ns=(0, (NOW_MS - age) * 1_000_000))
    config = {
        "mappedFileSizeCommitLog": CONFIG.segment_bytes,
        "mappedFileSizeConsumeQueue": CONFIG.queue_segment_entries * 20,
        "maxHashSlotNum": CONFIG.index_slots,
        "maxIndexNum": CONFIG.index_entries,
        **case.properties,
    }
    (folder / "config.json").write_text(json.dumps(config))
    options = {
        "store": store,
        "config": folder / "config.json",
        "rounds": case.rounds,
        "advance": case.advance_ms,
        "hour": case.hour,
        "now": NOW_MS,
        "disk-size": case.disk_bytes,
        "usage": ";".join(f"{log}%,{queues}%" for log, queues in case.usages),
        "release-after": case.release_after,
    }
    if case.holds:
        options["hold"] = ",".join(case.holds)
    words = [f"--{name}={value}" for name, value in options.items()]
    return [*words, *(["--manual"] if case.manual else []), "--no-close"]


def _round_of(line: Json) -> Round:
    by_queue: dict[tuple[str, int], list[int]] = {}
    for each in line["deleted"]["consumequeue"]:
        by_queue.setdefault((each["topic"], each["queueId"]), []).append(each["base"])
    looked = line["spaceFull"] is not None
    return Round(
        log=tuple(line["deleted"]["commitlog"]),
        queues=tuple(sorted((topic, queue_id, tuple(bases)) for (topic, queue_id), bases in by_queue.items())),
        index=tuple(int(name) for name in line["deleted"]["index"]),
        disk_full=line["diskFull"],
        disk_full_checked=line.get("diskFullAfterCheck", line["diskFull"]),
        time_up=line["timeUp"],
        space_short=line["spaceFull"],
        manual=line["manual"],
        forced=line["cleanImmediately"] if looked else None,
        manual_left=line["manualLeft"],
        log_start=line["minPhyOffset"],
    )
