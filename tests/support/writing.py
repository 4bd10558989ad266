"""Messages of every kind, put into a store of ours, and what RocketMQ has to say of each of them.

Expected values are computed here from the message alone and from the offsets that the append returned. The code is
independent of the encoder.
"""

import base64
import hashlib
import ipaddress
import os
import random
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from segmentlog.store import MessageStore, OnCorrupt, Outgoing, Snapshot, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem

from .batches import batch_of
from .reading import Row, described, expected_row, read
from .store_builder import java_hash

Line = dict[str, Any]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
COMPRESSED = 0x1
RECORD_CRC = "__CRC32#"
BORN_TIME = 1_690_000_000_123
DELAYS_MS = [
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
]

SMALL = StoreConfig(
    segment_bytes=64 << 10, queue_segment_entries=16, index_slots=50, index_entries=60, queue_flush_interval_ms=100_000
)
"""Files so small that a hundred messages fill several of each."""


def broker_config(config: StoreConfig) -> dict[str, int]:
    return {
        "mappedFileSizeCommitLog": config.segment_bytes,
        "mappedFileSizeConsumeQueue": config.queue_segment_entries * 20,
        "maxHashSlotNum": config.index_slots,
        "maxIndexNum": config.index_entries,
    }


def store_config(broker: Mapping[str, Any], **options: Any) -> StoreConfig:
    sizes = {
        "segment_bytes": broker.get("mappedFileSizeCommitLog", 1 << 30),
        "queue_segment_entries": -(-broker.get("mappedFileSizeConsumeQueue", 6_000_000) // 20),
        "index_slots": broker.get("maxHashSlotNum", 5_000_000),
        "index_entries": broker.get("maxIndexNum", 20_000_000),
    }
    return StoreConfig(**{**sizes, **options})


def clock(start: int = 1_700_000_000_000) -> Callable[[], int]:
    """A clock of which every fifth look shows the time before, and others some ms up to seconds later."""
    steps = (0, 1, 7, 400, 2_300)
    ticks = count()
    now = [start]

    def look() -> int:
        now[0] += steps[next(ticks) % len(steps)]
        return now[0]

    return look


def every_kind(*, long_topics: bool, seed: int = 0) -> list[Outgoing]:
    noise, born = random.Random(seed), {"born_timestamp": BORN_TIME}
    uniq = f"{seed:08X}" + "7F00000100002A9F"
    made = [
        *_plain_kinds(noise, seed),
        Outgoing(
            topic="Orders",
            body="Straße, 支付, 🚀".encode(),
            queue_id=3,
            tags="étiquette-🚀",
            keys=f"one-{seed} zwei  three 🔑",
            uniq_key=uniq,
            properties={
                "WAIT": "false",
                "größe": "naïve\x01inner",
                "empty": "",
                "a": "1",
                "long": "v" * 3_000,
                RECORD_CRC: "7",
            },
            flag=-7,
            born_timestamp=BORN_TIME + 1,
            born_host="10.1.2.3:40001",
            reconsume_times=16,
            prepared_transaction_offset=(1 << 40) + 5,
        ),
        Outgoing(
            topic="Orders",
            body=b"from an IPv6 host",
            queue_id=3,
            tags="polygenelubricants",
            uniq_key=uniq[::-1],
            properties={"KEYS": f"property-{seed}"},
            flag=(1 << 31) - 1,
            sys_flag=0x2,
            born_timestamp=0,
            born_host="[fd00::1:2]:65535",
        ),
        Outgoing(topic="Orders", body=zlib.compress(b"deflated before it came " * 3), sys_flag=COMPRESSED, **born),
        Outgoing(topic="T" * 127, body=b"the longest name of old", queue_id=1_000_000, **born),
        Outgoing(topic="%RETRY%group", body=b"again", properties={"RETRY_TOPIC": "Orders"}, **born),
        *_transactions(seed),
    ]
    for level in (0, *range(1, 19), 19, 400):
        text, delay = f"level-{level}", {"DELAY": str(level), "x": "y"}
        later = {"topic": "Later", "queue_id": level % 3, "tags": "soon", "properties": delay}
        made.append(Outgoing(body=text.encode(), keys=text, **later, **born))
    for length in (127, 128, 200, 254, 255) if long_topics else ():
        for host in ("10.0.0.1:1", "[::1]:1"):
            topic, text = f"%RETRY%{'g' * (length - 7)}", f"long-{length}"
            made.append(Outgoing(topic=topic, body=text.encode(), tags="long", keys=text, born_host=host, **born))
    return made


def _plain_kinds(noise: random.Random, seed: int) -> list[Outgoing]:
    rows: list[dict[str, Any]] = [
        {"body": b"only a body"},
        {"body": b"", "tags": "empty"},
        {"body": noise.randbytes(40_000), "queue_id": 1, "keys": f"large-{seed}"},
        {"body": b"squeezable " * 2_000, "queue_id": 1, "keys": "text"},
        {"body": b"A" * 1_000, "queue_id": 2, "tags": "tagA"},
    ]
    return [Outgoing(topic="Plain", born_timestamp=BORN_TIME, **row) for row in rows]


def _transactions(seed: int) -> list[Outgoing]:
    delayed = {"DELAY": "3"}
    rows: list[dict[str, Any]] = [
        {"body": b"prepared", "sys_flag": PREPARED, "keys": f"p-{seed}", "tags": "tx"},
        {"body": b"committed", "sys_flag": COMMIT, "keys": f"c-{seed}", "prepared_transaction_offset": 77},
        {"body": b"rolled back", "sys_flag": ROLLBACK, "keys": f"r-{seed}"},
        {"body": b"prepared, not delayed", "sys_flag": PREPARED, "properties": delayed},
        {"body": b"committed and delayed", "sys_flag": COMMIT, "queue_id": 5, "properties": delayed},
    ]
    return [Outgoing(topic="Bank", born_timestamp=BORN_TIME, **row) for row in rows]


def plain(total: int, *, topic: str = "Plain", queues: int = 3, seed: int = 0, body_bytes: int = 200) -> list[Outgoing]:
    return [
        Outgoing(
            topic=topic,
            body=f"{seed}/{number} ".encode().ljust(body_bytes, b"."),
            queue_id=number % queues,
            tags=f"tag{number % 5}",
            keys=f"k{seed}-{number} both{number % 7}",
            uniq_key=f"{seed:08X}{number:020X}A9FE",
            born_timestamp=BORN_TIME + number,
            born_host="10.0.0.7:4000",
        )
        for number in range(total)
    ]


@dataclass(frozen=True)
class Put:
    """A message, and where a store, ours or RocketMQ's, said that it went."""

    message: Outgoing
    physical_offset: int
    queue_offset: int
    size: int
    store_timestamp: int
    record_crc: bool
    """True if its record has ``__CRC32#``."""

    @property
    def transaction(self) -> int:
        return self.message.sys_flag & ROLLBACK

    @property
    def is_queued(self) -> bool:
        return self.transaction in {0, COMMIT}


@dataclass
class Journal:
    """All messages of one store, in the order of the log."""

    config: StoreConfig
    puts: list[Put] = field(default_factory=list)

    def append(self, store: MessageStore, messages: Iterable[Outgoing]) -> None:
        for message in messages:
            done = store.append(message)
            place = (done.physical_offset, done.queue_offset, done.size, done.store_timestamp)
            self.puts.append(Put(message, *place, self.config.record_crc))
            assert done.message_id == message_id(self.config.store_host, done.physical_offset)

    def append_batch(self, store: MessageStore, messages: Sequence[Outgoing]) -> None:
        done = store.append_batch(batch_of([*messages[:2], *messages]).slice(len(messages[:2])))
        places = (done.physical_offsets.tolist(), done.queue_offsets.tolist(), done.sizes.tolist())
        self.puts += [
            Put(message, *place, done.store_timestamp, self.config.record_crc)
            for message, *place in zip(messages, *places, strict=True)
        ]

    def note(self, messages: Sequence[Outgoing], answers: Sequence[Line]) -> None:
        for message, answer in zip(messages, answers, strict=True):
            assert (answer["status"], answer["appendStatus"]) == ("PUT_OK", "PUT_OK")
            place = (answer["phyOffset"], answer["queueOffset"], answer["wroteBytes"], answer["storeTimestamp"])
            self.puts.append(Put(message, *place, record_crc=False))

    def since(self, physical_offset: int) -> "Journal":
        return Journal(self.config, [put for put in self.puts if put.physical_offset >= physical_offset])

    def until(self, end: int) -> "Journal":
        return Journal(self.config, [put for put in self.puts if put.physical_offset + put.size <= end])

    def rows(self) -> list[Row]:
        return [row(put, self.config) for put in self.puts]

    def queues(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for put in self.puts:
            if put.is_queued:
                known = row(put, self.config)
                found.setdefault((known["topic"], known["queueId"]), []).append(known["queueOffset"])
        return found

    def all_keys(self) -> list[tuple[str, str]]:
        """Every topic with every key of its messages; those of rolled back ones too, which are not indexed."""
        found = set()
        for known in self.rows():
            for text in (known["uniqKey"], *(known["keys"] or "").split(" ")):
                if text:
                    found.add((known["topic"], text))
        return sorted(found)


def planned(message: Outgoing) -> Line:
    body = base64.b64encode(message.body).decode()
    texts = {"tags": message.tags, "keys": message.keys, "uniqKey": message.uniq_key}
    said = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "bodyB64": body,
        "properties": {name: value for name, value in message.properties.items() if name != "DELAY"},
        "delayLevel": int(message.properties.get("DELAY", 0)),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        **{name: text for name, text in texts.items() if text},
    }
    return {name: value for name, value in said.items() if name != "delayLevel" or value}


def message_id(store_host: str, physical_offset: int) -> str:
    """RocketMQ's message id for a record: host and offset in hex."""
    address, _, port = store_host.rpartition(":")
    packed = ipaddress.ip_address(address.strip("[]")).packed
    return (packed + int(port).to_bytes(4, "big") + physical_offset.to_bytes(8, "big")).hex().upper()


def row(put: Put, config: StoreConfig) -> Row:
    """Expected answer of RocketMQ about a message, in the words of `reading.expected_row`, except for ``bodyCRC``."""
    message = put.message
    topic, queue_id = message.topic, message.queue_id
    properties = {name: value for name, value in message.properties.items() if value and name != RECORD_CRC}
    named = {"TAGS": message.tags, "KEYS": message.keys, "UNIQ_KEY": message.uniq_key}
    properties |= {name: value for name, value in named.items() if value}
    level = min(int(properties.get("DELAY", "0")), len(DELAYS_MS)) if put.is_queued else 0
    if level:
        properties |= {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    sys_flag = message.sys_flag
    over = config.compress_over_bytes
    body = message.body
    if sys_flag & COMPRESSED:
        body = zlib.decompress(body)
    elif over is not None and len(body) >= over:
        sys_flag |= COMPRESSED
    sys_flag |= 0x10 * message.born_host.startswith("[") | 0x20 * config.store_host.startswith("[")
    return {
        "cqPhyOffset": put.physical_offset,
        "cqSize": put.size,
        "cqTagsCode": put.store_timestamp + DELAYS_MS[level - 1] if level else java_hash(message.tags or ""),
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": put.queue_offset,
        "phyOffset": put.physical_offset,
        "storeSize": put.size,
        "flag": message.flag,
        "sysFlag": sys_flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": put.store_timestamp,
        "msgId": message_id(config.store_host, put.physical_offset),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "bornHost": message.born_host,
        "storeHost": config.store_host,
        "uniqKey": properties.get("UNIQ_KEY"),
        "properties": properties,
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def check_dump(lines: Sequence[Line], journal: Journal) -> None:
    """Assert that RocketMQ reads exactly what was put, record by record and field by field, in log order."""
    shown = sorted(
        (line for line in lines if line["type"] in {"message", "record"}), key=lambda line: int(line["phyOffset"])
    )
    assert not [line for line in shown if "error" in line]
    assert [line["phyOffset"] for line in shown] == [put.physical_offset for put in journal.puts]
    for line, put in zip(shown, journal.puts, strict=True):
        assert (line["type"] == "message") == put.is_queued
        assert _said(line, put) == _queue_columns_kept(row(put, journal.config), put)
    counted = journal.queues()
    queues = {(line["topic"], line["queueId"]): line for line in lines if line["type"] == "queue"}
    for key in queues.keys() - counted.keys():  # a directory that is left of messages which were lost
        assert (queues[key]["messages"], queues[key]["maxOffset"]) == (0, 0), key
    assert counted.keys() <= queues.keys()
    for key, offsets in counted.items():
        said = queues[key]
        assert offsets == list(range(offsets[0], offsets[-1] + 1)), key
        assert (said["minOffset"], said["maxOffset"]) == (offsets[0], offsets[-1] + 1), key
        assert said["messages"] == len(offsets), key
        assert not said.get("gaps"), key
    check_segments(lines, journal)


def _queue_columns_kept(known: Row, put: Put) -> Row:
    return known if put.is_queued else {name: value for name, value in known.items() if not name.startswith("cq")}


def _said(line: Line, put: Put) -> Row:
    properties = dict(line["properties"] or {})
    assert (RECORD_CRC in properties) == put.record_crc
    properties.pop(RECORD_CRC, None)
    blank = dict.fromkeys(("cqPhyOffset", "cqSize", "cqTagsCode"))
    said = expected_row({**blank, **line, "properties": properties})
    body_crc = said.pop("bodyCRC")
    if "body" in line:
        assert body_crc == zlib.crc32(base64.b64decode(line["body"])) & 0x7FFFFFFF
    return _queue_columns_kept(said, put)


def check_reader(store: Path, journal: Journal) -> None:
    rows = {}
    for each in read(Snapshot.open(store), on_corrupt=OnCorrupt.FAIL):
        said = described(each)
        del said["bodyCRC"]
        said["properties"] = {name: value for name, value in said["properties"].items() if name != RECORD_CRC}
        assert said["phyOffset"] not in rows
        rows[said["phyOffset"]] = said
    wanted = {put.physical_offset: row(put, journal.config) for put in journal.puts if put.is_queued}
    assert rows.keys() == wanted.keys()
    for offset, known in wanted.items():
        assert rows[offset] == known


def check_segments(lines: Sequence[Line], journal: Journal) -> None:
    """Assert that the log is records side by side, each segment but the last ended by one blank."""
    segments = [line for line in lines if line["type"] == "segment"]
    assert [size for line in segments for size in line["records"]] == [put.size for put in journal.puts]
    for line in segments[:-1]:
        assert line["blank"] == journal.config.segment_bytes - sum(line["records"])
    assert not any(line.get("blank") for line in segments[-1:])


def copied(store: Path, to: Path) -> Path:
    """Copy a store in its current state, holes and modification times included, as a killed process leaves it."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", store, to], check=True)
    return to


def tree(store: Path) -> dict[str, tuple[int, str]]:
    """Size and digest of every file of a store, by its path inside; zeros at the end are not read."""
    return {str(path.relative_to(store)): _digest(path) for path in _files(store)}


def _files(store: Path) -> Iterator[Path]:
    return (path for path in sorted(store.rglob("*")) if path.is_file())


def _digest(path: Path) -> tuple[int, str]:
    end = LocalFileSystem().data_end(os.fspath(path))
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.sha256(file.read(end).rstrip(b"\0")).hexdigest()
