"""Offline maintenance of a store: dissection, verification, rebuilt queues and index, salvage, retention."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
