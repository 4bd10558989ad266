import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import segmentlog
from segmentlog import ConfigError, JoinedRows, NotAStoreError, Stores, UnknownQueueError
from segmentlog.query.source import StoreSource
from support.store_builder import StoreBuilder, messages

START_MS = 1_769_817_600_000


@pytest.fixture
def stores(known: Path, tmp_path: Path) -> Iterator[Stores]:
    """Broker a has orders and payments, broker b orders and refunds, which the other one lacks."""
    shutil.copytree(known, tmp_path / "brokers" / "a")
    with StoreBuilder(tmp_path / "brokers" / "b") as builder:
        for topic in ("orders", "refunds"):
            builder.append(messages(40, topic=topic, store_time_start=START_MS, step_ms=1000))
    with segmentlog.open_stores(tmp_path / "brokers" / "*") as opened:
        yield opened


def counts(rows: JoinedRows) -> dict[str, int]:
    table = rows.to_arrow()
    assert rows.count() == len(table)
    return {each["values"]: each["counts"] for each in pa.compute.value_counts(table["brokerName"]).to_pylist()}


def test_a_mapping_of_stores(stores: Stores) -> None:
    assert list(stores) == ["a", "b"]
    assert len(stores) == 2
    assert repr(stores) == f"<segmentlog.Stores {stores.path}: `a`, `b`>"
    assert stores["b"].scan("refunds").count() == 40
    with pytest.raises(ConfigError, match="there is no store `c`"):
        stores["c"]


def test_messages_of_all_stores(stores: Stores) -> None:
    assert counts(stores.scan("orders")) == {"a": 400, "b": 40}
    assert stores.scan("orders").schema.names == [*stores["a"].scan("orders").schema.names, "brokerName"]
    assert stores.scan("orders", columns="keys").schema.names == ["keys"]
    assert stores.scan("orders", start="last:2").count() == 2 * 4 * 2
    assert len(stores.scan("orders").head(410)) == 410
    read = list(stores.scan("orders", columns="body").to_batches(threads=2))
    assert sum(batch.num_rows for batch in read) == 440


def test_a_topic_need_not_be_in_all_stores(stores: Stores) -> None:
    assert counts(stores.scan("refunds")) == {"b": 40}
    assert counts(stores.scan(["payments", "refunds"])) == {"a": 400, "b": 40}
    assert counts(stores.scan("^(pay|ref)")) == {"a": 400, "b": 40}
    assert stores.queues(["refunds", "orders"]).count() == 3 * 4
    for call in (stores.scan, stores.queues):
        with pytest.raises(UnknownQueueError, match=r"no topic `refunts`.*Did you mean `refunds`"):
            call(["orders", "refunts"])
        with pytest.raises(ConfigError, match="topics names no topic"):
            call([])
    with pytest.raises(ConfigError, match="scan takes no argument `from_`"):
        stores.scan("orders", from_="-1h")  # type: ignore[call-arg]


def test_keys_of_all_stores(stores: Stores) -> None:
    (key,) = stores["a"].scan("orders", columns="keys").head(1)["keys"].to_pylist()
    found = stores.find("orders", keys=key)
    assert counts(found) == {"a": stores["a"].find("orders", keys=key).count()} | (
        {"b": n} if (n := stores["b"].find("orders", keys=key).count()) else {}
    )
    with pytest.raises(ConfigError, match="keys and unique_keys are both missing"):
        stores.find("orders")


def test_first_rows_of_all_stores(stores: Stores) -> None:
    found = stores.scan("orders", end="last:5")
    assert len(found.head(3)) == 3
    with pytest.raises(ConfigError, match=r"n=-1 is not a whole number"):
        found.head(-1)
    few = stores.scan("refunds", start="last:1")
    assert few.count() == 4
    html = few._repr_html_()
    assert html.startswith("<table><caption>First rows of &lt;JoinedRows of")
    assert html.count("<tr>") == 1 + 4
    assert "more" not in html


def test_look_ups_open_no_store_again(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = StoreSource.open
    monkeypatch.setattr(StoreSource, "open", lambda source: (opened.append(source.path), real(source))[1])
    stores.find("orders", keys="x")  # with what `open_stores` has opened, which the finders keep
    assert not opened
    for _ in range(3):
        stores.find("orders", keys="x")  # topics are asked of one more, which is kept as well
    assert len(opened) == len(stores)


def test_tables_of_all_stores(stores: Stores) -> None:
    for name in ("topics", "queues", "groups", "segments", "metrics"):
        table = getattr(stores, name)().to_arrow()
        parts = [getattr(stores[each], name)().to_arrow() for each in stores]
        assert table.num_rows == sum(part.num_rows for part in parts)
        assert set(table["brokerName"].to_pylist()) <= {"a", "b"}
    assert set(stores.lag()["group"].to_pylist()) == set(stores.groups()["group"].to_pylist())
    assert set(stores.lag("etl")["brokerName"].to_pylist()) == {"a"}
    with pytest.raises(ConfigError, match="consumer group `elt` has no position"):
        stores.lag("elt")


def test_a_path_without_a_star_is_one_store(known: Path) -> None:
    with segmentlog.open_stores(known) as opened:
        assert list(opened) == ["broker-a"]


def test_open_reads_one_store(known: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a pattern of stores.*segmentlog.open_stores\(pattern\)"):
        segmentlog.open(known.parent / "*")
    with pytest.raises(ConfigError, match="is a pattern of stores"):
        segmentlog.open(known.parent / "*", "a")
    with pytest.raises(NotAStoreError, match="no store matches"):
        segmentlog.open_stores(known.parent / "x*")
