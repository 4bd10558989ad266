"""The calls of a real process, from the text that ``strace`` prints of them.

::

    12 pwrite64(5<\\x2f…>, "\\x61\\x62", 2, 0 <unfinished ...>      Call: name, arguments, result,
    13 close(6<\\x2f…>) = 0                                          the lines at which it began
    12 <... pwrite64 resumed>) = 2                                  and was over

Strings and paths are printed in hex, so none has a bracket, comma or quote in it. Descriptors carry their paths.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SYNCS = {"fsync", "fdatasync", "syncfs"}
CHANGING = {
    "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate", "rename", "renameat", "renameat2", "unlink",
    "unlinkat", "mkdir", "mkdirat", "openat", *SYNCS,
}  # fmt: skip
"""Calls that change a store, or make a change durable."""
FOLLOWED = {"close", "dup", "dup2", "dup3", "fcntl", "mmap", "write"}
UNWANTED = {
    "open", "creat", "writev", "truncate", "sync_file_range", "msync", "rmdir", "link", "linkat", "symlink",
    "symlinkat", "copy_file_range", "sendfile", "splice",
}  # fmt: skip
"""Calls that the store must not make on its files; other files do not matter."""
STRING_BYTES_MAX = 1 << 24
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_ENDED = re.compile(r"(.*?)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)")
_UNFINISHED = " <unfinished ...>"


class TraceError(AssertionError):
    """The trace has a call whose effect on a disk is unknown."""


@dataclass(slots=True)
class Call:
    name: str
    begin: int  # begin, end: numbers of the lines at which it began and was over; a call that never was has no ``end``
    end: int = 1 << 60
    arguments: list[str] = field(default_factory=list)  # as ``strace`` prints them
    result: int = -1  # below 0 for an error


def trace(command: Sequence[str], output: Path, **options: Any) -> None:
    """Run a program under ``strace``, all its threads."""
    calls = ",".join(sorted(CHANGING | FOLLOWED | UNWANTED))
    tracer = ["strace", "-f", "--seccomp-bpf", "-v", "-y", "-xx", "-s", str(STRING_BYTES_MAX), "-e", "signal=none"]
    done = subprocess.run(
        [*tracer, "-e", f"trace={calls}", "-o", str(output), *command],
        check=False, capture_output=True, text=True, **options,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"the traced program ended with {done.returncode}: {done.stderr[-4000:]}")


def calls_of(lines: Sequence[str]) -> list[Call]:
    found: list[Call] = []
    under_way: dict[str, tuple[Call, str]] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:  # a thread ended, or a signal came
            continue
        thread, resumed, name, rest = match.groups()
        if resumed:
            call, text = under_way.pop(thread)
            text += rest
        else:
            call = Call(name, number)
            found.append(call)
            text = rest
        if text.endswith(_UNFINISHED):
            under_way[thread] = call, text.removesuffix(_UNFINISHED)
            continue
        ended = _ENDED.fullmatch(text)
        if ended is None:
            raise TraceError(f"line {number} of the trace cannot be read: {line[:200]!r}")
        call.end = number
        call.arguments = _split(ended[1])
        call.result = -1 if ended[2] == "?" else int(ended[2], 0)
    for call, text in under_way.values():  # threads that were within a call when the process ended
        call.arguments = _split(text)
    return found


def _split(text: str) -> list[str]:
    """Take arguments apart; with ``-xx`` no string has a bracket or a comma in it."""
    parts, depth, start = [], 0, 0
    for at in (match.start() for match in re.finditer(r"[\[\]{},]", text)):
        depth += (text[at] in "[{") - (text[at] in "]}")
        if text[at] == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def bytes_of(quoted: str) -> bytes:
    body, end, rest = quoted[1:].partition('"')
    if quoted[:1] != '"' or not end or rest:
        raise TraceError(f"the trace has a string only in part: {quoted[:60]!r}")
    return bytes.fromhex(body.replace("\\x", ""))


def written(call: Call) -> bytes:
    """Bytes that a write wrote, of which there may be fewer than were given."""
    given = call.arguments[1]
    if given.startswith("["):
        pieces = re.findall(r"\{iov_base=(\"[^\"]*\"(?:\.\.\.)?), iov_len=(\d+)\}", given)
        data = b"".join(bytes_of(piece) for piece, _ in pieces)
        size = sum(int(length) for _, length in pieces)
        if len(pieces) != int(call.arguments[2]):
            raise TraceError(f"the trace has {len(pieces)} pieces of {call.arguments[2]} of one {call.name}")
    else:
        data, size = bytes_of(given), int(call.arguments[2])
    if len(data) != size:
        raise TraceError(f"the trace has {len(data)} bytes of {size} of one {call.name}")
    return data[: call.result]


def descriptor(call: Call) -> str:
    at = 4 if call.name == "mmap" else 0
    return call.arguments[at] if len(call.arguments) > at else ""


def annotated(argument: str) -> str:
    """Path that ``strace`` prints with a descriptor; empty without one."""
    found = re.fullmatch(r"(?:\d+|AT_FDCWD)<((?:\\x..)*)>(?:\(deleted\))?", argument)
    return bytes.fromhex(found[1].replace("\\x", "")).decode() if found else ""
