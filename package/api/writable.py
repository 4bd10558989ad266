"""Writable store: what ``segmentlog.open(path, "a")`` returns, a store that appends and reads.

::

    append(topic, body, …)        ──► one message, acknowledged            ──► Appended
    submit(topic, body, …)        ──► one message, without waiting         ──► Future[Appended]
    append_batch(table)           ──► rows, acknowledged together          ──► AppendedBatch
    flush()                       ──► everything is on the device, and visible to readers
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import tzinfo
from functools import partial
from typing import Final, NoReturn, SupportsIndex, TypeAlias, TypeVar

import pyarrow as pa

from segmentlog.query.selection import topics_to_write, unknown_topic
from segmentlog.query.source import StoreSource
from segmentlog.store import (
    LEFT_OUT,
    Appended,
    AppendedBatch,
    BatchPlacement,
    ConfigError,
    MessageStore,
    OnDamage,
    Outgoing,
    RetentionService,
    RetentionSettings,
    StoreConfig,
    choice,
)
from segmentlog.store.sink import stored_config

from .arguments import api_call
from .store import Store

T = TypeVar("T")
Config: TypeAlias = StoreConfig
"""Write configuration of a store, as the door names it."""
_NONE: Final[Mapping[str, str]] = {}
_OPTIONAL: Final = frozenset({"tags", "unique_key", "born_ms"})


class WritableStore(Store):
    """A store directory that this process appends to, and reads; made by ``segmentlog.open`` with mode "a" or "x".

    Safe in any number of threads, of this process alone. It holds the store's lock until it is closed. Readers, also
    those of this object, see a message soon after it was appended, and after `flush` at the latest.
    """

    def __init__(
        self,
        source: StoreSource,
        zone: tzinfo | None,
        *,
        config: StoreConfig | None,
        on_damage: OnDamage | str,
        retention: RetentionSettings | None,
        create_topics: bool | None,
    ) -> None:
        for name, given, kind, fix in (
            ("config", config, StoreConfig, "Pass segmentlog.Config(…)"),
            ("retention", retention, RetentionSettings, "Pass segmentlog.admin.RetentionSettings(…)"),
        ):
            if not isinstance(given, kind | None):
                raise ConfigError(f"{name}={given!r} is a {type(given).__name__}", fix=fix)
        sized = stored_config(source.path, config or StoreConfig())
        damage = choice("on_damage", on_damage, OnDamage)
        self._engine = MessageStore.open(source.path, sized, on_damage=damage, retention=retention)
        try:
            super().__init__(source, zone)
            self._topics = topics_to_write(self._engine.snapshot())
        except BaseException:
            self._engine.close()
            raise
        self._may_create = not self._topics if create_topics is None else create_topics

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is open for appending: another process cannot have it; pickle its path")

    @property
    def config(self) -> StoreConfig:
        """Write configuration, with the file sizes that the store has."""
        return self._engine.config

    @property
    def retention(self) -> RetentionService | None:
        """Service that deletes expired files; None if the store was opened without ``retention``."""
        return self._engine.retention

    @api_call
    def append(
        self,
        topic: str,
        body: bytes,
        *,
        queue: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        unique_key: str | None = None,
        properties: Mapping[str, str] = _NONE,
        flag: int = 0,
        born_ms: int | None = None,
        born_host: str = "127.0.0.1:0",
    ) -> Appended:
        """Append one message; return where it is, once it is acknowledged.

        Parameters
        ----------
        topic, body
            The topic, which the store has unless it was opened with ``create_topics``, and the content.
        queue
            Its id.
        tags, keys, unique_key
            The tag; business keys, one or several; the producer's id (``UNIQ_KEY``). Keys are indexed.
        properties
            Further properties. ``DELAY`` greater than 0 makes a scheduled message.
        flag
            32 bits of the producer.
        born_ms, born_host
            The producer's clock, ms since 1970, by default now, and its address, ``ip:port``.

        Returns
        -------
        Appended
            With ``flush="sync"``, the default, the message is on the device.

        Raises
        ------
        IllegalMessageError
            If RocketMQ would refuse the message.
        UnknownQueueError
            If the store has no such topic, and may not create it.
        ConfigError
            If an argument is unknown or has a wrong type.
        NoSpaceError
            If the disk is full; nothing was appended.
        StoreFailedError
            If the disk failed, or a Ctrl-C interrupted a write, now or before. Opening the store again tells whether it
            holds the message.
        """
        message = _message(topic, body, queue, tags, keys, unique_key, properties, flag, born_ms, born_host)
        return self._appended([topic], partial(self._engine.append, message))

    @api_call
    def submit(
        self,
        topic: str,
        body: bytes,
        *,
        queue: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        unique_key: str | None = None,
        properties: Mapping[str, str] = _NONE,
        flag: int = 0,
        born_ms: int | None = None,
        born_host: str = "127.0.0.1:0",
    ) -> Future[Appended]:
        """Append one message without waiting; arguments and errors as of `append`.

        Returns
        -------
        Future
            Of where the message is, once it is acknowledged. It cannot be cancelled. Messages are appended in the order
            of the calls. While some 64 MiB are under way, a call waits for its message.
        """
        message = _message(topic, body, queue, tags, keys, unique_key, properties, flag, born_ms, born_host)
        return self._appended([topic], partial(self._engine.append_async, message))

    @api_call
    def append_batch(self, batch: object, *, placement: BatchPlacement | str = BatchPlacement.RUN_ON) -> AppendedBatch:
        """Append rows in their order.

        Parameters
        ----------
        batch
            A table or batch of Arrow, or any object with an Arrow stream, such as a frame of Polars. Columns ``topic``,
            ``body`` and others are those of a scan; ``docs/options.md`` lists them, and those that the store decides,
            which are left out. The rows are held in memory.
        placement
            ``"run-on"``, or ``"one-segment"`` for RocketMQ's placement of a client's batch.

        Returns
        -------
        AppendedBatch
            All rows were checked before the first was written. After a crash the first of them may be there.

        Raises
        ------
        IllegalMessageError, UnknownQueueError, ConfigError, NoSpaceError, StoreFailedError, StoreClosedError
            As of `append`.
        """
        if not hasattr(batch, "__arrow_c_stream__") and not isinstance(batch, pa.RecordBatch):
            raise ConfigError(f"batch is a {type(batch).__name__}, not a table", fix="Pass a table or batch of Arrow")
        rows = batch if isinstance(batch, pa.RecordBatch | pa.Table) else pa.table(batch)
        rows = rows.select([at for at, name in enumerate(rows.schema.names) if name not in LEFT_OUT])
        how = choice("placement", placement, BatchPlacement)
        topics = rows["topic"].unique().to_pylist() if rows.schema.names.count("topic") == 1 else []
        return self._appended(topics, partial(self._engine.append_batch, rows, placement=how))

    def _appended(self, topics: Sequence[object], append: Callable[[], T]) -> T:
        """Append messages of some topics, and create those that the store lacks; an error if it may not create them."""
        new = self._new_topics(topics)
        appended = append()
        if new:
            self._engine.make_topics(new)
            self._topics.update(new)
        return appended

    def _new_topics(self, topics: Sequence[object]) -> list[str]:
        """Return the topics that the store does not have; an error if it may not create them."""
        new = [each for each in topics if isinstance(each, str) and each not in self._topics]
        if new and not self._may_create:
            self._topics |= topics_to_write(self._engine.snapshot())  # tools of brokers may have made them meanwhile
            for each in new:
                if each not in self._topics:
                    make = "segmentlog.open(path, 'a', create_topics=True)"
                    raise unknown_topic(each, self._topics, path=self.path, argument="topic", make=make)
            return []
        return new

    @api_call
    def flush(self) -> None:
        """Return when everything that was appended is on the device, and readers see it; errors as of `append`."""
        self._engine.flush()
        self._engine.wait_dispatched()

    @api_call
    def close(self) -> None:
        """Write everything to the device, leave the store as a broker that was shut down does, and release its lock."""
        super().close()
        self._engine.close()


def _message(  # noqa: PLR0917 - the arguments of `append` and `submit`, in their order
    topic: str,
    body: bytes,
    queue: int,
    tags: str | None,
    keys: str | Iterable[str] | None,
    unique_key: str | None,
    properties: Mapping[str, str],
    flag: int,
    born_ms: int | None,
    born_host: str,
) -> Outgoing:
    texts = {"topic": topic, "tags": tags, "unique_key": unique_key, "born_host": born_host}
    numbers = {"queue": queue, "flag": flag, "born_ms": born_ms}
    for kind, wanted, given in ((str, "text", texts), (SupportsIndex, "a whole number", numbers)):
        for name, value in given.items():
            if not isinstance(value, kind) and (value is not None or name not in _OPTIONAL):
                raise ConfigError(f"{name}={value!r} is not {wanted}", fix=f"Pass {wanted}")
    pairs = properties.items() if isinstance(properties, Mapping) else [(properties, None)]
    if not all(isinstance(each, str) for pair in pairs for each in pair):
        raise ConfigError("properties is not a mapping of texts", fix="Pass such as properties={'region': 'eu'}")
    return Outgoing(
        topic=topic,
        body=body,
        queue_id=queue,
        tags=tags,
        keys=_keys(keys),
        uniq_key=unique_key,
        properties=properties,
        flag=flag,
        born_timestamp=born_ms,
        born_host=born_host,
    )


def _keys(keys: str | Iterable[str] | None) -> str | None:
    if keys is None or isinstance(keys, str):
        return keys
    if not isinstance(keys, Iterable):
        raise ConfigError(f"keys={keys!r} is not a text or a list of texts", fix="Pass such as keys=['order-17']")
    several = list(keys)
    for key in several:
        if not isinstance(key, str) or not key or " " in key:
            raise ConfigError(f"keys has {key!r}, which is not a key", fix="Pass texts without blanks")
    return " ".join(several) or None
