import logging
import sys
import zipimport
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

import segmentlog
from segmentlog.connector.setup import shipping


class Context(SimpleNamespace):
    """A SparkContext, as far as `ship_package` uses it."""

    PACKAGE_EXTENSIONS = (".zip", ".egg", ".jar")

    def __init__(self, **known: Any) -> None:
        super().__init__(added=[], **known)

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.added.append(path)
        (Path(pyspark.SparkFiles.getRootDirectory()) / Path(path).name).write_bytes(Path(path).read_bytes())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "userFiles"
    folder.mkdir()
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(folder))
    return folder


def test_an_installed_package_is_in_no_archive() -> None:
    assert shipping.package_archive() is None


def test_a_package_that_was_imported_from_a_wheel_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile  # noqa: PLC0415

    wheel = tmp_path / "segmentlog-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("segmentlog/__init__.py", "")
    monkeypatch.setattr(segmentlog, "__spec__", zipimport.zipimporter(str(wheel)).find_spec("segmentlog"))
    assert shipping.package_archive() == wheel


def test_a_wheel_is_added_under_a_suffix_that_workers_take(files: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "segmentlog-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"the wheel")
    context: Any = Context()
    for _ in range(2):  # the second time there is nothing to do
        shipping.ship_package(context, wheel)
    (added,) = context.added
    assert Path(added).name == "segmentlog-0.1.0-py3-none-any.zip"
    assert Path(added).read_bytes() == b"the wheel"
    # Where Spark 4.3 looks for it when it plans a stream.
    assert (files / "streaming_job" / "segmentlog-0.1.0-py3-none-any.zip").read_bytes() == b"the wheel"


def test_a_zip_is_not_added_again(files: Path, tmp_path: Path) -> None:
    """PySpark did so itself."""
    archive = tmp_path / "segmentlog.zip"
    archive.write_bytes(b"")
    (files / "segmentlog.zip").write_bytes(b"")
    context: Any = Context()
    shipping.ship_package(context, archive)
    assert context.added == []
    assert (files / "streaming_job" / "segmentlog.zip").exists()


@pytest.mark.parametrize(
    ("master", "remedy"),
    [
        ("spark://master:7077", "or submit with --archives or --py-files as docs/deployment.md says"),
        ("local[2]", "export"),
    ],
)
def test_an_interpreter_that_lacks_something_is_warned_of(
    master: str, remedy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    python = tmp_path / "python"
    version = ".".join(map(str, sys.version_info[:3]))
    python.write_text(
        f'#!/bin/sh\necho \'{{"version": "{version}", "prefix": "/", "lacks": ["segmentlog", "isal"]}}\'\n'
    )
    python.chmod(0o755)
    context: Any = Context(master=master, pythonExec=str(python))
    shipping.warn_of_workers(context)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert text.startswith(
        f"Spark on master `{master}` will start Python workers that cannot run the format `segmentlog`"
    )
    assert f"{python} ({python}, {version}) has no segmentlog, isal" in text
    assert remedy in text


def renamed(folder: Path) -> str:
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("make_python", [lambda _: sys.executable, renamed])
def test_an_interpreter_that_is_fit_is_not_mentioned(
    make_python: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context: Any = Context(master="spark://master:7077", pythonExec=make_python(tmp_path))
    shipping.warn_of_workers(context)
    assert caplog.records == []
