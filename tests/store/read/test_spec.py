"""`ScanSpec`: which scans the ConsumeQueue alone answers, and that a specification survives the way to a worker."""

import pickle
from dataclasses import replace

import pytest

from segmentlog.store import NATIVE_SCHEMA, QUEUE_COLUMNS, Predicate, ScanSpec, Tags
from segmentlog.store.read.spec import MAX_BODY_BYTES

ENTRIES = ScanSpec(columns=tuple(name for name in NATIVE_SCHEMA.names if name in QUEUE_COLUMNS))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ENTRIES, True),
        (ScanSpec(columns=()), True),
        (replace(ENTRIES, columns=(*ENTRIES.columns, "body")), False),
        (replace(ENTRIES, property_columns=("x",)), False),
        (replace(ENTRIES, check_crc=True), False),
        (replace(ENTRIES, predicate=Predicate(filter=Tags(frozenset()))), False),
        (replace(ENTRIES, predicate=Predicate(store_time_start=0)), False),
        (replace(ENTRIES, predicate=Predicate(store_time_stop=0)), False),
    ],
)
def test_which_scans_read_entries_only(spec: ScanSpec, expected: bool) -> None:
    assert spec.entries_only is expected


def test_a_specification_survives_pickling() -> None:
    spec = replace(ENTRIES, predicate=Predicate(filter=Tags(frozenset({"a", "b"})), store_time_stop=3))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.max_body_bytes == MAX_BODY_BYTES
