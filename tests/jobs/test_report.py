import json

import pyarrow as pa

from segmentlog.jobs.report import Report

REPORT = Report(
    numbers={"messages": 1200, "target": "a\x1bb"},
    table=pa.table({"topic": ["orders", "<x>"], "messages": pa.array([1100, None], pa.int64())}),
)


def test_text_has_numbers_and_a_row_per_part() -> None:
    text = str(REPORT)
    assert "messages 1,200" in text
    assert "\x1b" not in text
    assert text.splitlines()[-2:] == ["orders      1100", "<x>            -"]


def test_json_has_the_same() -> None:
    assert json.loads(REPORT.to_json()) == {
        "messages": 1200,
        "target": "a\x1bb",
        "rows": [{"topic": "orders", "messages": 1100}, {"topic": "<x>", "messages": None}],
    }


def test_times_are_iso_8601() -> None:
    table = pa.table({"start": pa.array([1_769_817_600_001], pa.timestamp("ms", "UTC"))})
    report = Report(numbers={}, table=table)
    assert report.document() == {"rows": [{"start": "2026-01-31T00:00:00.001Z"}]}
    assert str(report).splitlines()[-1] == "2026-01-31T00:00:00.001Z"


def test_html_is_escaped() -> None:
    assert "&lt;x&gt;" in REPORT._repr_html_()


def test_a_report_without_rows_is_its_numbers() -> None:
    assert str(Report(numbers={"messages": 0}, table=REPORT.table.slice(0, 0))) == "messages 0"
