import argparse
import io
from dataclasses import dataclass

import pyarrow as pa
import pytest

from segmentlog.command.console import Console
from segmentlog.command.output.reports import Report, camel_case, print_report
from segmentlog.jobs.report import Report as JobReport


@pytest.mark.parametrize(("has_findings", "code"), [(False, 0), (True, 1)])
@pytest.mark.parametrize(("as_json", "shown"), [(False, b"two\n\\x1b[31mlines\n"), (True, b'{"form": "json"}\n')])
def test_a_report_is_printed(*, as_json: bool, shown: bytes, has_findings: bool, code: int) -> None:
    report = Report("two\n\x1b[31mlines", {"form": "json"}, has_findings)
    out = io.BytesIO()
    console = Console(stdin=io.BytesIO(), stdout=out, stderr=io.StringIO())
    assert print_report(lambda: report, argparse.Namespace(json=as_json), console) == code
    assert out.getvalue() == shown


def test_keys_in_json_are_in_camel_case_like_columns() -> None:
    @dataclass
    class Found:
        lost_messages: int = 3
        log_end: int = 4

    assert camel_case(Found()) == {"lostMessages": 3, "logEnd": 4}


def test_a_terminal_gets_the_table_of_a_job_in_its_width() -> None:
    table = pa.table({"part": [0, 1], "text": ["x" * 50, "y"], "messages": [3, 4]})
    found = JobReport(numbers={"messages": 7_000}, table=table)
    out = io.BytesIO()
    console = Console(stdin=io.BytesIO(), stdout=out, stderr=io.StringIO(), is_terminal=True, width=32)
    assert print_report(lambda: Report.of(found), argparse.Namespace(json=False), console) == 0
    lines = [line.rstrip() for line in out.getvalue().decode().splitlines()]
    assert lines[:2] == ["messages 7,000", ""]
    assert lines[4:] == ["   0  xxxxxxxxxxxxxxx…         3", "   1  y                        4"]
