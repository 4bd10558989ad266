"""Consumer groups of a store: their offsets, listed, committed, reset, cloned and deleted, and queue allocation."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
