from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import OffsetOutOfRangeError, QueueKey, Snapshot, UnknownQueueError
from segmentlog.store.maintenance import DissectedField, dissect_entries, dissect_records
from support.small_store import CONFIG, ROWS
from support.tampering import put_at, segments

KEY = QueueKey("orders", 0)


def opened(store: Path) -> Snapshot:
    return Snapshot.open(store)


def records(store: Path, count: int = ROWS + 99) -> list[list[DissectedField]]:
    found = dissect_records(opened(store), 0, count)
    return [list(fields) for _, fields in groupby(found, lambda each: each.item)]


def test_every_byte_of_the_log_is_in_one_field(store: Path) -> None:
    """The fields of all records, one after the other, are the bytes of the segments up to their blank records."""
    for path in segments(store)[:-1]:
        content = path.read_bytes()
        base = int(path.name)
        mine = [each for fields in records(store) for each in fields if each.path == str(path)]
        joined = b"".join(each.data for each in mine)
        assert joined == content[: len(joined)]
        at = 0
        for each in mine:
            assert each.position == at
            at += len(each.data)
        assert mine[-1].value == "blank: the rest of the segment"
        assert int(mine[-2].value) == CONFIG.segment_bytes - (mine[-1].item - base)


def test_values_of_a_dissected_record_equal_the_fields_of_its_message(store: Path) -> None:
    found = records(store)
    messages = [fields for fields in found if len(fields) > 2]
    assert len(messages) >= ROWS
    first = {each.name: each for each in messages[0]}
    message = opened(store).message_at(0)
    assert message is not None
    assert (first["topic"].value, first["body"].data) == (message.topic, message.body)
    assert int(first["queue_offset"].value) == message.queue_offset
    assert first["born_host"].value in (message.born_host or "")
    assert list(first)[:3] == ["total_size", "magic", "body_crc"]
    assert found[-1][-1].name == "problem"
    assert found[-1][-1].value.startswith("no record begins here"), "after the last record"
    with pytest.raises(OffsetOutOfRangeError, match="physical offset 1048576 is in no segment"):
        list(dissect_records(opened(store), 1 << 20))


@pytest.mark.parametrize(
    ("at", "data", "problem", "names"),
    [
        (88, b"X", "the CRC-32 of the body", ["body", "topic", "properties"]),
        (84, b"\x7f\xff\xff\xff", "the lengths of body", ["rest"]),
        (0, b"\x7f\xff\xff\xff", "the lengths of body", ["rest"]),
        (4, b"\0", "no record begins here", ["total_size", "magic"]),
    ],
)
def test_damage_is_shown_and_named(store: Path, at: int, data: bytes, problem: str, names: list[str]) -> None:
    put_at(segments(store)[0], at, data)
    fields = list(dissect_records(opened(store), 0))
    assert fields[-1].name == "problem"
    assert fields[-1].value.startswith(problem)
    assert set(names) <= {each.name for each in fields}
    assert sum(len(each.data) for each in fields) < 20_000


def test_any_bytes_are_shown(store: Path) -> None:
    """A flipped byte anywhere in a record raises nothing, and the fields follow each other."""
    path = segments(store)[0]
    whole = path.read_bytes()
    rng = np.random.default_rng(7)
    for at in range(180):
        put_at(path, at, bytes([whole[at] ^ int(rng.integers(1, 256))]))
        fields = [each for each in dissect_records(opened(store), 0) if each.name != "problem"]
        assert [each.position for each in fields[1:]] == [each.position + len(each.data) for each in fields[:-1]]
        put_at(path, at, whole[at : at + 1])


def test_the_end_of_a_segment_is_shown_as_far_as_it_goes(store: Path) -> None:
    stop = CONFIG.segment_bytes
    fields = list(dissect_records(opened(store), stop - 20))
    assert [(each.name, len(each.data)) for each in fields] == [("rest", 20), ("problem", 0)]
    assert [len(each.data) for each in dissect_records(opened(store), stop - 5)] == [5, 0]


def test_entries(store: Path) -> None:
    fields = list(dissect_entries(opened(store), KEY, 19, 2))
    assert [each.name for each in fields] == ["physical_offset", "size", "tags_code"] * 2
    files = sorted((store / "consumequeue" / "orders" / "0").iterdir())
    assert b"".join(each.data for each in fields[:3]) == files[0].read_bytes()[380:400]
    assert b"".join(each.data for each in fields[3:]) == files[1].read_bytes()[:20]
    assert [each.position for each in fields] == [380, 388, 392, 0, 8, 12]
    message = opened(store).message_at(int(fields[0].value))
    assert message is not None
    assert message.queue_offset == 19


def test_entries_that_name_no_record(store: Path) -> None:
    file = min((store / "consumequeue" / "orders" / "0").iterdir())
    for number, data, text in ((1, b"\x7f", "entry is damaged"), (2, bytes(20), "the entry was never written")):
        put_at(file, 20 * number, data)
        (problem,) = [each for each in dissect_entries(opened(store), KEY, number) if each.name == "problem"]
        assert text in problem.value


def test_entries_outside_of_the_files(store: Path) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"entry 999 of .* is in no file"):
        list(dissect_entries(opened(store), KEY, 999))
    with pytest.raises(UnknownQueueError):
        list(dissect_entries(opened(store), QueueKey("orders", 9), 0))
    last = list(dissect_entries(opened(store), KEY, 0, 10_000))
    assert len({each.item for each in last}) % CONFIG.queue_segment_entries == 0
