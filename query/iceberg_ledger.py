"""Ledger of an Iceberg table, by pyiceberg.

::

    properties     segmentlog.parts.JOB.2026-01     the parts of a month
                   segmentlog.job.JOB               what the job is asked for
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from segmentlog.store import ConfigError

from .extras import optional_module
from .ledgers import KEYS, Bounds, Ledger, first_line
from .parts import Row, unpack

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import DataScan, Table

T = TypeVar("T")
PREFIX: Final = "segmentlog"


class IcebergLedger(Ledger):
    """Table of an Iceberg catalog; parameters as of `IcebergTarget`."""

    _catalog: "Catalog"
    _table: "Table"

    def __init__(self, table: str, *, catalog: str | None = None, properties: Mapping[str, str] | None = None) -> None:
        self.name, self._catalog_name, self._properties = table, catalog, dict(properties or {})

    def connect(self) -> None:
        """Open the catalog."""
        if self.name.count(".") < 1 or not all(self.name.split(".")):
            raise ConfigError(f"table {self.name!r} has no namespace", fix="Name it as NAMESPACE.TABLE")
        self._catalog = open_catalog(self._catalog_name, self._properties)

    def load(self) -> None:
        """Open the catalog and the table; `ConfigError` if there is none."""
        self.connect()
        from pyiceberg.exceptions import NoSuchTableError  # the catalog's opening says what is missing

        try:
            self._table = self._catalog.load_table(self.name)
        except NoSuchTableError:
            raise ConfigError(f"the catalog has no table {self.name}", fix="Name it as NAMESPACE.TABLE") from None
        except Exception as error:
            problem = f"table {self.name} of the catalog cannot be opened: {first_line(error)}"
            raise ConfigError(problem, fix="Check the catalog's properties and its warehouse") from error

    def close(self) -> None:
        """Close the catalog's connections."""
        if hasattr(self, "_catalog"):
            self._catalog.close()

    def refresh(self) -> None:
        self._table.refresh()

    def state(self) -> object:
        return self._table.metadata_location

    def jobs(self) -> Mapping[str, str]:
        return self._properties_of("job")

    def ledger(self) -> list[Row]:
        texts = self._properties_of(f"parts.{self.job_id}")
        return [row for month, text in texts.items() for row in unpack(text, f"ledger {month} of {self.name}")]

    def files(self, bounds: Bounds) -> Sequence[str]:
        return [each.file.file_path for each in self._scan(bounds).plan_files()]

    def keys(self, bounds: Bounds, reads: Callable[[str], bool]) -> pa.Table:
        from pyiceberg.io.pyarrow import ArrowScan

        scan = self._scan(bounds).select(*KEYS)
        tasks = [each for each in scan.plan_files() if reads(each.file.file_path)]
        return ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter).to_table(tasks)

    def columns(self) -> Sequence[str]:
        return self._table.schema().column_names

    def _properties_of(self, kind: str) -> dict[str, str]:
        prefix = f"{PREFIX}.{kind}."
        found = self._table.properties.items()
        return {name.removeprefix(prefix): text for name, text in found if name.startswith(prefix)}

    def _scan(self, bounds: Bounds) -> "DataScan":
        """Return a scan of rows within some bounds, or with a null there."""
        scan = self._table.scan()
        for name, values in bounds.items():
            low, high = (f"'{each.isoformat()}'" if isinstance(each, datetime) else each for each in values)
            scan = scan.filter(f"({name} >= {low} and {name} < {high}) or {name} is null")
        return scan


def open_catalog(name: str | None, properties: Mapping[str, str]) -> "Catalog":
    """Return a catalog of pyiceberg's configuration; `ConfigError` if it has none of this name, or cannot open it."""
    catalogs = optional_module("pyiceberg", "Iceberg tables need", extra="iceberg", module="pyiceberg.catalog")

    def opened() -> "Catalog":
        found: Catalog = catalogs.load_catalog(name, **properties)
        found.list_namespaces()
        return found

    try:
        return again(opened)
    except Exception as error:
        problem = f"catalog {name or 'default'} cannot be opened: {first_line(error)}"
        fix = "Describe it in .pyiceberg.yaml, or with properties such as type=sql, uri=…, warehouse=…"
        raise ConfigError(problem, fix=fix) from error


def again(work: Callable[[], T]) -> T:
    """Return the result of some work, tried twice: of two jobs that create a catalog or a table at once, one fails."""
    try:
        return work()
    except Exception:  # noqa: BLE001 - each kind of catalog has its own errors
        time.sleep(0.2)
        return work()
