"""First failure of a store: which errors count, and that nothing works afterwards."""

import pytest

from segmentlog.store.errors import NoSpaceError, StoreFailedError
from segmentlog.store.write.failure import Failure


def test_only_the_first_failure_counts() -> None:
    failure = Failure("store")
    failure.check()
    failure.note(OSError(5, "first"))
    failure.note(OSError(5, "second"))
    with pytest.raises(StoreFailedError, match="first"):
        failure.check()


def test_a_full_disk_is_fatal_only_where_nothing_can_be_tried_again() -> None:
    failure = Failure("store")
    with pytest.raises(NoSpaceError), failure.fatal_unless_full():
        raise NoSpaceError("full")
    failure.check()
    with pytest.raises(NoSpaceError), failure.fatal():
        raise NoSpaceError("full")
    with pytest.raises(StoreFailedError, match="full"):
        failure.check()


def test_an_interruption_is_a_failure_as_well() -> None:
    failure = Failure("store")
    with pytest.raises(KeyboardInterrupt), failure.fatal_unless_full():
        raise KeyboardInterrupt
    with pytest.raises(StoreFailedError):
        failure.check()


def test_a_put_that_fails_or_is_interrupted_is_noted() -> None:
    failure = Failure("store")
    with failure.fatal_put:
        pass
    failure.check()
    with pytest.raises(StoreFailedError, match="no space") as raised, failure.fatal_put:
        raise NoSpaceError("no space")
    assert isinstance(raised.value.__cause__, NoSpaceError)
    interrupted = Failure("store")
    with pytest.raises(KeyboardInterrupt), interrupted.fatal_put:
        raise KeyboardInterrupt
    with pytest.raises(StoreFailedError):
        interrupted.check()
