"""Each kind of damage, salvaged, rebuilt, opened and read by RocketMQ: all agree on every message.

A case damages a store and says which bytes of the CommitLog it overwrote. Messages whose records overlap them are lost,
all others have to be in the copy, at their offsets and with their bodies.
"""

import base64
import functools
import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import (
    DataLossError,
    MessageStore,
    OnCorrupt,
    OnLoss,
    Outgoing,
    QueueSource,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.consume_queue import Entries
from segmentlog.store.format.index_file import Geometry as IndexGeometry
from segmentlog.store.format.walk import walk
from segmentlog.store.maintenance import Kind, rebuild_index, rebuild_queues, salvage, verify
from segmentlog.store.sink import stored_config
from support import fixtures, oracle, reading, releases
from support.attack_stores import messages as every_kind
from support.scale import scale
from support.small_store import write_small_store
from support.store_builder import Geometry, StoreBuilder
from support.tampering import QueueFiles, overwrite, segments
from support.written_stores import tree

pytestmark = pytest.mark.attack

Place = tuple[str, int, int]
Messages = dict[Place, str]
"""SHA-256 of the body as it is stored, by topic, queue id and queue offset."""
Spans = list[tuple[int, int]]


def messages(path: Path, source: QueueSource = QueueSource.AUTO, **spec: object) -> Messages:
    """Messages of our reader; no message twice."""
    found: Messages = {}
    for row in reading.read(Snapshot.open(path, queue_source=source), raw_body=True, **spec):
        place = (row["topic"], row["queueId"], row["queueOffset"])
        assert place not in found
        found[place] = digest(row["body"])
    return found


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


# -- damage: each returns the spans of the log that it overwrote


def orders(store: Path) -> QueueFiles:
    return QueueFiles(store, "Orders" if (store / "consumequeue" / "Orders").is_dir() else "orders", 0)


def record_span(store: Path, queue_offset: int) -> tuple[int, int]:
    entry = orders(store).entries[queue_offset]
    return int(entry["physical_offset"]), int(entry["physical_offset"] + entry["size"])


def over_record(at: int, content: bytes, *rows: int) -> Callable[[Path], Spans]:
    """Overwrite bytes of records: from their start, or with a negative number from their end."""

    def damage(store: Path) -> Spans:
        spans = []
        for row in rows:
            start, stop = record_span(store, row)
            place = (start if at >= 0 else stop) + at
            overwrite(store, place, content)
            spans.append((place, place + len(content)))
        return spans

    return damage


def over_last_of_segment(content: bytes, at: int) -> Callable[[Path], Spans]:
    """Overwrite bytes of the last record of the first segment, which has a blank after it."""

    def damage(store: Path) -> Spans:
        view = np.frombuffer(segments(store)[0].read_bytes(), np.uint8)
        place = int(walk(view, 0, 0, view.size).positions[-1]) + at
        overwrite(store, place, content)
        return [(place, place + len(content))]

    return damage


def queue_offset(row: int, stated: int) -> Callable[[Path], Spans]:
    """Let a record without a checksum state another queue offset: its message is whole."""

    def damage(store: Path) -> Spans:
        overwrite(store, record_span(store, row)[0] + 20, stated.to_bytes(8, "big"))
        return []

    return damage


def whole_record(store: Path) -> Spans:
    start, stop = record_span(store, 4)
    overwrite(store, start, bytes(stop - start))
    return [(start, stop)]


def missing_segment(number: int) -> Callable[[Path], Spans]:
    def damage(store: Path) -> Spans:
        victim = segments(store)[number]
        base, size = int(victim.name), victim.stat().st_size
        victim.unlink()
        return [(base, base + size)]

    return damage


def short_segment(store: Path) -> Spans:
    victim = segments(store)[1]
    base, size = int(victim.name), victim.stat().st_size
    with victim.open("r+b") as file:
        file.truncate(2001)
    return [(base + 2001, base + size)]


def no_queues(store: Path) -> Spans:
    shutil.rmtree(store / "consumequeue")
    return []


def in_queue(change: Callable[[Entries], None]) -> Callable[[Path], Spans]:
    def damage(store: Path) -> Spans:
        queue = orders(store)
        entries = queue.entries
        change(entries)
        queue.entries = entries
        return []

    return damage


def zero_entries(entries: Entries) -> None:
    entries[1:4] = 0


def shift_entries(entries: Entries) -> None:
    entries[2:-1] = entries[3:]


def repeat_entry(entries: Entries) -> None:
    entries[2] = entries[3]


def nothing(store: Path) -> Spans:
    assert store.is_dir()
    return []


def aborted(damage: Callable[[Path], Spans]) -> Callable[[Path], Spans]:
    def both(store: Path) -> Spans:
        (store / "abort").write_text("4711")
        return damage(store)

    return both


DAMAGE: dict[str, Callable[[Path], Spans]] = {
    "nothing": nothing,
    "head of a record": over_record(0, b"\xee" * 8, 4),
    "size of a record": over_record(0, b"\x7f", 4),
    "magic of a record": over_record(4, b"\0", 4),
    "queue offset": over_record(20, b"\xff" * 8, 4),
    "body": over_record(89, b"####", 4),
    "end of a record": over_record(-20, b"XX", 4),
    "a whole record": whole_record,
    "two records beside each other": over_record(0, b"\xee" * 8, 4, 5),
    "last record of a segment": over_last_of_segment(b"\xee" * 8, at=0),
    "body of the last record of a segment": over_last_of_segment(b"####", at=89),
    "several records": over_record(0, b"\xee" * 8, 2, 4, 7),
    "first record of a queue": over_record(0, b"\xee" * 8, 0),
    "last record of a queue": over_record(0, b"\xee" * 8, 11),
    "a segment is missing": missing_segment(1),
    "the first segment is missing": missing_segment(0),
    "a segment is short": short_segment,
    "no queues": no_queues,
    "zero entries": in_queue(zero_entries),
    "a lost entry": in_queue(shift_entries),
    "an entry repeats the next one": in_queue(repeat_entry),
    "a whole record, after a crash": aborted(whole_record),
    "zero entries, after a crash": aborted(in_queue(zero_entries)),
}
PLAIN: dict[str, Callable[[Path], Spans]] = {
    "head of a record": DAMAGE["head of a record"],
    "a segment is missing": DAMAGE["a segment is missing"],
    "first queue offset": queue_offset(0, 1),
    "a queue offset in the middle": queue_offset(5, 1 << 40),
    "last queue offset": queue_offset(11, 3),
}
"""Of a store without ``__CRC32#``."""
CRASHED = [name for name in fixtures.names() if name.startswith("crash")]
ALSO_SMALL = (
    "nothing",
    "head of a record",
    "two records beside each other",
    "a segment is missing",
    "last record of a segment",
    "body of the last record of a segment",
    "an entry repeats the next one",
    "the first segment is missing",
)
CASES = [
    *(("attack", name) for name in DAMAGE),
    *(("small", name) for name in ALSO_SMALL),
    *(("plain", name) for name in PLAIN),
    *(("fixture", name) for name in CRASHED),
]
UNSTARTABLE = {("attack", "the first segment is missing")}
"""5.x cannot tell the earliest time of a store whose first record is from an IPv6 host."""
ASKED = [case for case in CASES if case not in UNSTARTABLE]
VERSIONS = {"attack": (releases.NEWEST, "5.1.0", "5.3.3"), "small": ("4.9.1",), "plain": ("5.3.3", "5.1.0")}
"""4.9.1 ends the log at a topic of over 127 bytes."""


@dataclass(frozen=True)
class Salvaged:
    """A salvaged copy, what of it there has to be, and how many places of lost messages."""

    kind: str
    copy: Path
    held: Messages
    lost: frozenset[Place]


def made(kind: str, path: Path) -> Path:
    if kind != "small":
        geometry = Geometry(segment_bytes=8 << 10, queue_segment_entries=12)
        record_crc = RecordCrc.PROPERTY if kind == "attack" else RecordCrc.ABSENT
        with StoreBuilder(path, geometry=geometry, record_crc=record_crc) as builder:
            builder.append(every_kind(49).slice(1))  # whose first record is from an IPv4 host
        rebuild_index(Snapshot.open(path), path / "index", geometry=IndexGeometry(20, 80))
        return path
    return write_small_store(path)


@pytest.fixture(scope="module")
def salvaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[tuple[str, str]], Salvaged]]:
    folder = tmp_path_factory.mktemp("salvaged")

    @functools.cache
    def copied(case: tuple[str, str]) -> Salvaged:
        kind, name = case
        place = folder / f"{kind}-{name}".replace(" ", "-").replace(",", "")
        place.mkdir()
        if kind == "fixture":
            store = fixtures.unpack(name, place)
            held = messages(store, QueueSource.COMMIT_LOG, on_corrupt=OnCorrupt.SKIP)  # all that is whole
            lost = frozenset(missing(held, from_start=False))
        else:
            store = made(kind, place / "store")
            whole = {
                (row["topic"], row["queueId"], row["queueOffset"]): row
                for row in reading.read(Snapshot.open(store), raw_body=True)
            }
            spans = (PLAIN if kind == "plain" else DAMAGE)[name](store)
            gone = {
                place
                for place, row in whole.items()
                if any(
                    start < row["physicalOffset"] + row["storeSize"] and row["physicalOffset"] < stop
                    for start, stop in spans
                )
            }
            assert bool(gone) == bool(spans)
            held = {place: digest(row["body"]) for place, row in whole.items() if place not in gone}
            lost = frozenset(missing(held, from_start=segments(store)[0].name == f"{0:020d}"))
            assert lost <= gone
        before = tree(store)
        copy = place / f"{kind}-{len(list(folder.iterdir()))}"
        # Where all queues are gone nothing tells how long their files are.
        entries = fixtures.config(name)["mappedFileSizeConsumeQueue"] // 20 if kind == "fixture" else None
        salvage(store, copy, queue_segment_entries=entries)
        assert tree(store) == before
        salvage(copy, place / "again", queue_segment_entries=entries)
        assert unnamed(place / "again") == unnamed(copy), "a second salvage changes nothing"
        return Salvaged(kind, copy, held, lost)

    yield copied
    shutil.rmtree(folder)


def unnamed(store: Path) -> list[tuple[str, str]]:
    """The content of a store's files, and their names but for those of the index, which are times."""
    kept = {name: digest for name, digest in tree(store).items() if name != ".segmentlog/durable"}
    return sorted((name.partition("index/")[0], digest) for name, digest in kept.items())


def missing(held: Messages, *, from_start: bool) -> Iterator[Place]:
    """Missing offsets of queues before their last message: after their first one, or all if no file was deleted."""
    queues: dict[tuple[str, int], list[int]] = {}
    for topic, queue_id, offset in held:
        queues.setdefault((topic, queue_id), []).append(offset)
    for (topic, queue_id), offsets in queues.items():
        start = 0 if from_start else min(offsets)
        yield from ((topic, queue_id, offset) for offset in set(range(start, max(offsets))) - set(offsets))


def frontmost(found: Salvaged) -> set[Place]:
    return {place for place in found.lost if not any(q[:2] == place[:2] and q < place for q in found.held)}


Copied = Callable[[tuple[str, str]], Salvaged]


@pytest.mark.scaled(quick=6)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_store_agrees_with_itself(case: tuple[str, str], salvaged: Copied, tmp_path: Path) -> None:
    found = salvaged(case)
    for source in QueueSource:
        assert messages(found.copy, source, on_loss=OnLoss.SKIP) == found.held
        # Derived from the log a queue begins with its first record: what was before it has no place.
        if found.lost - (frontmost(found) if source is QueueSource.COMMIT_LOG else set()):
            with pytest.raises(DataLossError, match="are lost"):
                messages(found.copy, source)

    report = verify(found.copy)
    assert {finding.kind for finding in report.findings} == ({Kind.LOST_MESSAGE} if found.lost else set())
    assert report.lost_messages == len(found.lost)
    assert report.entries == len(found.held)

    rebuilt = rebuild_queues(Snapshot.open(found.copy), tmp_path / "queues")
    assert (rebuilt.entries, rebuilt.lost_messages) == (report.entries, report.lost_messages)
    assert tree(tmp_path / "queues") == tree(found.copy / "consumequeue")

    opened = tmp_path / "opened"
    shutil.copytree(found.copy, opened)
    topic, queue_id, _ = max(found.held)
    with MessageStore.open(opened, stored_config(opened, StoreConfig())) as store:
        more = store.append(Outgoing(topic=topic, queue_id=queue_id, body=b"more"))
        assert more.queue_offset == 1 + max(offset for *queue, offset in found.held if queue == [topic, queue_id])
    assert messages(opened, on_loss=OnLoss.SKIP) == found.held | {(topic, queue_id, more.queue_offset): digest(b"more")}
    assert verify(opened).lost_messages == len(found.lost)


@pytest.mark.scaled(quick=1)
@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
@pytest.mark.parametrize("case", scale(ASKED, ASKED[::3], ASKED), ids=" ".join)
def test_rocketmq_reads_the_same(case: tuple[str, str], salvaged: Copied) -> None:
    """And the message after a lost one twice: no entry that it would only skip can stand in the place."""
    found = salvaged(case)
    if found.kind == "fixture":
        version, config = fixtures.about(case[1])["rocketmq"], fixtures.config(case[1])
    else:
        choices = VERSIONS[found.kind]
        version = choices[CASES.index(case) % len(choices)]
        sizes = stored_config(found.copy, StoreConfig())
        config = {
            "mappedFileSizeCommitLog": sizes.segment_bytes,
            "mappedFileSizeConsumeQueue": 20 * sizes.queue_segment_entries,
            "maxHashSlotNum": sizes.index_slots,
            "maxIndexNum": sizes.index_entries,
        }
    lines = [line for line in oracle.dump(found.copy, config, version) if line["type"] == "message"]
    read = Counter((line["topic"], line["queueId"], line["queueOffset"]) for line in lines)
    bodies = {
        (line["topic"], line["queueId"], line["queueOffset"]): line.get("bodySha256")
        or digest(base64.b64decode(line["body"]))
        for line in lines
    }
    assert bodies == found.held
    repeated: Counter[Place] = Counter()
    for topic, queue_id, offset in found.lost:
        after = min(o for t, q, o in found.held if (t, q) == (topic, queue_id) and o > offset)
        repeated[topic, queue_id, after] += 1
    assert read == Counter(found.held.keys()) + repeated
