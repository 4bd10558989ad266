"""Remedies of errors in the words of the Python API: arguments in place of settings of the store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from segmentlog.store import MissingExtraError, Remedy, SegmentLogError

WORDS: Final[Mapping[Remedy, str]] = {
    Remedy.SKIP_LOST: "on_loss='skip' goes on without lost messages",
    Remedy.SKIP_DAMAGED: "on_corrupt='skip' goes on without damaged records, and 'null' keeps their places",
    Remedy.READ_APPENDED: 'segmentlog.open(path, read_from="appended") reads all messages, whether replicas hold them '
    "or not",
    Remedy.NAME_COMMIT_LOG: "segmentlog.open(path, commit_log_paths=…) names CommitLog directories that are elsewhere",
    Remedy.LARGER_BODIES: "Config(max_body_bytes=…) raises the limit; the broker's maxMessageSize has to be as large",
    Remedy.CUT_DAMAGE: 'segmentlog.open(path, "a", on_damage="cut") ends the log before the damage, as brokers do, and '
    "loses what follows",
    Remedy.READ_ARCHIVE: "segmentlog.open(path, archive=…) reads the messages of the archive with those of the store",
}
"""Remedies of the store, in terms of arguments."""


@contextmanager
def in_api_words() -> Iterator[None]:
    """Word the remedies of store errors that are raised inside as arguments of this API; also a decorator."""
    try:
        yield
    except SegmentLogError as error:
        error.reword(WORDS)
        raise


def optional_module(name: str, method: str, extra: str | None = None) -> Any:
    """Import a package, which ``method`` needs, of an extra, by default of its name; `MissingExtraError` without it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        problem = f"{method} needs the package {name}, which is not installed"
        raise MissingExtraError(problem, fix=f"pip install 'segmentlog[{extra or name}]'") from None
