"""Log records in Spark's Python workers, written to stderr, which Spark keeps as the executor's log.

::

    driver       the application configures `logging`; without it nothing is printed
    worker       no application runs there: WARNING and above ──► stderr ──► log of the executor
                 Spark or a daemon of the user configured `logging`: theirs alone
"""

import logging
import sys
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_LOGGER: Final = "segmentlog"


class _Fallback(logging.StreamHandler):  # type: ignore[type-arg] # generic in stubs only
    """A handler for processes in which no other is configured."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if the root logger has no handler."""
        if not logging.getLogger().handlers:
            super().emit(record)


def log_in_worker() -> None:
    """Write warnings to stderr if this process is a Python worker of Spark; nothing elsewhere."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    log = logging.getLogger(_LOGGER)
    if (
        spec is None
        or not spec.name.startswith("pyspark.")
        or any(isinstance(each, _Fallback) for each in log.handlers)
    ):
        return
    handler = _Fallback()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(_FORMAT))
    log.addHandler(handler)
