import json
from pathlib import Path

import pytest

from segmentlog.connector import doctor
from segmentlog.connector.setup.checks import Check, Status
from support.commands import run_command


def test_checks_of_a_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "environment_checks", list)
    found = json.loads(run_command("doctor", store, "--json").out)
    assert [check["name"] for check in found["checks"]][:3] == ["store", "owner", "kind"]
    ran = run_command("doctor", store / "no")
    assert ran.code == 1
    assert ran.text.startswith("fail  store")


@pytest.mark.parametrize(("status", "code"), [(Status.OK, 0), (Status.WARN, 0), (Status.FAIL, 1)])
def test_a_failed_check_is_a_finding(status: Status, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("java", status, "17", "install")
    monkeypatch.setattr(doctor, "environment_checks", lambda: [check])
    ran = run_command("doctor", "--json")
    assert ran.code == code
    assert json.loads(ran.out) == {
        "ok": code == 0,
        "checks": [{"name": "java", "status": status.value, "found": "17", "fix": "install"}],
    }
