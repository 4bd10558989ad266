import io
import os

import pytest

from segmentlog.command import incoming
from segmentlog.command.errors import UsageError
from segmentlog.command.incoming import Fixed, json_lines, text_lines


class Drops(io.BytesIO):
    """A pipe that returns some bytes per read."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self.size = size

    def read1(self, _: int | None = -1) -> bytes:
        return self.read(self.size)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_do_not_depend_on_reads(size: int) -> None:
    blocks = list(text_lines(Drops(b"a\n\nbcdef\nlast", size), Fixed(topic="t")))
    assert [body for block in blocks for body in block.batch["body"].to_pylist()] == [b"a", b"", b"bcdef", b"last"]


def test_times_are_text_or_milliseconds() -> None:
    texts = ['"2026-01-31T00:00:00.001Z"', '"2026-01-31T01:00:00.001+01:00"', "1769817600001", "null"]
    data = "".join(f'{{"topic":"t","body":"","bornTimestamp":{text}}}\n' for text in texts).encode()
    (block,) = json_lines(io.BytesIO(data), Fixed())
    assert block.batch["bornTimestamp"].to_pylist() == [1_769_817_600_001] * 3 + [None]


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_LINE_BYTES_MAX", 100)
    with pytest.raises(UsageError, match="a line is longer than 100 bytes"):
        list(text_lines(Drops(b"x" * 1000, 7), Fixed(topic="t")))


def test_a_slow_pipe_is_not_waited_for() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stdin, os.fdopen(write_end, "wb", buffering=0) as sink:
        blocks = text_lines(stdin, Fixed(topic="t"))
        sink.write(b"first\n")
        assert next(blocks).batch["body"].to_pylist() == [b"first"]
        sink.write(b"second\n")
        assert next(blocks).batch["body"].to_pylist() == [b"second"]


def test_a_pipe_that_is_ready_is_one_batch() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as sink:
        sink.write(b"line\n" * 1000)
    with os.fdopen(read_end, "rb") as stdin:
        assert [block.batch.num_rows for block in text_lines(stdin, Fixed(topic="t"))] == [1000]
