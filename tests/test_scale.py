"""Scales of a run: the sizes that a variable chooses, and the tests that it leaves out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import scale as scales
from support.scale import Scale, runs

TESTS = Path(__file__).parent
CASE = """
import pytest
from hypothesis import given, strategies as st
from support.scale import sample, scale

@pytest.mark.scaled
@pytest.mark.parametrize("number", sample([*range(10)], 3))
def test_sized(number: int) -> None:
    assert scale("quick", "attack", "soak", check="check") == "{name}"

@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("number", range(5))
def test_thinned(number: int) -> None:
    pass

@pytest.mark.scaled(quick=0)
def test_large() -> None:
    pass

@given(st.integers())
def test_property(number: int) -> None:
    pass

def test_of_one_size() -> None:
    pass

@pytest.mark.parametrize("number", range(7))
def test_of_many_cases(number: int) -> None:
    pass

@pytest.mark.slow
def test_slow() -> None:
    pass

@pytest.mark.attack
@pytest.mark.parametrize("number", range(10))
def test_attack(number: int) -> None:
    pass
"""


@pytest.mark.parametrize("of", Scale)
@pytest.mark.parametrize("quick", [0, 1, 2, 5, 9])
def test_no_case_is_left_to_no_run(of: Scale, quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = pytest.mark.scaled(quick=quick).mark
    ran: list[int] = []
    for each in (Scale.QUICK, Scale.ATTACK):
        monkeypatch.setattr(scales, "SCALE", each)
        ran += [number for number in range(5) if runs(marker, number, 5)]
    assert sorted(ran) == [*range(5)]  # each once
    monkeypatch.setattr(scales, "SCALE", of)
    assert runs(pytest.mark.scaled.mark, 0, 1)
    assert runs(None, 0, 1) is (of in {Scale.CHECK, Scale.QUICK})


@pytest.mark.slow
@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize(
    ("name", "passed", "left_out"), [("check", 10, 19), ("quick", 19, 10), ("attack", 21, 15), ("soak", 21, 15)]
)
def test_a_run_has_the_tests_of_its_scale(name: str, passed: int, left_out: int, tmp_path: Path) -> None:
    (tmp_path / "test_case.py").write_text(CASE.replace("{name}", name))
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", TESTS.parent / "pyproject.toml", "--rootdir", tmp_path, tmp_path],
        env={"PATH": "/bin:/usr/bin", "SEGMENTLOG_SCALE": name},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert re.search(rf"{passed} passed, {left_out} deselected", done.stdout), done.stdout


def test_tests_with_a_size_are_marked() -> None:
    users = [path for path in TESTS.rglob("test_*.py") if "from support.scale import" in path.read_text()]
    unmarked = [
        str(path) for path in users if "mark.scaled" not in path.read_text() and "@given" not in path.read_text()
    ]
    assert unmarked == []
    assert len(users) >= 20


def test_a_check_has_a_test_of_each_file() -> None:
    files = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    empty = [
        str(path) for path, text in files.items() if len(re.findall(r"\bmark\.slow\b", text)) >= text.count("def test_")
    ]
    assert empty == []
