"""Replication: a live replica of a running broker, over RocketMQ's own protocol.

::

    broker ── haListenPort ──► Replica ──► store directory ──► readers, Spark

Start at `Replica.open`. The replica is a store like any other: readers open its directory while it follows.
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
