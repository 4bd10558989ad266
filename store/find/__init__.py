"""Look-ups in a store, one or a million at a time: by key, message id, offset and time. Start at `Finder`."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
