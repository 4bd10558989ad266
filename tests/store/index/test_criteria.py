"""Criteria of a look-up, and that stating them loads nothing that searches."""

import subprocess
import sys

import numpy as np
import pytest

from segmentlog.store.index.criteria import ALWAYS, Window

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
