import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import (
    BatchId,
    ConfigError,
    FormatError,
    MessageStore,
    NoSpaceError,
    QueueKey,
    Snapshot,
    StoreClosedError,
)
from segmentlog.store.format.message import MAGIC_BLANK
from segmentlog.store.log.appender import SegmentSupply
from support.batches import batch_of, stage_messages
from support.broker_index import query_index
from support.parted_store import PartedStore
from support.reading import read
from support.records import one
from support.replicas import log_bytes
from support.written_stores import SMALL, message

SEGMENT = SMALL.segment_bytes
Written = tuple[Path, bytes, int]
KINDS = [{}, {"sys_flag": 0x4}, {"sys_flag": 0x8}, {"sys_flag": 0xC}, {"properties": {"DELAY": "4"}}, {}]


def sent(path: Path, count: int = 150, **options: object) -> tuple[bytes, int]:
    """Write a store of every kind of message; return its log up to the end, blanks included, and the end."""
    with MessageStore.open(path, replace(SMALL, **options)) as store:  # type: ignore[arg-type]
        for serial in range(0, count, 5):
            rows = [replace(message(5, 1, serial + row), **KINDS[(serial + row) % 6]) for row in range(5)]
            store.append_batch(batch_of(rows[:3]))
            for row in rows[3:]:
                store.append(row)
        end = store.end_offset
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))[:end], end


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return a store of every kind of message that no test changes, its log, and its end."""
    path = tmp_path_factory.mktemp("written") / "first"
    return path, *sent(path)


def pieces(log: bytes, seed: int, most: int) -> Iterator[tuple[int, bytes]]:
    draw, at = random.Random(seed), 0
    while at < len(log):
        size = draw.randint(1, most)
        yield at, log[at : at + size]
        at += size


def files(path: Path, directory: str) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted((path / directory).rglob("*")) if f.is_file()}


@pytest.mark.slow
@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("most", [3, 300, 5_000, 3 * SEGMENT])
def test_a_log_that_is_fed_in_pieces_is_the_same_log(tmp_path: Path, most: int) -> None:
    log, end = sent(tmp_path / "first", count=10 if most == 3 else 150)
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        for at, piece in pieces(log, most, most):
            held = copy.append_encoded(at, piece)
            assert held == copy.end_offset == copy.flushed_offset <= at + len(piece)
        assert copy.end_offset == end
    assert files(tmp_path / "copy", "commitlog") == files(tmp_path / "first", "commitlog")
    assert files(tmp_path / "copy", "consumequeue") == files(tmp_path / "first", "consumequeue")
    for copied, written in zip(
        read(Snapshot.open(tmp_path / "copy")), read(Snapshot.open(tmp_path / "first")), strict=True
    ):
        assert copied | {"brokerName": "first"} == written
    with MessageStore.open(tmp_path / "first", SMALL) as a, MessageStore.open(tmp_path / "copy", SMALL) as b:
        assert b.recovered.was_clean
        for key in ("k1", "k2", "1.7", "1.10"):
            assert query_index(b, "Orders", key) == query_index(a, "Orders", key)


@pytest.mark.parametrize("how", ["append", "append_batch", "commit_batch"])
def test_own_messages_take_the_next_queue_offsets_before_anything_is_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    log, end = sent(tmp_path / "first", count=30)
    own = [message(5, 2, serial) for serial in range(6)]
    found = []
    for name in ("first", "copy"):
        with PartedStore.open(tmp_path / name, SMALL) as store:
            if name == "copy":
                monkeypatch.setattr(store.parts.services, "after_put", lambda: None)
                assert [store.append_encoded(at, piece) for at, piece in pieces(log, 1, 900)][-1] == end
                assert store.parts.log.dispatcher.dispatched == 0
            if how == "append":
                found.append([store.append(each).queue_offset for each in own])
            elif how == "append_batch":
                found.append(store.append_batch(batch_of(own)).queue_offsets.tolist())
            else:
                staged = [stage_messages(tmp_path / name, own, SMALL)]
                found.append(list(store.commit_batch(BatchId("q", 0), staged).queues))
    assert found[0] == found[1]
    rows = [
        [(row["queueId"], row["queueOffset"], row["body"]) for row in read(Snapshot.open(tmp_path / name))]
        for name in ("first", "copy")
    ]
    assert rows[0] == rows[1]


def test_a_sender_may_begin_again_at_the_end(tmp_path: Path) -> None:
    log, end = sent(tmp_path / "first", count=20)
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        held = copy.append_encoded(0, log[:1000])
        assert 0 < held < 1000
        for wrong in (held + 1, 999, 1001, end):
            with pytest.raises(ConfigError, match=f"physical_offset is {wrong}, and this log continues at 1000"):
                copy.append_encoded(wrong, log[wrong:])
        assert copy.append_encoded(held, log[held:]) == end


def test_damaged_bytes_are_refused_and_can_be_sent_again(tmp_path: Path) -> None:
    log, end = sent(tmp_path / "first", count=30)
    draw, found = random.Random(3), []
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        middle = copy.append_encoded(0, log[: end // 2])
        for _ in range(60):
            at = draw.randrange(middle, end)
            damaged = bytearray(log[middle:])
            damaged[at - middle] ^= 1 << draw.randrange(8)
            try:
                assert copy.append_encoded(middle, damaged) < end, at  # a size that grew waits for its bytes
            except FormatError as error:
                found.append((middle, error.offset, at))
            assert copy.end_offset < end
            middle = copy.end_offset  # the records before the damage, in other segments
        assert copy.append_encoded(middle, log[middle:]) == end
    assert len(found) > 30
    assert all(begun <= offset <= at for begun, offset, at in found)
    assert files(tmp_path / "copy", "commitlog") == files(tmp_path / "first", "commitlog")


def test_records_without_a_checksum_are_refused_where_recovery_relies_on_it(tmp_path: Path) -> None:
    log, end = sent(tmp_path / "first", count=10, record_crc=False)
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        with pytest.raises(ConfigError, match="record_crc is True"):
            copy.append_encoded(0, log)
        assert copy.end_offset == 0
    with MessageStore.open(tmp_path / "plain", replace(SMALL, record_crc=False)) as plain:
        assert plain.append_encoded(0, log) == end


def with_filler(log: bytes, first: int = 0) -> bytes:
    """Put stale bytes after each blank record, whole records among them, as a broker with reused buffers has them."""
    data, stale = bytearray(log), log[:3000]
    for stop in range(SEGMENT, len(log), SEGMENT):
        size = stop - SEGMENT
        while int.from_bytes(data[size + 4 : size + 8], "big", signed=True) != MAGIC_BLANK:
            size += int.from_bytes(data[size : size + 4], "big")
        data[size + 8 : stop] = (stale * 20)[: stop - size - 8]
    return bytes(data)


@pytest.mark.slow
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("most", [300, 5_000, 3 * SEGMENT])
def test_bytes_after_blank_records_are_copied(tmp_path: Path, written: Written, most: int) -> None:
    first, log, end = written
    log = with_filler(log)
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        for at, piece in pieces(log, most, most):
            copy.append_encoded(at, piece)
        assert copy.end_offset == end
        copy.wait_dispatched()
        assert log_bytes(tmp_path / "copy")[:end] == log
        assert read(copy.snapshot())
    assert not any(log_bytes(tmp_path / "copy")[end:])
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        assert copy.recovered.was_clean
        assert copy.end_offset == end
    assert files(tmp_path / "copy", "consumequeue") == files(first, "consumequeue")


def test_filler_that_is_begun_again_leaves_nothing(tmp_path: Path, written: Written) -> None:
    _, log, end = written
    log = with_filler(log)
    stop = next(at for at, byte in enumerate(log[SEGMENT - 3000 : SEGMENT]) if byte) + SEGMENT - 3000
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        held = copy.append_encoded(0, log[: SEGMENT - 1])
        assert held < SEGMENT - 8, "the filler is short: no case"
        assert log_bytes(tmp_path / "copy")[held + 8 : SEGMENT - 1] == log[held + 8 : SEGMENT - 1]
        assert copy.append_encoded(held, b"") == held  # the sender begins again
        assert not any(log_bytes(tmp_path / "copy")[held:])
        for at in range(held, SEGMENT + 1000, 97):
            copy.append_encoded(at, log[at : at + 97])
        copy.append_encoded(copy.end_offset, log[copy.end_offset :])
    assert log_bytes(tmp_path / "copy")[:end] == log
    assert stop < SEGMENT


def test_an_empty_log_begins_at_any_segment(tmp_path: Path, written: Written) -> None:
    first, log, end = written
    base = 2 * SEGMENT
    for at in (base + 1, base - 1, 3):
        with MessageStore.open(tmp_path / "copy", SMALL) as copy, pytest.raises(ConfigError, match="continues at 0"):
            copy.append_encoded(at, log[at:])
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        copy.append_encoded(SEGMENT, log[SEGMENT : SEGMENT + 40])  # less than a record
        assert copy.append_encoded(base, log[base : base + 5000]) <= base + 5000
    assert [file.name for file in (tmp_path / "copy" / "commitlog").iterdir()] == [f"{base:020d}"]
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        assert copy.append_encoded(copy.end_offset, log[copy.end_offset :]) == end
    assert log_bytes(tmp_path / "copy")[: end - base] == log[base:]
    key, ours, theirs = QueueKey("Orders", 1), Snapshot.open(tmp_path / "copy"), Snapshot.open(first)
    assert ours.bounds(key).max_offset == theirs.bounds(key).max_offset
    assert ours.bounds(key).min_offset > theirs.bounds(key).min_offset == 0


def test_a_crash_before_the_first_record_leaves_an_empty_log(tmp_path: Path, written: Written) -> None:
    _, log, end = written
    with MessageStore.open(tmp_path / "copy", SMALL):
        (tmp_path / "copy" / "commitlog" / f"{SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    for _ in range(2):
        with MessageStore.open(tmp_path / "copy", SMALL) as copy:
            at = copy.end_offset or SEGMENT
    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        assert copy.append_encoded(at, log[at:]) == end


def test_a_checksum_that_a_client_forwarded_is_copied_as_it_is(tmp_path: Path) -> None:
    log, end = sent(tmp_path / "first", count=10)
    last = log[:end].rindex(b"\x02") - 1
    forwarded = log[:last] + bytes([log[last] ^ 1]) + log[last + 1 :]
    with MessageStore.open(tmp_path / "plain", replace(SMALL, record_crc=False)) as plain:
        assert plain.append_encoded(0, forwarded) == end
    assert files(tmp_path / "plain", "consumequeue") == files(tmp_path / "first", "consumequeue")
    with MessageStore.open(tmp_path / "copy", SMALL) as copy, pytest.raises(FormatError):
        copy.append_encoded(0, forwarded)


def test_without_room_the_same_bytes_can_be_sent_again(
    tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, log, end = written

    def full(*arguments: object) -> None:
        raise NoSpaceError("there is no room")

    with MessageStore.open(tmp_path / "copy", SMALL) as copy:
        copy.append_encoded(0, log[:1000])
        with monkeypatch.context() as patched:
            patched.setattr(SegmentSupply, "take_segment", full)
            with pytest.raises(NoSpaceError):
                copy.append_encoded(1000, log[1000:])
        assert copy.append_encoded(copy.end_offset, log[copy.end_offset :]) == end
    with pytest.raises(StoreClosedError):
        copy.append_encoded(end, b"")
    assert files(tmp_path / "copy", "consumequeue") == files(first, "consumequeue")


@pytest.mark.parametrize("topic", ["../config", "Orders/../../x", "a\0b", "..", "\x1b[2J"])
def test_topics_that_no_directory_can_have_get_no_queue(tmp_path: Path, topic: str) -> None:
    records, at = [], 0
    for number, name in enumerate(["Orders", topic, "Orders"]):
        records.append(one(topic=name, at=at, offset=number // 2))
        at += len(records[-1])
    path = tmp_path / "deep" / "copy"
    path.mkdir(parents=True)
    (path / "config" / "3").mkdir(parents=True)
    before = set(tmp_path.rglob("*"))
    for how in ("while it follows", "after it was opened again"):
        with MessageStore.open(path, replace(SMALL, record_crc=False)) as copy:
            if how == "while it follows":
                assert copy.append_encoded(0, b"".join(records)) == at
            else:
                assert copy.recovered.corrected == 0
        assert [(row["topic"], row["queueOffset"]) for row in read(Snapshot.open(path))] == [
            ("Orders", 0),
            ("Orders", 1),
        ]
        made = {each.relative_to(path).parts[0] for each in set(tmp_path.rglob("*")) - before if each != path}
        assert list((path / "config" / "3").iterdir()) == []
        assert made <= {"commitlog", "consumequeue", "index", "checkpoint", "lock", ".segmentlog", "config", "abort"}
        assert [each.name for each in (path / "consumequeue").iterdir()] == ["Orders"]
    assert (path / "commitlog" / f"{0:020d}").read_bytes()[:at] == b"".join(records)
