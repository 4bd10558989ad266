"""Lookup: messages found by key, and single messages found by id, key, queue offset or physical offset.

RocketMQ: ``DefaultMessageStore.queryMessage``, without its limit of 64 messages and without hash collisions.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from segmentlog.query.times import Clock
from segmentlog.store import ConfigError, Message, QueueKey, ScanSpec, Snapshot
from segmentlog.store.find import Coverage, Finder, Found, KeyField, Order, Window

from .arguments import Moment, checked_flag, checked_topics, in_api_words, window_of
from .kept import KeptFinder
from .rows import SHOWN_ROWS, Rows, checked_number, first_rows, html_table


class Lookup(Rows):
    """Messages that a search found. Not thread-safe; made by ``Store.find``.

    The search took place when the object was made. Rows are decoded at each call. A message that several keys found is
    a row per key; column ``asked`` has the key.
    """

    def __init__(self, found: Found, spec: ScanSpec) -> None:
        self._found = found
        self._spec = spec
        self._is_apart = False

    def __repr__(self) -> str:
        keys, coverage = self._found.asked, self.coverage
        searched = f"{coverage.indexed_bytes} bytes by index, {coverage.scanned_bytes} scanned"
        return f"<Lookup of {keys.num_rows} keys: {self.count()} rows ({searched})>"

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.head(SHOWN_ROWS), self.count())

    @property
    def schema(self) -> pa.Schema:
        """The columns, the properties, then ``asked``."""
        return self._found.schema(self._spec)

    @property
    def coverage(self) -> Coverage:
        """The parts of the log that the index answered for, and those that were scanned."""
        assert self._found.coverage is not None
        return self._found.coverage

    def missing(self) -> pa.Table:
        """Pairs of ``topic`` and ``key`` that found nothing."""
        return self._found.missing()

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Decode the messages, in the order of the log: batches of `schema`, never empty.

        Raises `CorruptRecordError` at the first damaged record, and `DataLossError` if retention deleted messages since
        they were found, unless ``on_corrupt`` or ``on_loss`` says otherwise.
        """
        return self._read(self._spec)

    def count(self) -> int:
        """Count the rows; no record is read."""
        return len(self._found)

    def head(self, n: int = 10) -> pa.Table:
        """Decode the first ``n`` rows."""
        spec = replace(self._spec, batch_rows=max(1, min(checked_number("n", n), self._spec.batch_rows)))
        return first_rows(self._read(spec), n, self.schema)

    def _read(self, spec: ScanSpec) -> Generator[pa.RecordBatch, None, None]:
        with in_api_words():
            if not self._is_apart:  # the finder is kept for further look-ups, maybe of another thread
                self._found, self._is_apart = self._found.apart(), True
            yield from self._found.batches(spec)


def look_up(
    finder: Finder,
    topics: Sequence[str],
    *,
    keys: object,
    unique_keys: object,
    start: Moment | None,
    end: Moment | None,
    newest_first: bool,
    spec: ScanSpec,
    clock: Clock,
) -> Lookup:
    """Search a store for keys; arguments and errors as of ``Store.find``."""
    if (keys is None) == (unique_keys is None):
        problem = "keys and unique_keys are both missing" if keys is None else "keys and unique_keys are both passed"
        raise ConfigError(problem, fix="Pass one of them")
    argument, texts, field = "keys", keys, KeyField.KEYS
    if keys is None:
        argument, texts, field = "unique_keys", unique_keys, KeyField.UNIQUE
    window = Window(*window_of(start, end, clock))
    order = Order.NEWEST_FIRST if checked_flag("newest_first", newest_first) else Order.OLDEST_FIRST
    found = finder.by_keys(topics, _texts(argument, texts), field, window=window, order=order)
    return Lookup(found, spec)


def get_message(
    finders: KeptFinder,
    *,
    message_id: str | None,
    unique_key: str | None,
    physical_offset: int | None,
    topic: str | None,
    queue: int | None,
    offset: int | None,
) -> Message | None:
    """Find one message; arguments and errors as of ``Store.get``."""
    ways = {
        "message_id": message_id is not None,
        "unique_key": unique_key is not None,
        "physical_offset": physical_offset is not None,
        "queue and offset": queue is not None or offset is not None,
    }
    chosen = [name for name, is_given in ways.items() if is_given]
    if len(chosen) != 1:
        problem = f"{' and '.join(chosen)} are passed together" if chosen else "nothing says which message is meant"
        fix = "Pass message_id, unique_key, physical_offset, or topic with queue and offset"
        raise ConfigError(problem, fix=fix)
    if topic is not None and (message_id is not None or physical_offset is not None):
        raise ConfigError(f"topic is passed with {chosen[0]}, which names one message of any topic", fix="Leave it out")
    if queue is not None or offset is not None:
        return _message_in_queue(finders.new_reader(), topic, queue, offset)
    with finders.borrowed() as (snapshot, finder):
        if message_id is not None:
            found = finder.by_message_ids(_texts("message_id", [message_id]))
        elif unique_key is not None:
            topics = (
                snapshot.topics() if topic is None else list(checked_topics(topic, snapshot.topics(), snapshot.path))
            )
            found = finder.by_keys(topics, [_text("unique_key", unique_key)], KeyField.UNIQUE)
        else:
            found = finder.by_physical_offsets([checked_number("physical_offset", physical_offset)])
        return snapshot.message_at(int(found.physical_offset[0])) if len(found) else None


def _message_in_queue(snapshot: Snapshot, topic: str | None, queue: int | None, offset: int | None) -> Message | None:
    if topic is not None:
        checked_topics(_text("topic", topic), snapshot.topics(), snapshot.path)
    if topic is None or queue is None or offset is None:
        raise ConfigError("queue and offset name a message together with topic", fix="Pass all three")
    key = QueueKey(topic, checked_number("queue", queue))
    found = Finder(snapshot).by_queue_offsets(key, [checked_number("offset", offset)])
    return snapshot.message_at(int(found.physical_offset[0])) if len(found) else None


def _text(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{argument}={value!r} is not text", fix="Pass text")
    return value


def _texts(argument: str, values: object) -> list[str | None] | pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        if isinstance(values, pa.Array):
            texts = values.cast(pa.string())
            return texts if len(texts) > 1 else texts.to_pylist()  # a list of one is searched alone
        return _listed(values)  # `pyarrow.array` would load pandas
    except (TypeError, pa.ArrowException):
        raise ConfigError(
            f"{argument} is not a list of texts", fix="Pass text, a list of texts, or an Arrow array"
        ) from None


def _listed(values: object) -> list[Any]:
    found = list(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else [values]
    if not all(isinstance(each, str | None) for each in found):
        raise TypeError
    return found
