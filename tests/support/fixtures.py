"""Stores written by Apache RocketMQ, with what RocketMQ itself reads from them: ``tests/conformance/fixtures``."""

import functools
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from segmentlog.store.format.hashing import java_hash

FOLDER = Path(__file__).parent.parent / "conformance" / "fixtures"

Line = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """All lines of one ``expected.jsonl``; iterates over them in their order."""

    lines: tuple[Line, ...]

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def of_type(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["type"] == kind]

    @functools.cached_property
    def store(self) -> Line:
        """Version, whether the abort file was there, least and greatest physical offset, earliest message time."""
        (line,) = self.of_type("store")
        return line

    @functools.cached_property
    def checkpoint(self) -> Line:
        (line,) = self.of_type("checkpoint")
        return line

    @functools.cached_property
    def queues(self) -> list[Line]:
        """One for each topic and queue: its offsets and totals."""
        return self.of_type("queue")

    @functools.cached_property
    def messages(self) -> list[Line]:
        """Every message that a queue shows, by topic, queue and queue offset, with its place in that queue.

        A record of a light queue states its place in the queue of its own topic; there the oracle looks for its entry.
        """
        found: list[Line] = []
        queue, place = Line(), 0
        for line in self.lines:
            if line["type"] == "queue":
                queue, place = line, line["minOffset"]
            elif line["type"] == "message":
                found.append(line | _light(queue, place, line) if queue["topic"].startswith("%LMQ%") else line)
                place += 1
        return found

    @functools.cached_property
    def records(self) -> list[Line]:
        return self.of_type("record")

    @functools.cached_property
    def segments(self) -> list[Line]:
        """One for each CommitLog file: the sizes of its records, and of its blank."""
        return self.of_type("segment")


def _light(queue: Line, place: int, line: Line) -> Line:
    return {
        "topic": queue["topic"],
        "queueId": 0,
        "queueOffset": place,
        "cqPhyOffset": line["phyOffset"],
        "cqSize": line["storeSize"],
        "cqTagsCode": java_hash(line["tags"] or ""),
    }


@functools.cache
def names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/fixture.json")))


def in_rocksdb() -> list[str]:
    """Fixtures with queues in RocksDB, which are only read."""
    return [name for name in names() if name.startswith("queues-") or "lite-rocksdb" in name]


def dledger() -> list[str]:
    """Fixtures whose log is that of a DLedger group, which are only read."""
    return [name for name in names() if name.startswith("dledger")]


def kinds() -> list[str]:
    """One fixture of each kind, by turns of the earliest and the latest release that wrote one."""
    versions: dict[str, list[str]] = {}
    for name in names():
        versions.setdefault(name.rpartition("-")[0], []).append(name)
    return [of_kind[-(number % 2)] for number, of_kind in enumerate(versions.values())]


@functools.cache
def about(name: str) -> Line:
    """Description of a fixture: ``about``, ``rocketmq`` (the version that answers), ``config``, ``steps``."""
    found: Line = json.loads((FOLDER / name / "fixture.json").read_text(encoding="utf-8"))
    return found


def config(name: str) -> Line:
    """The file sizes and options that RocketMQ ran with, by their names in ``MessageStoreConfig``."""
    return dict(about(name)["config"])


@functools.lru_cache(maxsize=4)
def expected(name: str) -> Expected:
    text = (FOLDER / name / "expected.jsonl").read_text(encoding="utf-8")
    return Expected(tuple(json.loads(line) for line in text.splitlines()))


def queries(name: str, kind: str | None = None) -> list[Line]:
    """Questions with RocketMQ's ``answer``, all of them or those of one kind (``offsetByTime``, …)."""
    found: list[Line] = json.loads((FOLDER / name / "queries.json").read_text(encoding="utf-8"))["queries"]
    return [q for q in found if kind is None or q["query"] == kind]


def unpack(name: str, to: Path) -> Path:
    """Unpack a store into a directory and return the path of the store.

    Holes stay holes (``default-sizes-4.9.1`` has files of 1 GiB), and modification times are kept to the nanosecond:
    RocketMQ before 5.1.1 goes by them.
    """
    with tarfile.open(FOLDER / name / "store.tar.gz") as archive:
        members = archive.getmembers()
        for member in members:
            # tarfile takes the name of the sparse map if there are characters beyond ASCII. Drop when it does not.
            member.name = member.pax_headers.get("GNU.sparse.name", member.name)
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before 3.11.4
        archive.extractall(to, members, **safe)
    for member in reversed(members):  # a directory's own time last: what is done inside changes it
        stated = Decimal(member.pax_headers.get("mtime", member.mtime))
        ns = int(stated * 1_000_000_000)
        os.utime(to / member.name, ns=(ns, ns))
    return to / "store"
