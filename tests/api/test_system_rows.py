from pathlib import Path

import pytest

import segmentlog
from segmentlog.query.metadata import SCHEMAS
from segmentlog.store import ConfigError, StoreClosedError
from support.system_store import build_system_store


@pytest.fixture
def system(tmp_path: Path) -> segmentlog.Store:
    return segmentlog.open(build_system_store(tmp_path / "broker-a"))


def test_rows_are_read_in_every_form(system: segmentlog.Store) -> None:
    for kind, count in (("delayed", 2), ("deliveries", 2), ("dead_letters", 1), ("transactions", 1), ("trace", 2)):
        found = getattr(system, kind)()
        name = kind.replace("_", "-")
        assert found.schema == SCHEMAS[name]
        assert found.count() == found.to_arrow().num_rows == found.to_polars().height == count
        assert found.head(1).num_rows == 1
        assert repr(found) == f"<SystemRows {name} of {system.path}>"
        assert "broker-a" in found._repr_html_()


def test_wrong_arguments_are_named(system: segmentlog.Store) -> None:
    with pytest.raises(ConfigError, match="topics=5 is not a list of names"):
        system.trace(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="start"):
        system.trace(start=7)  # type: ignore[arg-type]
    system.close()
    with pytest.raises(StoreClosedError):
        system.transactions()
