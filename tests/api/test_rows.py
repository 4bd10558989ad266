import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import segmentlog
from segmentlog.store import CorruptRecordError, MissingExtraError

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
    scan = store.scan("orders")
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
