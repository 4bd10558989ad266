import argparse
import io
import os
import signal
from dataclasses import dataclass

import pytest

from segmentlog.command.console import Console
from segmentlog.command.report import Report, camel_case, print_report, signalled


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


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event_and_handlers_come_back(sign: signal.Signals) -> None:
    former = signal.getsignal(sign)
    with signalled() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), sign)
        assert stop.wait(10)
    assert signal.getsignal(sign) is former
