"""RocketMQ message stores, read and written without a broker: the same bytes. For programs that embed the engine.

::

    Snapshot.open(path)     topics, queues, offset_at ──► plan ──► scan ──► Arrow record batches
    MessageStore.open(path)    append, append_batch ──► Appended
    SegmentLogError            the root of all errors

    segmentlog.store.groups          consumer groups: offsets, reset, clone
    segmentlog.store.maintenance     verify, rebuild and salvage a store that no process has open
    segmentlog.store.sink            staging and batch commits, for data sinks such as the connector's
    segmentlog.store.follow          queue watching, lag and sizes, for streams such as the connector's

The names are in the stub beside this file and are loaded when they are first used. Unlike those of `segmentlog`, they
may change between releases.
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
