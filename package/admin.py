"""Administration of stores: checks and repairs, retention, consumer groups. No broker is needed."""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
