"""Mutations of any document: bytes, JSON, Arrow; and what its reader may make of one.

::

    attacked(reader, document, 10_000)     ──► of each change: an error of ours, or a value

`mutated` changes bytes and the numbers and names in texts; `odd_number` and `odd_text` are values for documents with a
checksum, whose fields are changed before they are encoded. `judged` fails for any other error, 5 s of CPU, and memory.
"""

import random
import re
import resource
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from segmentlog.store import SegmentLogError

T = TypeVar("T")

CPU_SECONDS: Final = 5.0
MEMORY_BYTES: Final = 256 << 20
"""Growth of the process that a document of some KiB may cause."""
_NUMBERS: Final = (
    *(0, 1, -1, 2, 7, 127, 128, 255, 65_535, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32, 1 << 40, 1 << 53),
    *((1 << 62) - 1, (1 << 63) - 1, -(1 << 63)),
)
_TEXTS: Final = (
    *(
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "/etc/x",
        "a//b",
        "a\0b",
        "a\\b",
        "x" * 5_000,
        "größer 漢字",
        "\x1b[2J",
        "%n",
    ),
    *("[]", "{}", "null", "-1", "[" * 5_000, "1e999", "NaN", "{", '{"a":', "true"),
)
_NUMBER: Final = re.compile(rb"-?\d+")
_STRING: Final = re.compile(rb'"[^"\\]*"')


class HangError(Exception):
    """A document took too long to read."""


def odd_number(draw: random.Random, value: int = 0) -> int:
    """Return a number of 64 bits that is likely to go wrong; near ``value`` at times."""
    return draw.choice([*_NUMBERS, value + 1, value - 1, -value, min(2 * value, (1 << 63) - 1)])


def odd_text(draw: random.Random) -> str:
    """Return a name or text that is likely to go wrong."""
    return draw.choice(_TEXTS)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return a document with one to three changes."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        data = draw.choice(_CHANGES)(data, draw)
    return data


def judged(read: Callable[[bytes], T], data: bytes) -> T | None:
    """Return what a reader makes of a document, or None after an error of ours; fail for anything else."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    former = signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return read(data)
    except SegmentLogError as error:
        str(error)
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        assert grown < MEMORY_BYTES, f"{len(data)} bytes made the process grow by {grown} bytes: {data[:200]!r}"


def attacked(
    read: Callable[[bytes], object],
    document: bytes,
    cases: int,
    change: Callable[[bytes, random.Random], bytes] = mutated,
) -> Counter[str]:
    """Read a document, and changes of it; count those that were read and those that were refused."""
    assert judged(read, document) is not None
    counted = Counter[str]()
    for seed in range(cases):
        data = change(document, random.Random(seed))
        try:
            found = judged(read, data)
        except BaseException as error:
            error.add_note(f"seed {seed}: {data[:300]!r}")
            raise
        counted["refused" if found is None else "read"] += 1
    return counted


def _hang(_signal: int, _frame: object) -> NoReturn:
    raise HangError(f"more than {CPU_SECONDS} s of CPU")


def _flipped(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) or 1)
    return data[:at] + bytes([(data[at : at + 1] or b"\0")[0] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _written(data: bytes, draw: random.Random) -> bytes:
    at, width = draw.randrange(len(data) or 1), draw.choice([1, 2, 4, 8])
    value = odd_number(draw) & (1 << 8 * width) - 1
    return data[:at] + value.to_bytes(width, draw.choice(["big", "little"])) + data[at + width :]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _dropped(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at + draw.choice([1, 2, 8, 40]) :]


def _repeated(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at : at + draw.choice([1, 8, 40, 400])] * draw.choice([2, 3, 50]) + data[at:]


def _number(data: bytes, draw: random.Random) -> bytes:
    return _replaced(_NUMBER, data, draw, draw.choice([str(odd_number(draw)), "9" * 5_000, "0" * 80, "1.5", "1e400"]))


def _text(data: bytes, draw: random.Random) -> bytes:
    escaped = odd_text(draw).replace('"', '\\"').replace("\0", "\\u0000").replace("\x1b", "\\u001b")
    return _replaced(_STRING, data, draw, f'"{escaped}"')


def _value(data: bytes, draw: random.Random) -> bytes:
    pattern = draw.choice([_NUMBER, _STRING])
    return _replaced(
        pattern, data, draw, draw.choice(["null", "true", "[]", "{}", "[[[]]]", '""', "0", "-0.0", "{1:2}"])
    )


def _nested(data: bytes, draw: random.Random) -> bytes:
    return _replaced(draw.choice([_NUMBER, _STRING]), data, draw, draw.choice(["[", '{"a":']) * 20_000)


def _replaced(pattern: re.Pattern[bytes], data: bytes, draw: random.Random, text: str) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return _flipped(data, draw)
    chosen = draw.choice(found)
    return data[: chosen.start()] + text.encode() + data[chosen.end() :]


_CHANGES: Final = (_flipped, _written, _cut, _dropped, _repeated, _number, _text, _value, _nested)
