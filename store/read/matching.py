"""Evaluation of a predicate: by ConsumeQueue entries first, exactly by records afterwards.

::

    entry    physical offset ──► range          tags code ──► hash of a wanted tag       may match, or cannot
                                                  │ an address in ConsumeQueueExt, a delivery time: may match
    record   store time ──► range      TAGS ──► equal      properties ──► PropertyFilter       matches, or does not
    body     inflated ──► BodyFilters, each on the rows that the filters before it kept        matches, or does not

RocketMQ: ``DefaultMessageFilter``, ``ExpressionMessageFilter``.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..format.buffers import booleans, present, repeated, truths
from ..format.consume_queue import EXTENSION_ADDRESS_MAX, Entries
from ..format.hashing import java_hash
from ..format.message import Mask, Problem, Records
from ..format.naming import SCHEDULE_TOPIC
from ..format.properties import TAGS, Properties
from .spec import Filter, Predicate, Tags


class Matcher:
    """A predicate, prepared for the rows of one scan."""

    def __init__(self, predicate: Predicate) -> None:
        wanted = predicate.filter
        self._tag_hashes = (
            np.array([java_hash(tag) for tag in wanted.any_of], np.int64) if isinstance(wanted, Tags) else None
        )
        self._filter = None if wanted is None else _exactly(wanted)
        self._times = predicate.store_time_start, predicate.store_time_stop
        self._bodies = predicate.bodies

    def by_entries(self, topic: str, entries: Entries) -> Mask | None:
        """Return which messages of a topic may match, (n,) bool; None for all of them."""
        if self._tag_hashes is None or topic == SCHEDULE_TOPIC:
            return None
        codes = entries["tags_code"]
        tagged: Mask = np.isin(codes, self._tag_hashes) | (codes <= EXTENSION_ADDRESS_MAX)
        return tagged

    def by_records(self, records: Records) -> Mask | None:
        """Return which messages match, (n,) bool; None for all of them. A damaged record matches no condition."""
        keep: Mask | None = None
        start, stop = self._times
        if start is not None or stop is not None:
            whole: Mask = records.problem == Problem.OK
            keep = _within(records.field("store_timestamp"), start, stop) & whole
        if self._filter is not None:
            match = self._filter(records)
            keep = match if keep is None else keep & match
        return None if keep is None or keep.all() else keep

    def by_bodies(self, bodies: pa.BinaryArray) -> Mask:
        """Return which bodies match, (n,) bool; the null body of a damaged record does not."""
        keep = present(bodies)
        for condition in self._bodies:
            if not keep.any():
                break
            keep[keep] = truths(condition.matches(bodies if keep.all() else bodies.filter(booleans(keep))))
        return keep


def record_batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Make a batch; one without columns still has its number of rows, for callers that only count."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _within(values: np.ndarray[tuple[int], np.dtype[np.int64]], start: int | None, stop: int | None) -> Mask:
    inside = np.ones(values.size, np.bool_)
    if start is not None:
        inside &= values >= start
    if stop is not None:
        inside &= values < stop
    return inside


def _exactly(wanted: Filter) -> Callable[[Records], Mask]:
    """Make the exact test of records; a damaged one has no properties that match."""
    if isinstance(wanted, Tags):
        values = repeated(sorted(wanted.any_of), 1)

        def by_tag(records: Records) -> Mask:
            import pyarrow.compute as pc  # noqa: PLC0415 - not all scans need it, and loading it takes long

            return truths(pc.is_in(Properties.of(records).column(TAGS), values, skip_nulls=True))

        return by_tag
    by_properties = wanted  # for mypy: no Tags from here on
    names = sorted(by_properties.columns)
    schema = pa.schema([(name, pa.string()) for name in names])

    def by_filter(records: Records) -> Mask:
        properties = Properties.of(records)
        columns = [properties.column(name) for name in names]
        whole: Mask = records.problem == Problem.OK
        return whole & by_properties.mask(record_batch(columns, schema, len(records)))

    return by_filter
