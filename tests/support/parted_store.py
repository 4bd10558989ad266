"""Open store whose parts a test may use: the seam for tests of the write path; its puts held up."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from segmentlog.store import MessageStore
from segmentlog.store.write.assembly import StoreParts


class PartedStore(MessageStore):
    """`MessageStore` that shows its parts, `open` included."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self.parts = parts


@contextmanager
def held_puts(store: PartedStore) -> Iterator[threading.Event]:
    """Hold puts that begin within the context until its end; yield an event that is set when one has begun."""
    put, began, go_on = store.parts.log.put_path.put, threading.Event(), threading.Event()

    def slowly(encoded: Sequence[object]) -> object:
        began.set()
        assert go_on.wait(30)
        return put(encoded)  # type: ignore[arg-type]

    store.parts.log.put_path.put = slowly  # type: ignore[method-assign, assignment]
    try:
        yield began
    finally:
        store.parts.log.put_path.put = put  # type: ignore[method-assign]
        go_on.set()
