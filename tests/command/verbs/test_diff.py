import json
import shutil
from pathlib import Path

from support.commands import run_command
from support.small_store import write_small_store
from support.tampering import put_at, segments


def test_exit_codes_and_reports(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    copy = shutil.copytree(store, tmp_path / "copy")
    same = run_command("diff", store, copy, "--processes", 1)
    assert (same.code, same.text.splitlines()[0][:6]) == (0, "by log")
    put_at(segments(copy)[0], segments(copy)[0].read_bytes().index(b"body 17"), b"Body")
    found = run_command("diff", store, copy, "--processes", 1, "--json")
    assert found.code == 1
    (row,) = json.loads(found.out)["rows"]
    assert (row["kind"], row["topic"]) == ("damaged in B", "orders")
    assert "damaged in B  orders" in run_command("diff", store, copy, "--processes", 1).text


def test_digests_take_the_place_of_a_store(tmp_path: Path) -> None:
    store, file = write_small_store(tmp_path / "store"), tmp_path / "digests"
    copy = shutil.copytree(store, tmp_path / "copy")
    assert run_command("diff", store, "--digests", file, "--by", "queue", "--processes", 1).code == 0
    assert run_command("diff", copy, "--against", file, "--processes", 1).code == 0
    put_at(segments(copy)[0], segments(copy)[0].read_bytes().index(b"body 17"), b"Body")
    found = run_command("diff", copy, "--against", file, "--processes", 1, "--json")
    assert found.code == 1
    (row,) = json.loads(found.out)["rows"]
    assert (row["kind"], row["topic"]) == ("differs", "orders")
