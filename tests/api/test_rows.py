"""Forms of a result: Arrow, pandas, Polars and DuckDB hold the same rows; a missing package says what to install."""

import sys

import duckdb
import pytest

import segmentlog
from segmentlog.store import MissingExtraError

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


def test_a_look_up_has_the_same_forms(store: segmentlog.Store) -> None:
    found = store.find("orders", keys="key-7", columns="queueOffset")
    assert found.to_polars().rows() == [(1, "key-7")]
    assert found.to_pandas().to_dict("list") == {"queueOffset": [1], "asked": ["key-7"]}


@pytest.mark.parametrize("name", ["pandas", "polars", "duckdb"])
def test_a_missing_package_is_named(store: segmentlog.Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = store.scan("orders")
    calls = {
        "pandas": scan.to_pandas,
        "polars": scan.to_polars,
        "duckdb": lambda: scan.to_duckdb(None, "orders"),
    }
    monkeypatch.setitem(sys.modules, name, None)
    text = rf"to_{name}\(\) needs the package {name}, which is not installed.*pip install 'segmentlog\[{name}\]'"
    with pytest.raises(MissingExtraError, match=text):
        calls[name]()
