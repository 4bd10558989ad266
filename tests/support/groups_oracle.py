"""Asks real RocketMQ about consumer groups: its broker's offset manager, its client's allocation strategies.

Its jars come from Maven's own cache, or once from its repository, and are kept where the other oracle's are.
"""

import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from .oracle import BRIEF, output_of

FOLDER = Path(__file__).parents[1] / "interop" / "groups"
NEEDED = ("java", "javac", "mvn")


def offsets(document: Path, version: str) -> list[str]:
    """Return the content that a broker loads from a ``consumerOffset.json``: ``topic@group queue offset``, sorted."""
    return _ask(version, "offsets", str(document))


def commit(document: Path, version: str, group: str, queue: tuple[str, int], offset: int) -> list[str]:
    """Let a broker load a document, set an offset and save it; return the content that it then loads."""
    return _ask(version, "commit", str(document), group, queue[0], str(queue[1]), str(offset))


def allocate(version: str, cases: Sequence[tuple[Sequence[str], Sequence[tuple[str, str, int]]]]) -> list[list[str]]:
    """Return the queues of each consumer of each case by each strategy: ``strategy consumer topic:broker:queue,…``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases"
        lines = [
            ",".join(consumers) + "\t" + ",".join(":".join(map(str, queue)) for queue in queues)
            for consumers, queues in cases
        ]
        file.write_text("\n".join(lines), encoding="utf-8")
        answers = iter(_ask(version, "allocate", str(file)))
        return [[next(answers) for _ in range(3 * len(consumers))] for consumers, _ in cases]


def _ask(version: str, *arguments: str) -> list[str]:
    with tempfile.TemporaryDirectory() as home:  # where its loggers make their folder
        jars = _jars(version)
        options = [*BRIEF.split(), f"-Duser.home={home}", "-Dfile.encoding=UTF-8", "-cp", f"{jars}:{jars}/*"]
        lines = output_of(["java", *options, "GroupsOracle", *arguments], f"RocketMQ {version}")
    return [line.removeprefix("> ") for line in lines if line.startswith("> ")]


def _jars(version: str) -> Path:
    """Make the folder of a version's jars and our class, whole or not at all."""
    source = FOLDER / "GroupsOracle.java"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("SEGMENTLOG_ORACLE_CACHE") or caches / "segmentlog-oracle")
    jars = cache / f"groups-{version}-{zlib.crc32(source.read_bytes()):08x}"
    if not jars.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            made = Path(folder) / "jars"
            options = [f"-Drocketmq.version={version}", f"-DoutputDirectory={made}", "-DincludeScope=runtime"]
            command = ["mvn", "-q", "-B", "-f", FOLDER / "pom.xml", "dependency:copy-dependencies", *options]
            output_of(command, f"Maven for RocketMQ {version}")
            # Once: each start of a source file would compile it, which takes longer than all else.
            output_of(["javac", "-cp", f"{made}/*", "-d", made, source], f"javac for RocketMQ {version}")
            if not jars.exists():  # another worker may have been first
                made.rename(jars)
    return jars
