"""Each byte of each field of a small store changed: `verify` finds it, or docs/reliability.md lists the field."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing
from segmentlog.store.format.index_file import ENTRY, HEADER
from segmentlog.store.maintenance import Kind, verify
from support.scale import scale
from support.small_store import CONFIG
from support.tampering import QueueFiles, put_at, segments

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"
BODY = b"a body that is longer than most fields"
# Position in a record from an IPv4 host, bytes.
RECORD = {
    "size": (0, 4),
    "magic": (4, 4),
    "body CRC": (8, 4),
    "queue": (12, 4),
    "flag": (16, 4),
    "queue offset": (20, 8),
    "physical offset": (28, 8),
    "sysFlag": (36, 4),
    "bornTimestamp": (40, 8),
    "bornHost": (48, 8),
    "storeTimestamp": (56, 8),
    "storeHost": (64, 8),
    "reconsumeTimes": (72, 4),
    "preparedTransactionOffset": (76, 8),
    "body length": (84, 4),
    "body": (88, len(BODY)),
    "topic length": (88 + len(BODY), 1),
    "topic": (89 + len(BODY), 6),
    "properties length": (95 + len(BODY), 2),
    "properties": (97 + len(BODY), 20),
}
BLIND = {
    *("flag", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes"),
    *("preparedTransactionOffset", "properties", "seconds"),
}
"""Fields of records without ``__CRC32#``, and of index entries, that some changes of a byte damage unseen."""
CHANGES = scale((0x81,), (0x81,), (0x01, 0x02, 0x10, 0x80, 0xFF))
INDEX_ENTRY = {"key hash": (0, 4), "physical offset": (4, 8), "seconds": (12, 4), "previous": (16, 4)}


@pytest.fixture(scope="module", params=[True, False], ids=["with CRC", "without"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bool]]:
    path = tmp_path_factory.mktemp("fields") / "store"
    with MessageStore.open(path, replace(CONFIG, record_crc=request.param, index_slots=5)) as store:
        for row in range(12):
            store.append(
                Outgoing(topic="orders", queue_id=row % 2, body=BODY, keys=f"k{row}", tags="t", uniq_key=f"u{row}")
            )
    assert verify(path).findings == ()
    yield path, request.param
    shutil.rmtree(path.parent)


def unseen(path: Path, file: Path, fields: dict[str, tuple[int, int]], starts: list[int]) -> dict[str, list[str]]:
    """Changes that `verify` does not find, by field; a finding that is no fault counts."""
    copy = path.parent / "copy"
    shutil.copytree(path, copy, dirs_exist_ok=True)
    victim, content = copy / file.relative_to(path), file.read_bytes()
    found: dict[str, list[str]] = {}
    for start in starts:
        for name, (at, size) in fields.items():
            for place in range(start + at, start + at + size):
                for change in CHANGES:
                    put_at(victim, place, bytes([content[place] ^ change]))
                    if not verify(copy).findings:
                        found.setdefault(name, []).append(f"byte {place}, ^{change:#x}")
            put_at(victim, start + at, content[start + at : start + at + size])
    return found


def test_each_field_of_a_record(original: tuple[Path, bool]) -> None:
    path, has_crc = original
    places = [QueueFiles(path, "orders", queue).entries["physical_offset"][:6].tolist() for queue in (0, 1)]
    starts = sorted([*places[0], *places[1]])[scale(5, 5, 0) :: scale(12, 12, 1)]
    found = unseen(path, segments(path)[0], RECORD, starts)
    assert found.keys() <= (set() if has_crc else BLIND), found


def test_each_field_of_a_queue_entry(original: tuple[Path, bool]) -> None:
    path, _ = original
    file = QueueFiles(path, "orders", 0).files[0]
    starts = [20 * row for row in range(scale(2, 2, 6))]
    assert unseen(path, file, {"entry": (0, 20)}, starts) == {}


def test_each_field_of_the_index(original: tuple[Path, bool]) -> None:
    path, _ = original
    (file,) = (path / "index").iterdir()
    header = {str(name): (offset, kind.itemsize) for name, (kind, offset) in (HEADER.fields or {}).items()}
    slots = {f"slot {slot}": (HEADER.itemsize + 4 * slot, 4) for slot in range(scale(2, 2, 5))}
    assert unseen(path, file, header | slots, [0]) == {}
    first = HEADER.itemsize + 4 * 5
    starts = [first + ENTRY.itemsize * number for number in range(1, 25, scale(16, 16, 1))]
    found = unseen(path, file, INDEX_ENTRY, starts)
    assert found.keys() <= BLIND, found


def test_the_page_lists_the_fields() -> None:
    _, section = DOCS.read_text().split("## Bytes without a checksum")
    listed = section.split("\n## ")[0]
    assert [name for name in sorted(BLIND) if name not in listed] == []


def test_a_finding_names_the_file_and_the_place(original: tuple[Path, bool], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(original[0], store)
    (file,) = (store / "index").iterdir()
    used = next(slot for slot in range(5) if any(file.read_bytes()[HEADER.itemsize + 4 * slot :][:4]))
    place = HEADER.itemsize + 4 * used
    put_at(file, place, bytes(4))
    (finding,) = [each for each in verify(store).findings if each.kind is Kind.INDEX_SLOT]
    assert (finding.path, finding.offset) == (str(file), used)
    assert f"byte {place}" in finding.text
