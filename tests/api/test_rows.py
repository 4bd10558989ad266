import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import segmentlog
from segmentlog.api.rows import SHOWN_ROWS, html_table
from segmentlog.store import ConfigError, CorruptRecordError, MissingExtraError

COLUMNS = ["queueId", "queueOffset", "body", "storeTimestamp", "keys"]


def test_all_forms_hold_the_same_rows(store: segmentlog.Store) -> None:
    scan = store.scan("orders", columns=COLUMNS)
    table = scan.to_arrow()
    assert table.num_rows == 400
    assert scan.to_polars().to_arrow().to_pydict() == table.to_pydict()
    frame = scan.to_pandas()
    assert frame["body"].tolist() == table["body"].to_pylist()
    assert str(frame["storeTimestamp"].dtype) == "datetime64[us, UTC]"
    with duckdb.connect() as connection:
        scan.to_duckdb(connection, 'odd "name"')
        found = connection.execute('SELECT "queueId", "queueOffset", body, keys FROM "odd ""name"""').fetchall()
    assert found == list(zip(*(table[name].to_pylist() for name in COLUMNS if name != "storeTimestamp"), strict=True))


def test_all_columns_reach_every_form(store: segmentlog.Store) -> None:
    scan = store.scan("orders", columns="*")
    assert list(scan.to_pandas().columns) == scan.to_polars().columns == scan.schema.names
    with duckdb.connect() as connection:
        scan.to_duckdb(connection, "orders")
        described = connection.execute("DESCRIBE orders").fetchall()
    assert [name for name, *_ in described] == scan.schema.names
    assert {name: kind for name, kind, *_ in described}["properties"] == "MAP(VARCHAR, VARCHAR)"


@pytest.mark.parametrize("name", ["pandas", "polars", "duckdb"])
def test_a_missing_package_is_named(store: segmentlog.Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = store.scan("orders")
    calls = {"pandas": scan.to_pandas, "polars": scan.to_polars, "duckdb": lambda: scan.to_duckdb(None, "orders")}
    monkeypatch.setitem(sys.modules, name, None)
    text = rf"to_{name}\(\) needs the package {name}, which is not installed.*pip install 'segmentlog\[{name}\]'"
    with pytest.raises(MissingExtraError, match=text):
        calls[name]()


def test_libraries_take_a_result_as_it_is(store: segmentlog.Store) -> None:
    scan = store.scan("orders", columns=COLUMNS)
    found = store.find("orders", keys=["key-7", "key-8"])
    for rows in (scan, found, store.topics()):
        table = rows.to_arrow()
        assert pa.table(rows) == table
        assert pa.RecordBatchReader.from_stream(rows).read_all() == table
        assert pa.schema(rows) == rows.schema
        assert rows.to_reader().read_all() == table
        assert pa.Table.from_batches(list(rows), rows.schema) == table
        assert pl.DataFrame(rows).equals(rows.to_polars())
    with duckdb.connect() as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT keys) FROM scan").fetchall() == [(400, 400)]
        query = "SELECT a.keys FROM scan a JOIN found b USING (keys) ORDER BY 1"  # each is read where it is named
        assert connection.execute(query).fetchall() == [("key-7",), ("key-8",)]
        assert len(connection.execute("SELECT * FROM scan LIMIT 3").fetchall()) == 3
        assert connection.execute("SELECT count(*) FROM scan").fetchall() == [(400,)]


def test_an_error_of_the_store_reaches_the_consumer(store: segmentlog.Store, path: Path) -> None:
    scan = store.scan("orders")
    for segment in (path / "commitlog").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))
    with pytest.raises(CorruptRecordError):
        scan.to_reader().read_all()
    with pytest.raises(pa.ArrowInvalid, match="SEGMENTLOG_CORRUPT_RECORD"):
        pa.table(scan)
    with duckdb.connect() as connection, pytest.raises(duckdb.Error, match="SEGMENTLOG_CORRUPT_RECORD"):
        connection.execute("SELECT * FROM scan")


def test_duckdb_is_the_callers(store: segmentlog.Store, path: Path) -> None:
    scan = store.scan("orders")
    with pytest.raises(ConfigError, match="connection is a str, not a DuckDB connection"):
        scan.to_duckdb("file.db", "orders")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE orders (a INT)")
        with pytest.raises(duckdb.CatalogException):
            scan.to_duckdb(connection, "orders")
        damage_all_but_the_last_segment(path)
        with pytest.raises(CorruptRecordError, match="on_corrupt="):
            scan.to_duckdb(connection, "damaged")
        assert connection.execute("SHOW TABLES").fetchall() == [("orders",)]


def damage_all_but_the_last_segment(path: Path) -> None:
    last = max((path / "commitlog").iterdir())
    for segment in (path / "commitlog").iterdir():
        if segment != last:
            segment.write_bytes(bytes(segment.stat().st_size))


def test_within_a_transaction_the_caller_commits(store: segmentlog.Store, path: Path) -> None:
    scan = store.scan("orders")
    with duckdb.connect() as connection:
        connection.begin()
        scan.to_duckdb(connection, "orders")
        connection.rollback()
        assert connection.execute("SHOW TABLES").fetchall() == []
        connection.begin()
        scan.to_duckdb(connection, "orders")
        connection.commit()
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(400,)]
        damage_all_but_the_last_segment(path)
        connection.begin()
        with pytest.raises(CorruptRecordError):
            scan.to_duckdb(connection, "damaged")
        connection.rollback()
        assert connection.execute("SHOW TABLES").fetchall() == [("orders",)]


def test_bodies_are_compressed_by_one_method(store: segmentlog.Store, tmp_path: Path) -> None:
    """To try all methods takes eight times as long where bodies do not compress."""
    scan = store.scan("orders")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        scan.to_duckdb(connection, "orders")
        connection.execute("CHECKPOINT")
        query = "SELECT DISTINCT compression FROM pragma_storage_info('orders') WHERE column_name = 'body'"
        assert ("ZSTD",) in connection.execute(f"{query} AND segment_type = 'BLOB'").fetchall()


HOSTILE = "<script>alert('x')</script>\u202e&"


def test_every_text_is_escaped_and_short() -> None:
    html = html_table(HOSTILE, pa.table({HOSTILE: [HOSTILE, None, "<b>", "a" * 1000]}), 4)
    assert "<script" not in html
    assert "<b>" not in html
    assert "\u202e" not in html
    assert html.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;·&amp;") == 3
    assert "<td></td>" in html
    assert "a" * 60 not in html
    assert "more" not in html


def test_rows_that_are_left_out_are_counted() -> None:
    html = html_table("", pa.table({"a": range(100), "b": range(100)}), 100)
    assert html.count("<td>") == 2 * SHOWN_ROWS
    assert f'<td colspan="2">and {100 - SHOWN_ROWS} more</td>' in html


def test_results_show_themselves(store: segmentlog.Store) -> None:
    for shown, texts in (
        (store, ("broker-a", "orders", "payments", "400")),
        (store.topics(), ("Topics of", "isSystem", "payments")),
        (store.lag("etl"), ("Lag of etl", "80")),
        (store.segments(), ("baseOffset", "32768")),
        (store.scan("orders", columns=["keys", "body"], sql="KEYS = 'key-7'"), ("keys, body", "queueId", "100")),
        (store.find("orders", keys=["key-7", "none"]), ("2 keys", "1 rows", "key-7", "asked")),
    ):
        html = shown._repr_html_()
        assert html.startswith("<table><caption>")
        for text in texts:
            assert text in html


@pytest.mark.parametrize("name", ["topics", "queues", "groups", "segments"])
def test_results_have_a_repr(store: segmentlog.Store, name: str) -> None:
    table = getattr(store, name)()
    assert repr(table).startswith(f"<{name.title() if name != 'groups' else 'Consumer groups'} of /")
    first, head, rule, *rows = repr(table).splitlines()
    assert first.endswith(f"{table.count()} rows>")
    assert head.split() == table.schema.names
    assert set(rule) == {"-", " "}
    assert rows[0].split()[0] == "broker-a"
    assert len(rows) == min(table.count(), 10) + (table.count() > 10)
    assert repr(store.find("orders", keys="key-7")).startswith("<Lookup of 1 keys: 1 rows (")
