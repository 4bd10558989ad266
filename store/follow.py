"""Following a store, for the connector's streams and lag: queues watched as they grow, messages known again."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
