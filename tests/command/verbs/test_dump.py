from pathlib import Path

from support.commands import run_command
from support.small_store import write_small_store
from support.tampering import put_at, segments


def test_a_record_field_by_field(store: Path) -> None:
    ran = run_command("dump", store, "--json")
    assert ran.code == 0
    by_name = {row["field"]: row for row in ran.rows}
    assert by_name["topic"]["value"] == "orders"
    assert bytes.fromhex(by_name["body"]["bytes"]) == b"message 0 .........."
    assert (by_name["body"]["position"], by_name["body"]["item"]) == (88, 0)
    joined = b"".join(bytes.fromhex(row["bytes"]) for row in ran.rows)
    assert joined == segments(store)[0].read_bytes()[: len(joined)]
    assert len({row["item"] for row in run_command("dump", store, "-n", "5", "--json").rows}) == 5


def test_entries_of_a_queue(store: Path) -> None:
    rows = run_command("dump", store, "--topic", "orders", "-p", "1", "--offset", "60", "-n", "2", "--json").rows
    assert [(row["item"], row["field"]) for row in rows] == [
        (item, field) for item in (60, 61) for field in ("physical_offset", "size", "tags_code")
    ]
    dumped = run_command("dump", store, "--physical-offset", rows[0]["value"], "--json").rows
    assert {row["field"]: row["value"] for row in dumped}["queue_offset"] == "60"


def test_damage_is_shown_and_is_a_finding(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    put_at(segments(store)[0], 90, b"##")
    ran = run_command("dump", store, "--json")
    assert ran.code == 1
    assert ran.rows[-1]["field"] == "problem"
    assert ran.rows[-1]["value"].startswith("the CRC-32 of the body")
