"""Planning of a write on the driver: the store, its file sizes, topics and queues. Errors come before a row moves."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql.types import StructType

from segmentlog.store import ConfigError, FormatError, NotAStoreError, StoreConfig, StoreReader
from segmentlog.store.sink import prepare_store, refuse_broker, stored_config, topic_queues

from ..options.option import Mode
from ..options.write_options import SIZES, WriteOptions
from .queue_selector import QueueRules, unknown_topic
from .schema import SinkColumns, plan_columns

logger = logging.getLogger(__name__)

_ENTRY_BYTES: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkPlan:
    """Plan of a write, for its tasks and its commit. Sent to the workers."""

    options: WriteOptions  # `options.config` has the file sizes of an existing store
    columns: SinkColumns
    rules: QueueRules


def plan_write(options: WriteOptions, schema: StructType, mode: Mode) -> SinkPlan:
    """Check a write against the existing store, and create the store if there is none."""
    # A stream plans each of its batches, and only looks; a batch opens the store and closes it again. All errors are
    # raised here, before a row moves.
    columns = plan_columns(schema, options)
    refuse_broker(options.path)
    config = _with_stored_sizes(options)
    try:
        reader = StoreReader.open(options.path)
    except NotAStoreError:
        reader = None  # or the path holds something else: `prepare_store` raises
    counts = {} if reader is None else _queue_counts(reader, options)
    if options.topic is not None and not options.create_topic and options.topic not in counts:
        raise unknown_topic(options.topic, "option `topic` asks for")
    if reader is None or mode is Mode.BATCH:
        prepare_store(options.path, config)
    rules = QueueRules(
        selector=columns.selector,
        counts=counts,
        default_queues=options.default_queues,
        create_topic=options.create_topic,
        system_topics=options.system_topics,
    )
    return SinkPlan(options=replace(options, config=config), columns=columns, rules=rules)


def _with_stored_sizes(options: WriteOptions) -> StoreConfig:
    """Take the file sizes of the existing store; an option may only repeat them."""
    config = stored_config(options.path, options.config)
    for name in options.sizes:
        field = SIZES[name]
        asked, held = (getattr(each, field) for each in (options.config, config))
        if asked != held:
            scale = _ENTRY_BYTES if field == "queue_segment_entries" else 1
            raise ConfigError(
                f"option `{name}` is {asked * scale}, and the store that is there has {held * scale}",
                path=options.path,
                fix="Leave it out: a store keeps its file sizes",
            )
    return config


def _queue_counts(reader: StoreReader, options: WriteOptions) -> Mapping[str, int]:
    """Number of queues of each topic: as it was created, else as many as exist."""
    try:
        made = topic_queues(options.path)
    except FormatError as error:
        if not options.create_topic:
            raise
        logger.warning("%s Topics have as many queues as there are files of", error)
        made = {}
    there = reader.topics() if options.topic is None else {options.topic} & set(reader.topics())
    found = {name: 1 + max(queue.key.queue_id for queue in reader.queues(name)) for name in there if name not in made}
    counts = {**made, **found}
    if options.topic is not None:
        return {name: count for name, count in counts.items() if name == options.topic}
    return counts
