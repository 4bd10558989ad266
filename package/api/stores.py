"""Stores: what ``segmentlog.open_stores`` returns, the stores that a pattern matches, read as one.

::

    open_stores("s3://logs/*") ──► Stores ──┬─ ["broker-a"] ──► Store
                                            ├─ topics, queues, groups, lag, segments, metrics ──► MetadataTable of all
                                            └─ scan, find ──► JoinedRows: the rows of one store after the other
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from segmentlog.query.patterns import at_once
from segmentlog.query.request import Names, body_format_of, scan_spec
from segmentlog.query.selection import topics_in
from segmentlog.query.source import OpenedSource, StoreSource, open_all
from segmentlog.query.suggestions import did_you_mean, listing
from segmentlog.query.times import Clock
from segmentlog.store import DEFAULT_COLUMNS, ConfigError, OnCorrupt, OnLoss, Snapshot

from .arguments import Position, api_call, checked_topics
from .rows import MetadataTable, Rows
from .scan import Scan
from .store import Store, queues_of, scan_of

if TYPE_CHECKING:
    import os

_COLUMNS: Final = (*DEFAULT_COLUMNS, "brokerName")


class JoinedRows(Rows):
    """Rows of several stores, one store after the other. Made by ``Stores.scan`` and ``Stores.find``."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = tuple(parts)
        """The rows of each store that has the topics."""

    def __repr__(self) -> str:
        return f"<JoinedRows of {listing(list(map(repr, self.parts)))}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns, as of the parts."""
        return self.parts[0].schema

    def to_batches(self, **arguments: Any) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows as a stream of batches; arguments as of the parts, such as ``threads`` of a scan."""
        for part in self.parts:
            with closing(part.to_batches(**arguments)) as batches:
                yield from batches

    def count(self) -> int:
        """Count the rows."""
        return sum(at_once(lambda part: part.count(), self.parts))


def joined(scans: Sequence[Scan]) -> Scan | JoinedRows:
    """Return one scan as it is, and several as one."""
    return scans[0] if len(scans) == 1 else JoinedRows(scans)


class Stores(Mapping[str, Store]):
    """Stores by the names of their brokers, for reading. Made by ``segmentlog.open_stores``.

    A call of all stores has one row after the other of each; column ``brokerName`` tells them apart. The stores are
    those that the pattern matched when it was opened.
    """

    def __init__(self, source: StoreSource, zone: tzinfo | None = None) -> None:
        self.path = source.path
        """The pattern."""
        self._zone = zone
        opened = open_all(source.each())
        self._opened = {snapshot.broker_name: OpenedSource(each, snapshot) for each, snapshot in opened}
        self._stores = {name: Store(each.source, zone, each) for name, each in self._opened.items()}

    def __repr__(self) -> str:
        return f"<segmentlog.Stores {self.path}: {listing(list(self))}>"

    def __getitem__(self, broker_name: str) -> Store:
        try:
            return self._stores[broker_name]
        except KeyError:
            fix = f"{did_you_mean(broker_name, self)}The stores are {listing(list(self))}"
            raise ConfigError(f"there is no store `{broker_name}`", path=self.path, fix=fix) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all stores, as `Store.close`."""
        for store in self.values():
            store.close()

    def topics(self) -> MetadataTable:
        """Return the topics of all stores, as `Store.topics`."""
        return self._table("Topics", Store.topics)

    def queues(self, topic: Names | None = None) -> MetadataTable:
        """Return the queues of some topics, or of all, as `Store.queues`; a topic need not be in all stores."""
        if topic is None:
            return self._table("Queues", Store.queues)
        title = f"Queues of {self.path}"
        tables = [queues_of(title, snapshot, held).to_arrow() for _, snapshot, held in self._holding(topic)]
        return MetadataTable(title, pa.concat_tables(tables))

    def groups(self) -> MetadataTable:
        """Return the positions of all consumer groups, as `Store.groups`."""
        return self._table("Consumer groups", Store.groups)

    def lag(self, group: str | None = None) -> MetadataTable:
        """Measure the lag of a consumer group, or of all, as `Store.lag`; it need not have a position in all stores."""
        tables, errors = [], []
        for store in self.values():
            try:
                tables.append(store.lag(group).to_arrow())
            except ConfigError as error:
                errors.append(error)
        if not tables:
            raise errors[0]
        return MetadataTable(f"Lag of {group or self.path}", pa.concat_tables(tables))

    def segments(self) -> MetadataTable:
        """Return the segments of all CommitLogs, as `Store.segments`."""
        return self._table("Segments", Store.segments)

    def metrics(self) -> MetadataTable:
        """Measure what monitoring needs, as `Store.metrics`."""
        return self._table("Metrics", Store.metrics)

    @api_call
    def scan(
        self,
        topics: Names,
        *,
        start: Position | None = None,
        end: Position | None = None,
        tags: Names | None = None,
        sql: str | None = None,
        columns: Names | None = None,
        properties: Names = (),
        body_as: str | None = None,
        schema: "pa.Schema | str | os.PathLike[str] | None" = None,
        on_corrupt: OnCorrupt | str = OnCorrupt.FAIL,
        on_loss: OnLoss | str = OnLoss.FAIL,
        check_crc: bool = False,
    ) -> JoinedRows:
        """Describe a scan of all stores that have the topics; arguments and errors as of `Store.scan`.

        By default the columns are those of `Store.scan`, and ``brokerName``. Positions are of each store.
        """
        spec = scan_spec(
            columns=_COLUMNS if columns is None else columns,
            properties=properties,
            tags=tags,
            sql=sql,
            on_corrupt=on_corrupt,
            on_loss=on_loss,
            check_crc=check_crc,
        )
        bodies, clock = body_format_of(body_as, schema), Clock.system(self._zone, "open_stores(path, tz=…)")
        return JoinedRows(
            [
                scan_of(self._opened[name].source, snapshot, held, start, end, spec, bodies, clock)
                for name, snapshot, held in self._holding(topics)
            ]
        )

    def find(self, topics: Names, *, columns: Names | None = None, **arguments: Any) -> JoinedRows:
        """Find all messages that carry one of some keys, in all stores; arguments and errors as of `Store.find`.

        By default the columns are those of `Store.find`, and ``brokerName``. ``newest_first`` orders within a store.
        """
        chosen, found = _COLUMNS if columns is None else columns, self._holding(topics)
        for name, snapshot, _ in found:
            self._opened[name].keep(snapshot)  # for the finder of the store, or the next call
        return JoinedRows(at_once(lambda each: self[each[0]].find(each[2], columns=chosen, **arguments), found))

    def _holding(self, topics: Names) -> list[tuple[str, Snapshot, tuple[str, ...]]]:
        """Return the stores that have some of the topics, with these; `UnknownQueueError` for one that none has."""
        snapshots = at_once(OpenedSource.open, list(self._opened.values()))
        held = topics_in(snapshots, lambda known: checked_topics(topics, known, self.path))
        return [(name, snapshot, some) for name, snapshot, some in zip(self, snapshots, held, strict=True) if some]

    def _table(self, title: str, call: Callable[[Store], MetadataTable]) -> MetadataTable:
        tables = at_once(lambda store: call(store).to_arrow(), list(self.values()))
        return MetadataTable(f"{title} of {self.path}", pa.concat_tables(tables))
