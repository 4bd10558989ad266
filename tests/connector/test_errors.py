import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import segmentlog.store
from segmentlog.connector.errors import SPARK_WORDS, in_spark_words
from segmentlog.connector.options.read_table import SOURCE
from segmentlog.connector.options.write_table import SINK
from segmentlog.store import DataLossError, Remedy

NAMES = {option.name for option in (*SOURCE, *SINK)}
BROKERS = {
    *("maxMessageSize", "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"),
    "enabledAppendPropCRC",
}
"""Options that are called as RocketMQ's broker calls them: errors may speak of the broker's configuration."""
COLUMNS = {"storeHost"}
"""Options that are called as a column is."""
ONLY_SPARKS = {name for name in NAMES - BROKERS - COLUMNS if not name.islower()} | {"segmentlog.connector"}


def test_every_remedy_is_worded_with_options_that_exist() -> None:
    assert set(SPARK_WORDS) == set(Remedy)
    for words in SPARK_WORDS.values():
        asked = set(re.findall(r"\b[a-z]+[A-Z]\w+\b", words)) | NAMES & {words.split()[0]}
        assert asked <= NAMES, words
        assert asked or "MessageStore.open" in words or "`segmentlog archive" in words or "storage.aws_" in words


def test_store_errors_that_pass_through_spark_name_options() -> None:
    with pytest.raises(DataLossError) as raised, in_spark_words():
        raise DataLossError("2 messages are gone", remedies=(Remedy.SKIP_LOST,))
    assert raised.value.fix == SPARK_WORDS[Remedy.SKIP_LOST]
    assert "OnLoss" not in str(raised.value)


def texts(tree: ast.AST) -> Iterator[str]:
    """Strings of a module that are not docstrings: what errors and logs are made of."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    bare = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    assert isinstance(tree, documented)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in bare:
            yield node.value


def test_the_store_names_no_option_of_spark() -> None:
    root = Path(segmentlog.store.__file__).parent
    modules = sorted(root.rglob("*.py"))
    assert len(modules) > 50
    named = re.compile(rf"\b({'|'.join(map(re.escape, ONLY_SPARKS))})\b")
    found = {
        f"{path.relative_to(root)}: {text}"
        for path in modules
        if named.search(source := path.read_text(encoding="utf-8"))
        for text in texts(ast.parse(source))
        if named.search(text)
    }
    assert not found
