"""Look-ups in a store: by key, unique key, message id, physical offset, queue offset and time, singly and in bulk.

Start at `Finder`. One call takes as many keys as there are. It returns a `Found`, which decodes the records into Arrow
batches. Its ``coverage`` tells which part of the log an index answered for and which had to be scanned.
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
