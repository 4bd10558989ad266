"""Replication over RocketMQ's own protocol: live replicas of brokers and of stores of ours. Start at `Replica.open`."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
