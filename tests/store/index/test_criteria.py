"""Criteria of a look-up, and that stating them loads nothing that searches."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import StoreReader
from segmentlog.store.format.message_decode_one import Record
from segmentlog.store.index.criteria import ALWAYS, KeyField, SingleKey, Window
from support.indexed_stores import START_MS, SYS_ROLLBACK, Row, build, colliding

TIMES = np.array([-1, 0, 5, 10], np.int64)


@pytest.mark.parametrize(
    ("window", "inside"),
    [
        (ALWAYS, [True, True, True, True]),
        (Window(0, 10), [False, True, True, False]),
        (Window(None, 5), [True, True, False, False]),
        (Window(5, None), [False, False, True, True]),
        (Window(5, 5), [False, False, False, False]),
    ],
)
def test_a_window_is_half_open(window: Window, inside: list[bool]) -> None:
    assert window.holds(TIMES).tolist() == inside


def test_stating_criteria_loads_no_search() -> None:
    code = "import sys; from segmentlog.store.find import KeyField, Window; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow.compute", "segmentlog.store.find.finder"} & set(ran.stdout.split())


def record_of(path: Path, row: Row) -> Record:
    build(path, [row])
    found = StoreReader.open(path).log.record_at(0)
    assert found is not None
    return found.record


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (SingleKey("T", "vip"), True),
        (SingleKey("T", "order-7"), True),
        (SingleKey("T", "order-7 vip"), None),
        (SingleKey("T", "u1"), False),
        (SingleKey("T", "u1", KeyField.UNIQUE), True),
        (SingleKey("T", "u1", KeyField.EITHER), True),
        (SingleKey("T", "vip", KeyField.UNIQUE), False),
        (SingleKey("T", "vip", KeyField.EITHER), True),
        (SingleKey("T", colliding("order-7")), False),
        (SingleKey("T", "other"), None),
        (SingleKey("S", "vip"), None),
        (SingleKey(colliding("Topic"), "vip"), None),
        (SingleKey("T", "vip", window=Window(START_MS, START_MS + 1)), True),
        (SingleKey("T", "vip", window=Window(START_MS + 1, None)), False),
        (SingleKey("T", "vip", window=Window(None, START_MS)), False),
    ],
)
def test_a_key_of_a_record(asked: SingleKey, found: bool | None, tmp_path: Path) -> None:
    assert asked.is_of(record_of(tmp_path, Row("T", "order-7 vip", "u1"))) is found


def test_a_key_of_another_topic_with_the_same_hash(tmp_path: Path) -> None:
    record = record_of(tmp_path, Row("Topic", "vip"))
    assert SingleKey(colliding("Topic"), "vip").is_of(record) is False


def test_a_record_that_was_rolled_back_carries_nothing(tmp_path: Path) -> None:
    assert SingleKey("T", "vip").is_of(record_of(tmp_path, Row("T", "vip", sys_flag=SYS_ROLLBACK))) is None


@pytest.mark.parametrize(
    ("topic", "key", "plain"), [("A", "k", True), ("A", "", False), ("A", "ключ", False), ("Ä", "k", False)]
)
def test_keys_of_ascii_characters_are_compared_here(topic: str, key: str, plain: bool) -> None:
    assert SingleKey(topic, key).is_plain is plain
