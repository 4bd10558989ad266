"""Asks real RocketMQ: runs ``tests/interop/oracle`` on a store directory.

Opening a store changes it (recovery, checkpoint, lock), so ``dump`` and ``query`` work on a copy.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parents[1] / "interop" / "oracle" / "run"
NEEDED = ("java", "mvn", "bash", "flock")
TIMEOUT_SECONDS = 300  # the first run of a version builds it

BRIEF = "-Xms64m -Xmx2g -XX:MaxDirectMemorySize=1g -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for a second: it takes a third less time if it does not compile well."""

Line = dict[str, Any]


def available(needed: Sequence[str] = NEEDED) -> str | None:
    """Say why the oracle cannot run here; ``None`` if it can."""
    missing = [program for program in needed if shutil.which(program) is None]
    return f"the oracle needs {', '.join(missing)}" if missing else None


MARKS = [pytest.mark.interop, pytest.mark.skipif(available() is not None, reason=str(available()))]
"""Marks of a test that asks the oracle."""


def dump(store: Path, config: Mapping[str, object], version: str) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(store, Path(folder))
        return ask(version, "dump", "--store", copy, "--config", _json(Path(folder), config), "--no-close")


def query(store: Path, config: Mapping[str, object], version: str, queries: Sequence[Line]) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(store, Path(folder))
        asked = _json(Path(folder), {"config": dict(config), "queries": list(queries)})
        return ask(version, "query", "--store", copy, "--queries", asked, "--no-close")


def write(
    store: Path, config: Mapping[str, object], version: str, messages: Sequence[Line], *options: str
) -> list[Line]:
    """Let RocketMQ put messages into a store, which it makes if there is none; one answer for each."""
    with tempfile.TemporaryDirectory() as folder:
        plan = _json(Path(folder), {"config": dict(config), "messages": list(messages)})
        return ask(version, "write", "--store", store, "--plan", plan, *options)


def retain(version: str, *options: str | Path) -> list[Line]:
    """Let RocketMQ clean stores, which changes them: runs of each, in order; see the oracle's README."""
    return ask(version, "retain", *options)


def filter_answers(version: str, expressions: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[Line]:
    """Evaluate SQL92 filters on rows of properties with RocketMQ's own classes; one answer for each expression."""
    with tempfile.TemporaryDirectory() as folder:
        cases = _json(Path(folder), {"expressions": list(expressions), "rows": list(rows)})
        return ask(version, "filter", "--cases", cases)


def _copy(store: Path, folder: Path) -> Path:
    # cp keeps the holes of the full-size files, and their modification times, which RocketMQ goes by.
    copy = folder / "store"
    subprocess.run(["cp", "-a", "--sparse=always", store, copy], check=True)
    # A broker that was halted between making a queue file and sizing it does not load its store: its operator has to
    # delete the file.
    for each in (copy / "consumequeue").rglob("*"):
        if each.is_file() and not each.stat().st_size:
            each.unlink()
    return copy


def _json(folder: Path, content: object) -> Path:
    path = folder / "arguments.json"
    path.write_text(json.dumps(content))
    return path


def ask(version: str, *arguments: object, java: str = BRIEF) -> list[Line]:
    """Run a verb of the oracle; return its lines."""
    env = {"ORACLE_JAVA_OPTS": java, **os.environ, "ROCKETMQ_VERSION": version}
    lines = output_of([str(RUN), *map(str, arguments)], f"the oracle of RocketMQ {version}", env=env)
    return [json.loads(line) for line in lines]


def output_of(command: Sequence[str | Path], what: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Run a program to its end; return the lines that it printed, or fail with its last errors."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise AssertionError(f"{what} failed ({done.returncode}):\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()
