"""Frames: any division of a stream yields the same log, and impossible headers end it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ReplicationError
from segmentlog.store.ha.frames import HISTORY, MORE_HISTORY, FrameReader, ReportReader, encode_header, encode_report

SEGMENT = 1000
PLACES = st.lists(st.integers(0, 40), max_size=30)


def stream(sizes: list[int], start: int) -> tuple[bytes, bytes]:
    """Return a stream of frames with bodies of these sizes, 0 for a heartbeat, and the log bytes in them."""
    frames, log, at = b"", b"", start
    for size in sizes:
        size = min(size, SEGMENT - at % SEGMENT)  # noqa: PLW2901
        body = bytes((at + each) % 251 for each in range(size))
        frames += encode_header(at, size) + body
        log, at = log + body, at + size
    return frames, log


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(each * len(data) // 1000 for each in cuts)})
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(PLACES, st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 3 * SEGMENT))
def test_any_division_of_a_stream_yields_the_same_log(sizes: list[int], cuts: list[int], start: int) -> None:
    frames, log = stream(sizes, start)
    reader, found = FrameReader(SEGMENT), b""
    for piece in cut(frames, cuts):
        chunks = list(reader.feed(piece))
        assert len([each for each in chunks if each.data]) <= 1 + chunks.count((0, b"")) + len(chunks)
        for chunk in chunks:
            assert chunk.offset == start + len(found)
            found += chunk.data
            assert chunk.stop == start + len(found)
    assert found == log
    assert reader.announced == (start + len(log) if sizes else 0)


def test_adjacent_bodies_are_joined() -> None:
    frames, log = stream([30, 30, 30], 500)
    assert [tuple(each) for each in FrameReader(SEGMENT).feed(frames)] == [(500, log)]
    beat = encode_header(590, 0)
    assert [tuple(each) for each in FrameReader(SEGMENT).feed(frames + beat)] == [(500, log), (590, b"")]


def test_what_was_announced_is_known_before_it_came() -> None:
    reader = FrameReader(SEGMENT)
    assert list(reader.feed(encode_header(100, 50) + b"x")) == [(100, b"x")]
    assert reader.announced == 150


@pytest.mark.parametrize(
    ("offset", "size"),
    [(-1, 5), (-(1 << 63), 0), (0, -1), (0, -(1 << 31)), (0, SEGMENT + 1), (SEGMENT - 1, 2), (7, (1 << 31) - 1)],
)
def test_impossible_headers_are_refused(offset: int, size: int) -> None:
    reader = FrameReader(SEGMENT)
    frames, log = stream([20], 0)
    found = []
    with pytest.raises(ReplicationError, match=f"a frame of {size} bytes at physical offset {offset}, which"):
        found += [each.data for each in reader.feed(frames)] + list(reader.feed(encode_header(offset, size)))
    assert found in ([], [log])


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=10))
def test_garbage_is_bounded(garbage: bytes, cuts: list[int]) -> None:
    reader, held = FrameReader(SEGMENT), 0
    try:
        for piece in cut(garbage, cuts):
            held += sum(len(chunk.data) for chunk in reader.feed(piece))
            assert len(reader._kept) < 12
    except ReplicationError:
        pass
    assert held <= len(garbage)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20), st.lists(st.integers(0, 1000), max_size=20))
def test_reports_come_whole(offsets: list[int], cuts: list[int]) -> None:
    reader = ReportReader()
    data = b"".join(map(encode_report, offsets))
    assert [each for piece in cut(data, cuts) for each in reader.feed(piece)] == offsets
    assert reader.feed(b"1234567") == []
    assert reader.feed(b"8") == [int.from_bytes(b"12345678", "big")]


@given(st.lists(st.one_of(st.integers(0, 40), st.binary(min_size=1, max_size=60)), max_size=20), PLACES)
def test_any_division_of_a_stream_yields_the_histories_between_its_frames(
    sent: list[int | bytes], cuts: list[int]
) -> None:
    frames, at, expected = b"", 0, []
    for each in sent:
        if isinstance(each, bytes):
            frames += encode_header(MORE_HISTORY, len(each)) + each
            expected.append((at, each))
        else:
            body, _ = stream([each], at)
            frames, at = frames + body, at + len(body) - 12
    reader, found, histories = FrameReader(SEGMENT), 0, []
    reader.history_bytes_max = 60
    for piece in cut(frames, cuts):
        for chunk in reader.feed(piece):
            if chunk.offset == MORE_HISTORY:
                histories.append((found, chunk.data))
                continue
            assert chunk.offset == found
            found = chunk.stop
    assert found == at
    # A frame of the history may come before bytes that were sent before it, of the same piece, never after later ones.
    assert [data for _, data in histories] == [data for _, data in expected]
    assert all(came <= was_sent for (came, _), (was_sent, _) in zip(histories, expected, strict=True))


@pytest.mark.parametrize(("size", "most"), [(1, 0), (61, 60), (0, 60), (-1, 60)])
def test_a_history_that_is_too_large_or_not_expected_ends_the_stream(size: int, most: int) -> None:
    reader = FrameReader(SEGMENT)
    reader.history_bytes_max = most
    with pytest.raises(ReplicationError, match=f"a frame of {size} bytes at physical offset -2"):
        list(reader.feed(encode_header(HISTORY, size) + bytes(70)))
