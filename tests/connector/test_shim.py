import runpy
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource

import pyspark_segmentlog
import segmentlog.connector
from segmentlog.connector.source import SegmentLogDataSource


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_shim_has_the_data_source_that_spark_looks_for() -> None:
    assert issubclass(pyspark_segmentlog.DefaultSource, DataSource)
    assert pyspark_segmentlog.DefaultSource.name() == SegmentLogDataSource.name() == "segmentlog"


def test_the_shim_is_light() -> None:
    heavy = "[name for name in ('pyarrow', 'numpy', 'segmentlog.connector', 'segmentlog.store') if name in sys.modules]"
    assert run(f"import sys, pyspark.sql.datasource, pyspark_segmentlog; print({heavy})") == "[]"


@pytest.mark.parametrize("missing", ["pyspark", "pyspark.sql.datasource", "pyarrow", "segmentlog.connector"])
def test_the_shim_never_raises(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {missing, *(each for each in sys.modules if each.startswith(f"{missing}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    runpy.run_path(pyspark_segmentlog.__file__)


@pytest.mark.parametrize(
    ("method", "arguments"), [("schema", 0), ("reader", 1), ("streamReader", 1), ("writer", 2), ("streamWriter", 2)]
)
def test_the_shim_hands_everything_on(method: str, arguments: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def answer(self: DataSource, *given: Any) -> str:
        seen.append((dict(self.options), *given))
        return "answer"

    monkeypatch.setattr(SegmentLogDataSource, method, answer)
    given = list(range(arguments))
    assert getattr(pyspark_segmentlog.DefaultSource({"path": "/x"}), method)(*given) == "answer"
    assert seen == [({"path": "/x"}, *given)]


def test_the_door_does_not_import_pyspark() -> None:
    assert run("import sys, segmentlog.connector; print('pyspark' in sys.modules)") == "False"


def test_every_exported_name_of_the_connector_exists() -> None:
    for name in segmentlog.connector.__all__:
        assert getattr(segmentlog.connector, name) is not None
    assert segmentlog.connector.SegmentLogDataSource is SegmentLogDataSource
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        segmentlog.connector.nothing  # noqa: B018 - the access is the test
