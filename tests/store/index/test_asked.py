import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.index.asked import ask, each_in
from segmentlog.store.types import ALWAYS, KeyField, Window


def test_pairs_are_distinct_and_ordered_by_their_hash() -> None:
    asked = ask(pa.array(["T", "S", "T", "T"]), pa.array(["Aa", "Aa", "BB", "Aa"]), KeyField.KEYS, ALWAYS)
    pairs = list(zip(asked.topics.to_pylist(), asked.keys.to_pylist(), strict=True))
    assert sorted(pairs) == [("S", "Aa"), ("T", "Aa"), ("T", "BB")]
    assert asked.hashes.tolist() == sorted(index_key_hash(*pair) for pair in pairs)
    assert [index_key_hash(*pair) for pair in pairs] == asked.hashes.tolist()
    topics, keys = each_in(["T", "S"], pa.chunked_array([["a"], ["b"]]))
    assert (topics.to_pylist(), keys.to_pylist()) == (["T", "T", "S", "S"], ["a", "b"] * 2)
    text, null = pa.array(["a"]), pa.nulls(1, pa.string())
    for name, pair in (("keys", (text, null)), ("topics", (null, text))):
        with pytest.raises(ConfigError, match=f"{name} holds nulls"):
            ask(*pair, KeyField.KEYS, ALWAYS)


def test_a_window_is_half_open() -> None:
    windows = {ALWAYS: "1111", Window(0, 10): "0110", Window(None, 5): "1100", Window(5): "0011", Window(5, 5): "0000"}
    for window, inside in windows.items():
        assert window.holds(np.array([-1, 0, 5, 10])).tolist() == [each == "1" for each in inside]


def test_stating_criteria_loads_no_search() -> None:
    code = "import sys; from segmentlog.store.find import KeyField, Window; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow.compute", "segmentlog.store.find.finder"} & set(ran.stdout.split())
