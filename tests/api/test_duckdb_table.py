from pathlib import Path

import duckdb
import pytest

import segmentlog
from segmentlog.api import duckdb_table
from segmentlog.store import ConfigError, CorruptRecordError


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


def test_bodies_are_compressed_by_one_method(
    store: segmentlog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To try all methods takes eight times as long where bodies do not compress."""
    scan = store.scan("orders")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        scan.to_duckdb(connection, "orders")
        connection.execute("CHECKPOINT")
        query = "SELECT DISTINCT compression FROM pragma_storage_info('orders') WHERE column_name = 'body'"
        assert ("ZSTD",) in connection.execute(f"{query} AND segment_type = 'BLOB'").fetchall()
        monkeypatch.setattr(duckdb, "__version__", "1.4.1")  # has no such clause, or stores such a column as it is
        described = [("body", "BLOB"), ("tags", "VARCHAR")]
        assert duckdb_table._columns(described, duckdb) == ['"body" BLOB', '"tags" VARCHAR']
