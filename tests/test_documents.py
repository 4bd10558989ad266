"""Every code block of every page is executed, or says why not. ``connector/test_readme.py`` has the README's Python."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.store import MessageStore, QueueKey
from segmentlog.store.groups import commit_offsets
from support.documents import EXECUTED, ROOT, SHOWN, Block, Reader, code_blocks, run_shell
from support.store_builder import Geometry, StoreBuilder, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = ROOT / "README.md"
FIRST_STEPS = ROOT / "docs" / "getting-started.md"  # typed as it stands, in test_first_steps_in_an_empty_directory
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
JANUARY_31 = 1_769_817_600_000  # 2026-01-31T00:00:00Z


def is_executed_here(block: Block) -> bool:
    elsewhere = block.page == README and block.language == "python" and not block.hidden  # test_readme.py
    is_executed = block.language in EXECUTED and block.page != FIRST_STEPS
    return is_executed and block.skip is None and not block.cluster and not elsewhere


WITH_CODE = [page for page in PAGES if any(map(is_executed_here, code_blocks(page)))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_executed_or_says_why_not(page: Path) -> None:
    for block in code_blocks(page):
        assert block.language in EXECUTED | SHOWN, f"{block} is in no language that is executed"
        assert block.skip is None or len(block.skip.split()) >= 3, f"{block} is skipped without a reason"
        assert block.skip is None or not block.cluster


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_has_all_cells(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert re.search(r"^\|[-:| ]+\|$", table, re.MULTILINE), f"no table, since it has no head:\n{table}"
        rows = [re.split(r"(?<!\\)\|", row) for row in table.splitlines()]
        assert [row for row in rows if len(row) != len(rows[0]) or row[-1].strip()] == []


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory as the pages have it in ``/data``: a store with two topics and two consumer groups."""
    store = tmp_path / "store"
    with StoreBuilder(store, geometry=Geometry(segment_bytes=1 << 20, queue_segment_entries=1000)) as builder:
        for topic in ("orders", "payments"):
            builder.append(messages(400, topic=topic, tags=("paid", "sent"), store_time_start=JANUARY_31, step_ms=1000))
    for group in ("etl", "old"):
        commit_offsets(store, group, {QueueKey("orders", queue): 20 for queue in range(4)})
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "one.json").write_text('{"body": "1", "topic": "new", "shardingKey": "a"}\n')
    return tmp_path


@pytest.fixture
def clean(spark: "SparkSession") -> Iterator[None]:
    """Take from the process what pages put there for good: listeners, gauges, views."""
    from prometheus_client import REGISTRY  # noqa: PLC0415 - with the session, after the collection
    from pyspark.sql.streaming import StreamingQueryManager  # noqa: PLC0415 - as above

    added: list[Any] = []
    add, gauges = StreamingQueryManager.addListener, set(REGISTRY._collector_to_names)

    def note(manager: Any, listener: Any) -> None:
        added.append(listener)
        add(manager, listener)

    StreamingQueryManager.addListener = note  # type: ignore[method-assign]
    yield
    StreamingQueryManager.addListener = add  # type: ignore[method-assign]
    for listener in added:
        spark.streams.removeListener(listener)
    for gauge in set(REGISTRY._collector_to_names) - gauges:
        REGISTRY.unregister(gauge)
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


@pytest.mark.spark
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs(page: Path, spark: "SparkSession", data: Path) -> None:
    reader = Reader(data, {"spark": spark}, {"start_http_server(9400)": "start_http_server(0)"})
    result = None
    for block in code_blocks(page):
        if block.output:
            assert result == block.text, f"{block} is not what the block before it prints"
        if not is_executed_here(block):
            continue
        result = reader.execute(block)
        if hasattr(result, "collect"):
            result.collect()  # a frame without an action reads nothing
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
            assert query.exception() is None, str(block)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.scaled(quick=0)
def test_first_steps_in_an_empty_directory(tmp_path: Path) -> None:
    for block in code_blocks(FIRST_STEPS):
        if block.skip is None and block.language in EXECUTED:
            shell = block.text if block.language == "sh" else f"python - <<'PROGRAM'\n{block.text}PROGRAM\n"
            said = run_shell(shell, tmp_path)
    assert said == "3\n"
    assert (tmp_path / "parquet").is_dir()


def test_small_segments_make_small_stores(tmp_path: Path) -> None:
    """As docs/sink.md and docs/writing.md say."""
    from segmentlog.store import Outgoing, StoreConfig  # noqa: PLC0415

    with MessageStore.open(tmp_path / "small", StoreConfig(segment_bytes=1 << 20)) as store:
        store.append(Outgoing(topic="orders", body=b"1"))
    taken = sum(512 * path.lstat().st_blocks for path in (tmp_path / "small").rglob("*"))
    assert taken < 2 << 20


def test_each_answer_about_compatibility_names_its_tests_and_these_exist() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    tests = dict(re.findall(r"^\* ([A-Z]{1,2}): `[^`]+::(\w+)`", text, re.MULTILINE))
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
    table = [line for line in text.splitlines() if line.startswith("|")]
    named = {letter for line in table for letter in re.findall(r"\b([A-Z]{1,2})\b", line)}
    explained = set(re.findall(r"\(([A-Z]{1,2})\)", text))
    assert named | explained == tests.keys()
    for line in table[2:]:
        for cell in line.strip("| ").split(" | ")[2:]:
            assert not cell.startswith("yes") or re.search(r"\b[A-Z]{1,2}\b", cell), line
