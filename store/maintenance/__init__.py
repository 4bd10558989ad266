"""Offline maintenance of a store: verification, rebuilt queues and index, salvage of damaged stores, retention."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
