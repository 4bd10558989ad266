"""Open store whose parts a test may use: the seam for tests of the write path."""

from segmentlog.store import MessageStore
from segmentlog.store.write.assembly import StoreParts


class PartedStore(MessageStore):
    """`MessageStore` that shows its parts, `open` included."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self.parts = parts
