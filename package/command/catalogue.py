"""Catalogue of verbs: names, modules, and the text of ``segmentlog --help``, which imports none of them."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from segmentlog.query.suggestions import suggest

from .errors import UsageError
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .console import Console

_LOOK: Final = "Describe a store"
_READ: Final = "Read messages"
_JOBS: Final = "Move and count messages, with Spark"
_WRITE: Final = "Write to a store"
_MOVE: Final = "Move messages"
_MAINTAIN: Final = "Maintain a store"
_SET_UP: Final = "Set up"
_MODULES: Final = {
    _LOOK: "describe",
    _READ: "messages",
    _JOBS: "moving",
    _WRITE: "writing",
    _MOVE: "moving",
    _MAINTAIN: "integrity",
    _SET_UP: "set_up",
}
"""Module in ``verbs/`` with the functions ``add_VERB`` and ``run_VERB`` of each verb of a heading."""
_MEANT: Final = {
    "consume": "cat",
    "count": "stats",
    "check": "verify",
    "consumers": "groups",
    "describe": "queues",
    "export": "backfill",
    "find": "get --key",
    "follow": "tail -f",
    "fsck": "verify",
    "grep": "cat --grep",
    "info": "stats",
    "list": "topics",
    "ls": "topics",
    "print": "cat",
    "produce": "put",
    "query": "get --key",
    "read": "cat",
    "repair": "salvage",
    "scan": "cat",
    "search": "cat --grep",
    "select": "cat",
    "send": "put",
    "show": "cat",
    "write": "put",
}
"""Verbs of other programs, each with ours."""
_EPILOGUE: Final = """\
segmentlog VERB --help lists the flags of a verb.

exit codes: 0 found or sound, 1 not found or findings, 2 error, 130 interrupted
"""


class Verb(NamedTuple):
    """A verb: its name, its heading and line in ``--help``, and mqadmin's names for it."""

    name: str
    heading: str
    summary: str
    aliases: tuple[str, ...] = ()
    file: str = ""  # its module in ``verbs/``, if it is not that of the heading

    @property
    def module(self) -> str:
        return self.file or _MODULES[self.heading]

    def parser(self) -> Parser:
        """Return the parser of its arguments, which imports its module."""
        parser = Parser(self.name, self.summary)
        self._function("add")(parser)
        return parser

    def run(self, options: "Namespace", console: "Console") -> int:
        """Do it, and return `FOUND` or `NOT_FOUND`."""
        code: int = self._function("run")(options, console)
        return code

    def _function(self, prefix: str) -> Callable[..., Any]:
        module = import_module(f"segmentlog.command.verbs.{self.module}")
        function: Callable[..., Any] = getattr(module, f"{prefix}_{self.name.replace('-', '_')}")
        return function


VERBS: Final = (
    Verb("topics", _LOOK, "topics with their queues, messages, bytes and times", ("topicList",)),
    Verb("queues", _LOOK, "queues with their first and last offset, bytes and times", ("topicStatus",)),
    Verb("segments", _LOOK, "segments of the CommitLog"),
    Verb("stats", _LOOK, "messages, bytes and rates of topics; --watch shows them live", ("statsAll",)),
    Verb("profile", _LOOK, "statistics of all messages: rates, sizes, tags, keys, lateness; --html plots them"),
    Verb("groups", _LOOK, "positions of consumer groups"),
    Verb("lag", _LOOK, "lag of consumer groups in messages, bytes and time", ("consumerProgress",)),
    Verb("metrics", _LOOK, "numbers for monitoring; --listen serves them to Prometheus"),
    Verb("offsets", _LOOK, "the queue offset of a time, in each queue"),
    Verb("cat", _READ, "messages of topics: by offset, time, tag, SQL92 filter", ("consumeMessage", "printMsg")),
    Verb("tail", _READ, "the last messages of topics, and with -f those that follow"),
    Verb(
        "get",
        _READ,
        "messages by key, unique key, id, queue offset or physical offset",
        ("queryMsgByKey", "queryMsgByUniqueKey", "queryMsgById", "queryMsgByOffset"),
    ),
    Verb(
        "delayed",
        _READ,
        "delayed messages and timers; --check finds late, lost and repeated ones",
    ),
    Verb("dead-letters", _READ, "dead letters by group and topic, with the command that sends them again"),
    Verb("transactions", _READ, "half messages of transactions, and their outcome"),
    Verb("trace", _READ, "entries of message traces"),
    Verb("dump", _READ, "records and queue entries byte by byte", ("queryCq", "dumpCompactionLog")),
    Verb("backfill", _JOBS, "messages of days or hours as files or tables, each message once"),
    Verb("put", _WRITE, "lines, or the JSON lines of cat, appended as messages", ("sendMessage",)),
    Verb(
        "reset-offset",
        _WRITE,
        "a consumer group moved to a time or offset; --dry-run shows the change",
        ("resetOffsetByTime",),
    ),
    Verb("replay", _MOVE, "messages appended to another store, at full pace or at that of the original"),
    Verb("resend", _MOVE, "messages sent to a live broker: dead letters and repairs"),
    Verb("verify", _MAINTAIN, "faults of a store: log, queues and index compared with each other"),
    Verb("diff", _MAINTAIN, "two stores compared: a replica, a copy, or an archive with its store"),
    Verb("salvage", _MAINTAIN, "whole records of a damaged store, copied to a new one"),
    Verb("rebuild", _MAINTAIN, "ConsumeQueues, written again from the CommitLog"),
    Verb(
        "retention",
        _MAINTAIN,
        "expired files: `plan` lists them, `apply` deletes them",
        ("deleteExpiredCommitLog", "cleanExpiredCQ"),
        "retention",
    ),
    Verb("archive", _MAINTAIN, "a store copied into object storage: push, pull, ls, verify, prune", file="archive"),
    Verb("replicate", _MAINTAIN, "live replica of a running broker's store", file="replication"),
    Verb("serve", _MAINTAIN, "a store for replicas, while other processes write it", file="replication"),
    Verb("promote", _MAINTAIN, "a store made the master of its log, after a failover", file="replication"),
    Verb("demote", _MAINTAIN, "a master that was replaced, made to follow the new one", file="replication"),
    Verb("doctor", _SET_UP, "checks of Python, Java and Spark, and of a store"),
    Verb("demo", _SET_UP, "tables of stores that real RocketMQ wrote, read with Spark"),
    Verb("completion", _SET_UP, "script by which bash, zsh or fish completes verbs and flags"),
)
"""All verbs, in the order of ``--help``."""


def find_verb(name: str) -> Verb:
    """Return the verb of a name or alias; a `UsageError` has the verb that was probably meant."""
    for verb in VERBS:
        if name == verb.name or name in verb.aliases:
            return verb
    word = suggest(name, [*(verb.name for verb in VERBS), *_MEANT])
    if word is not None:
        near = f"Did you mean `{_MEANT.get(word, word)}`? "
    else:
        near = f"The verb comes first: `segmentlog topics {name}`. " if os.path.isdir(name) else ""
    fix = f"{near}`segmentlog --help` lists the verbs"
    raise UsageError(f"VERB: there is no verb `{name}`", fix=fix)


def help_text() -> str:
    """Return the text of ``segmentlog --help``, without a line end after the last line."""
    lines = ["usage: segmentlog VERB STORE [arguments] [flags]", ""]
    lines += ["Read and maintain RocketMQ message stores: the directory alone, no broker, no lock."]
    width = max(len(verb.name) for verb in VERBS)
    for heading in dict.fromkeys(verb.heading for verb in VERBS):
        lines += ["", f"{heading}:"]
        lines += [f"  {verb.name:<{width}}  {verb.summary}" for verb in VERBS if verb.heading == heading]
    return "\n".join([*lines, "", *_EPILOGUE.splitlines()])
