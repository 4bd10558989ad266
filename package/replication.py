"""Replication in RocketMQ's protocol: replicas of brokers and of stores of ours, masters, promotion.

::

    Replica.open(path, master).run(stop)               a copy that follows a master
    ReplicationServer(store, quorum, ServerConfig())   serves replicas while a store is open
    promote(path), demote(path, master)                a replica becomes a master, and a former master a replica
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
