import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from segmentlog.connector.setup import shipping


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
    context: Any = SimpleNamespace(master=master, pythonExec=str(python))
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
    context: Any = SimpleNamespace(master="spark://master:7077", pythonExec=make_python(tmp_path))
    shipping.warn_of_workers(context)
    assert caplog.records == []
