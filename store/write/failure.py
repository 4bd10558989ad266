"""First failure of an open store: after it the store accepts nothing more.

::

    write, sync fails ──► note ──► check raises StoreFailedError in every later call
    disk is full      ──► fatal_unless_full: not noted, the call may be tried again
                      └─► fatal: noted, since a sync cannot be tried again

After a failed sync the kernel marks pages clean that never reached the device: the next sync would succeed and prove
nothing. RocketMQ has no counterpart: a broker answers FLUSH_DISK_TIMEOUT and continues.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ..errors import NoSpaceError, StoreFailedError


class Failure:
    """The first failure of one store, shared by all its parts. Thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        """Store directory."""
        self._cause: BaseException | None = None
        self.fatal_put = _FatalPut(self)
        """Context that notes every error, an interrupt included: how much of a put was written is not known then.

        It raises `StoreFailedError` instead of an ordinary error: space was reserved, so no device is full.
        """

    def note(self, cause: BaseException) -> None:
        """Record a failure; only the first one counts."""
        self._cause = self._cause or cause

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Context that notes every error, an interrupt and a full disk included: for syncs and what follows them."""
        try:
            yield
        except BaseException as error:
            self.note(error)
            raise

    @contextmanager
    def fatal_unless_full(self) -> Iterator[None]:
        """Context that notes every error but a full disk: for work that can be tried again."""
        try:
            yield
        except NoSpaceError:
            raise
        except BaseException as error:
            self.note(error)
            raise

    @contextmanager
    def fatal_if_interrupted(self) -> Iterator[None]:
        """Context that notes interrupts only: for several steps between which the caller must not be left."""
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            self.note(error)
            raise

    def check(self) -> None:
        """Return if no failure was noted."""
        if self._cause is not None:
            raise StoreFailedError(
                "writing failed before, and what the device holds is not known: "
                f"{str(self._cause) or type(self._cause).__name__}",
                path=self.path,
                fix="Close the store, check the disk, and open the store again: recovery keeps what is whole",
            ) from self._cause


class _FatalPut:
    """See `Failure.fatal_put`. A class and not a generator, which costs 1 µs more per put."""

    __slots__ = ("_failure",)

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failure.note(error)
            if isinstance(error, Exception):
                self._failure.check()
