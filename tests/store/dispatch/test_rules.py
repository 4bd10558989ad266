import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.store import StoreConfig
from segmentlog.store.dispatch.rules import DispatchedRecords, is_queued, tags_codes
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message import Records
from segmentlog.store.format.properties import Properties
from segmentlog.store.queues.keys import QueueNumbers
from segmentlog.store.write.put_path import PlacedRows
from support.records import one
from support.scale import scale

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), max_size=8)
KEYS = st.lists(st.sampled_from(["k1", "größer", "order-17", "\U0001f600", ""]), max_size=3).map(" ".join)
NAMES = ("topic", "body", "queueId", "tags", "keys", "uniqKey", "properties")
MAPS = st.lists(st.tuples(st.sampled_from(["a", "TAGS", "KEYS", "UNIQ_KEY"]), TEXT), max_size=4)
OF_COLUMNS = (st.sampled_from(["orders", "refunds", "%RETRY%group"]), st.binary(max_size=20), st.integers(0, 3))
OF_COLUMNS += tuple(st.none() | each for each in (TEXT, KEYS, TEXT, MAPS))
ROW = st.fixed_dictionaries(dict(zip(NAMES, OF_COLUMNS, strict=True)))
TYPES = (pa.string(), pa.binary(), pa.int32(), *[pa.string()] * 3, pa.map_(pa.string(), pa.string()))
SCHEMA = pa.schema(zip(NAMES, TYPES, strict=True))


@settings(deadline=None, max_examples=scale(30, 150, 2_000))
@given(st.lists(ROW, min_size=1, max_size=12), st.sets(st.sampled_from(["tags", "keys", "uniqKey", "properties"])))
def test_columns_and_records_say_the_same(rows: list[dict[str, object]], left_out: set[str]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).drop_columns(sorted(left_out))
    (piece,) = encode_batch(batch, StoreConfig())
    records = piece.records
    buffer = records.join()
    count = records.sizes.size
    offsets, physical = np.arange(count) + 7, records.positions + 4096
    places = {"queue_offsets": offsets, "physical_offsets": physical, "store_timestamps": 1_763_700_000_000}
    patch(buffer, records.positions, record_crc=RecordCrc.PROPERTY, **places)
    numbers = QueueNumbers()
    placed = PlacedRows(piece, [], physical, offsets, numbers.of(piece.queues), offsets, 1_763_700_000_000)
    known = placed.request(records.lay()).records
    assert isinstance(known, DispatchedRecords)
    found = Records(buffer, records.positions)
    read = DispatchedRecords.of_records(found, Properties(found), numbers, with_keys=True)
    for name in ("queues", "queue_of", "queue_offset", "entries", "hashes", "hash_physical", "hash_timestamp"):
        assert np.array_equal(getattr(known, name), getattr(read, name)), name
    assert known.newest == read.newest


def test_records_are_asked_where_columns_do_not_tell() -> None:
    rows = {"topic": ["orders"], "body": [b""]}
    names = pa.map_(pa.string(), pa.string())
    for more in (
        {"properties": pa.array([[("DELAY", "3")]], names)},
        {"sysFlag": pa.array([0x8], pa.int32())},
    ):
        (piece,) = encode_batch(pa.RecordBatch.from_pydict(rows | more), StoreConfig())
        assert piece.lookups is None
    (piece,) = encode_batch(pa.RecordBatch.from_pydict(rows), StoreConfig(index=False))
    assert piece.lookups is not None
    assert piece.lookups.hashes.size == 0


def test_which_records_get_an_entry() -> None:
    flags = {0: True, 0x1: True, 0x4: False, 0x8: True, 0xC: False, 0x80: False, 0x88: False}
    records = [one(sys_flag=flag) for flag in flags]
    starts = np.cumsum([0, *(len(record) for record in records[:-1])])
    found = Records(np.frombuffer(b"".join(records), np.uint8), starts)
    assert is_queued(found).tolist() == list(flags.values())
    assert tags_codes(Records(np.zeros(0, np.uint8), np.zeros(0, np.int64)), "T").size == 0
