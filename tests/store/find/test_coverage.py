"""Coverage of a log by index files and scans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.find.coverage import CoveredRange, Source, Span, cover, without


def test_what_no_file_answers_for_is_scanned_and_says_why() -> None:
    coverage = cover(100, 1000, [Span(500, 700, "b"), Span(50, 300, "a")], [])
    assert coverage.ranges == (
        CoveredRange(100, 300, Source.INDEX, "a"),
        CoveredRange(300, 500, Source.SCAN, "between indexed records"),
        CoveredRange(500, 700, Source.INDEX, "b"),
        CoveredRange(700, 1000, Source.SCAN, "after the last indexed record"),
    )
    assert (coverage.indexed_bytes, coverage.scanned_bytes) == (400, 500)
    assert [each.start for each in coverage.scanned()] == [300, 700]


def test_damaged_files_are_named_where_something_is_scanned() -> None:
    (scan,) = cover(0, 10, [], ["x is damaged"]).ranges
    assert scan.reason == "no index file answers for this log; x is damaged"


def test_the_front_of_a_log_may_have_no_index() -> None:
    assert cover(0, 10, [Span(5, 10, "a")], []).ranges[0].reason == "before the first index file"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(0, 50), st.integers(0, 50))
def test_ranges_leave_no_gap_and_index_ranges_are_of_their_files(
    spans: list[tuple[int, int]], start: int, stop: int
) -> None:
    files = [Span(a, b, str(at)) for at, (a, b) in enumerate(spans)]
    reached = start
    for each in cover(start, stop, files, []).ranges:
        assert each.start == reached < each.stop <= stop
        reached = each.stop
        held = [any(f.start <= at < f.stop for f in files) for at in range(each.start, each.stop)]
        assert all(held) if each.source is Source.INDEX else not any(held)
        if each.source is Source.INDEX:
            file = files[int(each.reason)]
            assert file.start <= each.start < each.stop <= file.stop
    assert reached == max(start, stop)


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], [(10, 50)]),
        ([(20, 30)], [(10, 20), (30, 50)]),
        ([(0, 15), (40, 90)], [(15, 40)]),
        ([(20, 30), (25, 40)], [(10, 20), (40, 50)]),
        ([(0, 90)], []),
    ],
)
def test_holes_are_cut_out(holes: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    assert list(without(Span(10, 50, "f"), holes)) == [Span(a, b, "f") for a, b in left]
