import re
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import segmentlog
from segmentlog.admin import archive_push
from segmentlog.jobs import statistics
from segmentlog.jobs.statistics import (
    DIMENSIONS,
    Partial,
    Statistics,
    bucket_of,
    cardinality,
    least_of,
    merged,
    page_of,
    partial_of,
    quantile,
    registers_of,
)
from segmentlog.query.source import StoreSource
from segmentlog.store import MissingExtraError
from support import fixtures
from support.scale import scale
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments
from support.tasks import Tasks


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


def counted(store: Path) -> None:
    """Compare the report of a store with a count of its messages, one by one."""
    report = statistics.run(None, store, processes=1)
    with segmentlog.open(store) as opened:
        columns = ["topic", "queueId", "tags", "keys", "bornHost", "bornTimestamp", "storeTimestamp", "storeSize"]
        rows = opened.scan(opened.topics().to_arrow()["topic"].to_pylist(), columns=columns).to_arrow().to_pylist()
    assert report.numbers["messages"] == len(rows)
    assert report.numbers["bytes"] == sum(row["storeSize"] for row in rows)
    every = {"topics": report.table, **report.tables}
    of_row = {
        "topics": lambda row: (row["topic"],),
        "queues": lambda row: (row["topic"], row["queueId"]),
        "tags": lambda row: (row["topic"], row["tags"]),
        "hosts": lambda row: (row["bornHost"].rpartition(":")[0],),
        "minutes": lambda row: (row["storeTimestamp"].replace(second=0, microsecond=0),),
    }
    for name, key in of_row.items():
        found = {tuple(row[by] for by in DIMENSIONS[name]): row for row in every[name].to_pylist()}
        assert {each: row["messages"] for each, row in found.items()} == Counter(map(key, rows))
        sizes: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            sizes[key(row)] += row["storeSize"]
        assert {each: row["bytes"] for each, row in found.items()} == sizes
    for row in report.table.to_pylist():
        mine = [each for each in rows if each["topic"] == row["topic"]]
        times = [each["storeTimestamp"] for each in mine]
        assert (row["first"], row["last"]) == (min(times), max(times))
        largest = max(each["storeSize"] for each in mine)
        assert largest * 15 / 16 <= row["sizeMax"] <= largest
        keys = {key for each in mine for key in (each["keys"] or "").split()}
        assert abs(row["keys"] - len(keys)) <= 0.02 * len(keys)


def test_a_store_of_ours(store: Path) -> None:
    counted(store)


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cq-deleted-5.1.0", "retention-5.3.3"])
def test_stores_of_rocketmq(name: str, tmp_path: Path) -> None:
    counted(fixtures.unpack(name, tmp_path))


def test_a_damaged_message_is_left_out(store: Path) -> None:
    put_at(segments(store)[1], 1000, b"\xff" * 250)
    assert 0 < statistics.run(None, store, processes=1).numbers["messages"] < ROWS


def test_an_empty_store_and_one_topic(store: Path, tmp_path: Path) -> None:
    with segmentlog.open(tmp_path / "empty", "a", config=CONFIG):
        pass
    report = statistics.run(None, tmp_path / "empty", processes=1)
    assert (report.numbers["messages"], report.numbers["daysUntilFull"], report.table.num_rows) == (0, None, 0)
    report = statistics.run(None, store, topics=["orders"], processes=1)
    assert report.table["topic"].to_pylist() == ["orders"]


def test_retention_that_is_shorter_frees_more(store: Path) -> None:
    now = int(segments(store)[-1].stat().st_mtime * 1000) + 50 * 3_600_000
    freed = statistics.run(None, store, now_ms=now, processes=1).tables["retention"].to_pylist()
    by_hours = {row["reservedHours"]: row["freedBytes"] for row in freed}
    assert by_hours[24] == by_hours[48] > by_hours[72] == by_hours[720] == 0
    assert by_hours[24] % CONFIG.segment_bytes == 0


texts = st.text(st.characters(codec="utf-8"), max_size=5)
moments = st.integers(0, 1 << 44)
Row = tuple[str, int, str | None, str | None, int, int, int]
messages = st.tuples(
    texts, st.integers(0, 3), st.none() | texts, st.none() | texts, moments, moments, st.integers(91, 1 << 24)
)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    topics, queues, tags, keys, born, stored, sizes = zip(*rows, strict=True) if rows else ((),) * 7
    time = pa.timestamp("us", "UTC")
    columns = {
        "topic": pa.array(topics, pa.string()),
        "queueId": pa.array(queues, pa.int32()),
        "tags": pa.array(tags, pa.string()),
        "keys": pa.array(keys, pa.string()),
        "bornHost": pa.array([f"10.0.0.{number}:{number + 1000}" for number in queues], pa.string()),
        "bornTimestamp": pa.array([ms * 1000 for ms in born], time),
        "storeTimestamp": pa.array([ms * 1000 for ms in stored], time),
        "storeSize": pa.array(sizes, pa.int32()),
    }
    return pa.record_batch(columns)


def values(partial: Partial) -> object:
    tables = {name: sorted(map(repr, table.to_pylist())) for name, table in partial.tables.items()}
    return tables, dict(partial.keys)


@settings(max_examples=scale(quick=30, attack=200, soak=5000), deadline=None)
@given(st.lists(messages, max_size=30), st.lists(st.integers(0, 30), max_size=4))
@pytest.mark.slow
@pytest.mark.scaled
def test_merged_parts_are_the_whole(
    rows: list[tuple[str, int, str | None, str | None, int, int, int]], cuts: list[int]
) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [partial_of(batch_of(rows[at:stop])) for at, stop in pairwise(edges)]
    whole = values(merged([partial_of(batch_of(rows))]))
    assert values(merged(parts)) == whole
    assert values(merged([merged(parts[:1]), merged(parts[1:])])) == whole


@given(st.lists(st.integers(0, (1 << 53) - 1), min_size=1))
def test_a_bucket_is_a_sixteenth_wide(numbers: list[int]) -> None:
    buckets = bucket_of(np.array(numbers, np.int64))
    for number, bucket in zip(numbers, buckets.tolist(), strict=True):
        assert least_of(bucket) <= number < least_of(bucket + 1)
        assert least_of(bucket + 1) - least_of(bucket) <= max(1, number / 16)
    assert quantile(buckets, np.ones(len(numbers), np.int64), 1.0) == least_of(int(buckets.max()))


@pytest.mark.parametrize("count", [0, 1, 100, 10_000, 300_000])
def test_the_number_of_keys_is_known_to_a_few_per_cent(count: int) -> None:
    texts = pa.array([f"order-{number:07}" for number in range(count)], pa.string())
    assert abs(cardinality(registers_of(texts)) - count) <= 0.03 * count


def test_tasks_count_the_same(store: Path) -> None:
    alone, spread = statistics.run(None, store, processes=1, now_ms=0), statistics.run(Tasks(), store, now_ms=0)
    assert spread.table == alone.table
    assert spread.tables == alone.tables


def test_some_topics_tell_nothing_about_the_disk(store: Path) -> None:
    every = statistics.run(None, store, processes=1)
    (largest, *_) = every.table["topic"].to_pylist()
    assert every.numbers["daysUntilFull"] is not None
    assert statistics.run(None, store, topics=[largest], processes=1).numbers["daysUntilFull"] is None


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("bytes", 999, "999 B"),
        ("bytesPerDay", 72_681_360, "72.7 MB/day"),
        ("bytesPerSecond", 1500.0, "1.5 kB/s"),
        ("sizeP50", 304, "304 B"),
        ("latenessMax", 94_489_280_512, "1,093.6 d"),
        ("latenessP50", 0, "0 ms"),
        ("msFrom", 61_000, "1.0 min"),
        ("daysUntilFull", 1039.8, "1,039.8 days"),
        ("reservedHours", 72, "72 h"),
        ("messages", 1_000, "1,000"),
        ("freeBytes", None, "–"),
        ("first", "2026-11-21T02:08:52.028Z", "2026-11-21 02:08:52.028"),
        ("topic", "TZ", "TZ"),
    ],
)
def test_values_on_a_page_have_units(name: str, value: object, shown: str) -> None:
    assert statistics._value(name, value) == shown


@pytest.mark.parametrize("is_archive", [False, True], ids=["an object store", "an archive in a directory"])
def test_an_object_store_and_an_archive_have_no_disk_to_fill(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_archive: bool
) -> None:
    here = statistics.run(None, store, processes=1)
    if is_archive:
        archive_push(store, f"file://{tmp_path / 'archive'}")
    else:
        monkeypatch.setattr(statistics, "is_remote", lambda _: True)
    there = statistics.run(None, StoreSource.of(tmp_path / "archive" if is_archive else store), processes=1)
    assert there.numbers == here.numbers | {"freeBytes": None, "daysUntilFull": None}
    assert there.table.equals(here.table)
    assert there.tables["retention"].schema == here.tables["retention"].schema
    assert there.tables["retention"].num_rows == 0


HOSTILE = "%$a_b^$-\\frac{"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)


@pytest.fixture
def found(tmp_path: Path) -> Statistics:
    path = write_small_store(tmp_path / "store")
    with segmentlog.open(path, "a", config=CONFIG) as store:
        store.append("orders", b"1", tags="<script>alert(1)</script>", keys="k")
        store.append("orders", b"1", tags=HOSTILE)
    return statistics.run(None, path, processes=1)


@pytest.mark.slow
def test_a_page_has_plots_and_tables_and_needs_no_network(found: Statistics) -> None:
    page = page_of(found, "<b>&$x_")
    assert page.count("<svg") == 4
    assert "orders" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<title>&lt;b&gt;&amp;$x_</title>" in page
    parser = Tags()
    parser.feed(page)
    assert not parser.tags & {"script", "link", "img", "iframe", "b"}
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "url(http" not in page
    assert "@import" not in page
    assert "mathdefault" not in page
    assert len(page) < 300_000


@pytest.mark.slow
def test_hostile_names_of_topics_are_text_in_plots(found: Statistics) -> None:
    names = ["<script>", HOSTILE, "\x1b[31m\x00", "订单", "a" * 500]
    table = found.table.slice(0, 1)
    rows = [{**table.to_pylist()[0], "topic": name} for name in names]
    page = page_of(
        Statistics(numbers=found.numbers, table=table.from_pylist(rows, table.schema), tables=found.tables), "x"
    )
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "\x00" not in page
    assert HOSTILE in page
    assert "订单" in page


def test_a_store_without_messages_has_no_plots(tmp_path: Path) -> None:
    with segmentlog.open(tmp_path / "empty", "a", config=CONFIG):
        pass
    assert "<svg" not in page_of(statistics.run(None, tmp_path / "empty", processes=1), "x")


def test_matplotlib_is_an_extra(found: Statistics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="plots"):
        page_of(found, "x")
