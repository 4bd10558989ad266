"""Errors of the command: one shape, with remedies worded as flags.

::

    error[SEGMENTLOG_UNKNOWN_TOPIC]: TOPIC: there is no topic `ordrs`                what was found
      asked:  segmentlog cat /data/store ordrs
      where:  /data/store
      remedy: Did you mean `orders`? The topics are `orders`, `payments`

    {"error": {"code": …, "asked": …, "found": …, "where": {"path": …, "offset": …}, "remedy": …}}        with --json

Both go to stderr: stdout has data only. Exit codes are the same for all verbs.
"""

import errno
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from segmentlog.output import printable
from segmentlog.store import ConfigError, Remedy, SegmentLogError

FOUND: Final = 0  # exit code: the rows were found, or the store is sound
CREDENTIALS: Final = frozenset({"--storage", "--catalog-property"})
"""Flags with ``NAME=VALUE`` whose values are not repeated in errors."""
NOT_FOUND: Final = 1  # exit code: nothing was found, or a check has findings
FAILED: Final = 2  # exit code: a wrong argument, or an error
INTERRUPTED: Final = 130  # exit code after Ctrl-C, as of shells
PIPE_CLOSED: Final = 141  # exit code when the reader of stdout went away, as of shells

FLAGS: Final[Mapping[Remedy, str]] = {
    Remedy.NAME_COMMIT_LOG: "--commit-log names CommitLog directories that are elsewhere",
    Remedy.STORED_SIZES: "Leave out --segment-bytes and --queue-segment-entries: a store keeps its file sizes",
    Remedy.SKIP_LOST: "--on-loss skip goes on without lost messages",
    Remedy.SKIP_DAMAGED: "--on-corrupt skip goes on without damaged records, and null keeps their places",
    Remedy.KEEP_DAMAGE: "--damaged keep archives damaged bytes as they are",
    Remedy.NAME_CREDENTIALS: "--storage NAME=VALUE passes credentials of the object store",
    Remedy.READ_APPENDED: "--read-from appended reads all messages, whether replicas hold them or not",
    Remedy.READ_SEVERAL: "cat, get, topics, queues, segments, groups, lag and stats take a pattern",
    Remedy.LARGER_BODIES: "--max-body-bytes raises the limit; the broker's maxMessageSize has to be as large",
}
"""Remedies of the store that verbs have flags for."""

_ARGUMENTS: Final = {
    "path": "STORE",
    "topics": "TOPIC",
    "topic": "TOPIC",
    "start": "--from",
    "end": "--to",
    "sql": "--sql",
    "tags": "--tag",
    "columns": "--columns",
    "properties": "--properties",
    "message_id": "--id",
    "unique_key": "--unique-key",
    "unique_keys": "--unique-key",
    "keys": "--key",
    "physical_offset": "--physical-offset",
    "queue": "--queue",
    "offset": "--offset",
    "commit_log_paths": "--commit-log",
    "hour": "--hour",
    "rounds": "--rounds",
    "log_used": "--disk-usage",
    "queues_used": "--disk-usage",
    "segment_bytes": "--segment-bytes",
    "queue_segment_entries": "--queue-segment-entries",
    "in_sync_replicas": "--in-sync-replicas",
    "allowed": "--allow",
    "tls": "--tls",
}
"""Arguments of the Python API, as flags."""
_LEADING: Final = re.compile(rf"^({'|'.join(_ARGUMENTS)})(?=[:= ])")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a file system or quota without room."""
_INTERNAL: Final = "SEGMENTLOG_INTERNAL"
_OS_ERROR: Final = "OS_ERROR"
_SPARK: Final = frozenset({"pyspark", "py4j", "grpc"})
"""Packages whose errors are Spark's."""
_OURS: Final = re.compile(r"\[(SEGMENTLOG_[A-Z_]+)\] ([^\n]*)")
_JAVA: Final = re.compile(r"^(?:: )?(?:[a-z]\w*\.)+(\w+(?:Exception|Error))(?:: ([^\n]*))?", re.MULTILINE)


class UsageError(ConfigError):
    """A verb, flag or argument that is wrong."""

    condition = "SEGMENTLOG_USAGE"


class NoJavaError(UsageError):
    """No Java on this machine can run Spark."""

    condition = "SEGMENTLOG_NO_JAVA"


def describe(error: BaseException, arguments: Sequence[str]) -> dict[str, object]:
    """Return an error as the object that ``--json`` prints; ``arguments`` is the command line without the program."""
    path: str | None = None
    offset: int | None = None
    remedy: str | None = None
    if isinstance(error, SegmentLogError):
        error.reword(FLAGS)
        code, path, offset, remedy = error.condition, error.path, error.offset, error.fix
        found = _LEADING.sub(lambda leading: _ARGUMENTS[leading[1]], error.problem)
    elif isinstance(error, OSError):
        code, found = _OS_ERROR, error.strerror or str(error)
        path = error.filename if isinstance(error.filename, str) else None
        if error.errno in _FULL:
            remedy = "Make room where stdout or --write leads to, or raise the limit there, and run the command again"
    elif is_sparks(error):
        code, found, remedy = _of_spark(error)
    else:
        code, found = _INTERNAL, f"{type(error).__name__}: {error}"
        remedy = "This is a fault of segmentlog: report it with the traceback"
    return {
        "code": code,
        "asked": shlex.join(["segmentlog", *_without_credentials(arguments)]),
        "found": found,
        "where": {"path": path, "offset": offset},
        "remedy": remedy,
    }


def is_sparks(error: BaseException) -> bool:
    """Tell whether Spark raised an error: a job of it failed, or the connection to it."""
    return type(error).__module__.partition(".")[0] in _SPARK


def _of_spark(error: BaseException) -> tuple[str, str, str]:
    """Return code, text and remedy: Spark's own name, or our code if a task of ours raised the error."""
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        return ours[1], ours[2], "The error is of a Spark task: its log has the traceback"
    condition = getattr(error, "getCondition", lambda: None)()
    java = _JAVA.search(text)
    name, found = (java[1], java[2]) if java is not None else (type(error).__name__, text.strip().partition("\n")[0])
    remedy = "Spark failed: see its log for a lost executor or master, then run the command again"
    return condition or name, f"{name}: {found}" if condition else found or name, remedy


def _without_credentials(arguments: Sequence[str]) -> list[str]:
    """Return a command line without the values of options that may be credentials."""
    found: list[str] = []
    for word in arguments:
        flag, has_value, _ = word.partition("=")
        if found and found[-1] in CREDENTIALS:
            found.append(f"{flag}=…" if has_value else "…")
        else:
            found.append(f"{flag}=…" if has_value and flag in CREDENTIALS else word)
    return found


def error_text(described: Mapping[str, object], *, as_json: bool) -> str:
    """Return what `describe` returned as lines for stderr. No control character is in them."""
    if as_json:
        return json.dumps({"error": described}) + "\n"
    where = described["where"]
    assert isinstance(where, dict)
    place = where["path"]
    if place is not None and where["offset"] is not None:
        place = f"{place} at offset {where['offset']}"
    lines = [f"error[{described['code']}]: {described['found']}", f"  asked:  {described['asked']}"]
    lines += [f"  where:  {place}"] if place is not None else []
    lines += [f"  remedy: {described['remedy']}"] if described["remedy"] is not None else []
    return "".join(printable(line) + "\n" for line in lines)
