"""The worked examples of ``docs/format`` are bytes of real stores."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import fixtures

FOLDER = Path(__file__).parents[2] / "docs" / "format"
HEAD = re.compile(r"    ([a-z-]+-\d\.\d\.\d) (\S+)")
ROW = re.compile(r" {4,}(\d+)  ([0-9a-f]+(?: [0-9a-f]+)*)(?: {2,}.*)?")


def examples() -> Iterator[tuple[str, str, int, bytes]]:
    for page in sorted(FOLDER.glob("*.md")):
        head = None
        for line in page.read_text(encoding="utf-8").splitlines():
            if found := HEAD.fullmatch(line):
                head = found.groups()
            elif head and (found := ROW.fullmatch(line)):
                yield *head, int(found[1]), bytes.fromhex(found[2])
            else:
                head = None


@pytest.mark.conformance
def test_examples_are_bytes_of_their_fixture() -> None:
    seen: set[str] = set()
    for name, path, offset, expected in examples():
        with tarfile.open(fixtures.FOLDER / name / "store.tar.gz") as archive:
            file = archive.extractfile(f"store/{path}")
            assert file is not None
            file.seek(offset)
            assert file.read(len(expected)) == expected, (name, path, offset)
        seen.add(path.split("/")[0])
    assert seen == {"commitlog", "consumequeue", "index", "checkpoint", "config", "dledger-n1"}
