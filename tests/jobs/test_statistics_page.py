import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import segmentlog
from segmentlog.jobs import statistics
from segmentlog.jobs.statistics import Statistics
from segmentlog.jobs.statistics_page import _over_time, page_of
from segmentlog.store import MissingExtraError
from support.small_store import CONFIG, write_small_store

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


def test_one_minute_is_as_wide_as_a_minute() -> None:
    axes = Figure().add_subplot()
    minutes = pa.table({"minute": pa.array([60_000 * 29_000_000], pa.timestamp("ms", "UTC")), "messages": [5]})
    _over_time(axes, minutes)
    first, last = axes.get_xlim()  # days
    assert 1 <= (last - first) * 24 * 60 < 2


def test_a_store_without_messages_has_no_plots(tmp_path: Path) -> None:
    with segmentlog.open(tmp_path / "empty", "a", config=CONFIG):
        pass
    assert "<svg" not in page_of(statistics.run(None, tmp_path / "empty", processes=1), "x")


def test_matplotlib_is_an_extra(found: Statistics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="plots"):
        page_of(found, "x")
