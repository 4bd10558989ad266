"""The kind of a source of queue entries is asked for in `store/entries` alone: other modules ask `QueueEntries`."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("store", "query", "connector", "package", "jobs")
QUESTION = re.compile(
    r"\.archived\b|\.continued\b|\brevision is\b|\bfiles_of\(|\brocksdb_queues\(|\bin_rocksdb\b|"
    r"isinstance\(.*(?:\w+Entries|ArchivedStore|\w+Queues)\b|\bsource is (?:not )?QueueSource|\bdatabase\b.* None"
)
ALLOWED = {
    "store/read/queue_watch.py": 2,  # where files tell all, so do directories, and no end of the log is known
    "store/directory/layout.py": 1,  # looks whether the log of a location goes on in an archive
    "store/directory/kinds.py": 1,  # describes the store
    "store/maintenance/verification.py": 1,  # what cannot be verified
}
"""Branches outside of `store/entries`, which may become fewer and not more."""
IN_ENTRIES = 8


def questions(source: str) -> list[str]:
    """Conditions of a module that ask for the kind of a source."""
    conditions: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
                conditions.append(test)
            case ast.comprehension(ifs=tests):
                conditions += tests
    return [text for text in map(ast.unparse, conditions) if QUESTION.search(text)]


def test_only_entries_ask_for_the_kind_of_a_source() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = Counter({str(path.relative_to(ROOT)): len(questions(path.read_text(encoding="utf-8"))) for path in paths})
    inside = {path: count for path, count in found.items() if path.startswith("store/entries/")}
    outside = {path: count for path, count in (found - Counter(inside)).items() if count > ALLOWED.get(path, 0)}
    assert outside == {}
    assert sum(inside.values()) <= IN_ENTRIES, inside


def test_a_question_is_seen() -> None:
    source = "if e.files_of(key) and x: ...\ny = 1 if location.archived is None else 2\nif entries.bounds([]): ...\n"
    assert questions(source) == ["e.files_of(key) and x", "location.archived is None"]
