"""The mutator of all attacks: damage to bytes, and to numbers and names in texts; what a reader may make of it.

::

    DAMAGE[kind](content, at, draw)        ──► files of stores and of indexes, each with a judge of its own
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
_BLOCKS: Final = (512, 4096)
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


def over(data: bytes, at: int, content: bytes) -> bytes:
    """Return bytes with others written over them, up to their end."""
    return data[:at] + content[: max(1, len(data) - at)] + data[at + len(content) :]


def _bit(data: bytes, at: int, draw: random.Random) -> bytes:
    return over(data, at, bytes([(data[at : at + 1] or b"\0")[0] ^ 1 << draw.randrange(8)]))


def _field(data: bytes, at: int, draw: random.Random) -> bytes:
    width = draw.choice([1, 1, 2, 4, 8])
    value = odd_number(draw) & (1 << 8 * width) - 1
    return over(data, at, value.to_bytes(width, draw.choice(["big", "little"])))


def _run(data: bytes, at: int, draw: random.Random) -> bytes:
    return over(data, at, draw.randbytes(draw.randrange(2, 33)))


def block(data: bytes, at: int, draw: random.Random) -> slice:
    """Return the block around a place: most devices tear at sectors, some do not."""
    size = min(draw.choice(_BLOCKS), len(data))
    start = min(at // (align := draw.choice([size or 1, 64])) * align, len(data) - size)
    return slice(start, start + size)


def _zeros(data: bytes, at: int, draw: random.Random) -> bytes:
    found = block(data, at, draw)
    return over(data, found.start, bytes(found.stop - found.start))


def _noise(data: bytes, at: int, draw: random.Random) -> bytes:
    found = block(data, at, draw)
    return over(data, found.start, draw.randbytes(found.stop - found.start))


def _cut(data: bytes, at: int, draw: random.Random) -> bytes:
    return data[:at]


def _shift(data: bytes, at: int, draw: random.Random) -> bytes:
    """Bytes exchanged for none or for others: what follows is whole, and may be in the wrong place."""
    count = draw.choice([1, 2, 4, 8, 20, 40, 512])
    return data[:at] + (draw.randbytes(count) if draw.random() < 0.5 else b"") + data[at + count :]


def _repeated(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at : at + draw.choice([1, 8, 40, 400])] * draw.choice([2, 3, 50]) + data[at:]


DAMAGE: Final[dict[str, Callable[[bytes, int, random.Random], bytes]]] = {
    "bit": _bit,
    "field": _field,
    "run": _run,
    "zeros": _zeros,
    "noise": _noise,
    "cut": _cut,
    "shift": _shift,
}
"""Damage to bytes at a place, by its name."""


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return bytes with one damage anywhere."""
    return DAMAGE[draw.choice([*DAMAGE])](data, draw.randrange(len(data) or 1), draw)


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
        return damaged(data, draw)
    chosen = draw.choice(found)
    return data[: chosen.start()] + text.encode() + data[chosen.end() :]


_CHANGES: Final = (damaged, damaged, damaged, damaged, _repeated, _number, _text, _value, _nested)
