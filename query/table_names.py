"""Names of tables and directories that a backfill wrote, as texts of positions: ``table:delta:/lake/orders``."""

from dataclasses import dataclass
from typing import Final

KINDS: Final = ("delta", "iceberg", "files")
FORM: Final = "table:delta:PATH, table:iceberg:NAMESPACE.TABLE (or CATALOG:NAMESPACE.TABLE), or table:files:DIRECTORY"


@dataclass(frozen=True, slots=True)
class TableName:
    """Name of a table or directory."""

    kind: str
    place: str
    catalog: str | None = None

    def __str__(self) -> str:
        return ":".join(["table", self.kind, *([] if self.catalog is None else [self.catalog]), self.place])


def parse_table_name(text: str) -> TableName:
    """Parse the text after ``table:``; `ValueError` says what is expected."""
    kind, _, place = text.partition(":")
    kind = kind.strip().lower()
    if kind not in KINDS or not place or place != place.strip():
        raise ValueError(FORM)
    if kind == "iceberg":
        catalog, colon, name = place.rpartition(":")
        return TableName(kind, name, catalog if colon else None)
    return TableName(kind, place)
