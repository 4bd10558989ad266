from segmentlog.store.format import confirmation
from segmentlog.store.format.confirmation import FILE_BYTES, NOT_CONFIRMED, SLOT_BYTES, Confirmation

OLD, NEW = Confirmation(6, 1000, 2, 3), Confirmation(7, 1 << 40, 2, 1)


def file_of(*stated: Confirmation) -> bytearray:
    content = bytearray(FILE_BYTES)
    for each in stated:
        slot = confirmation.encode(each)
        at = confirmation.position_of(each)
        content[at : at + len(slot)] = slot
    return content


def test_the_newer_slot_counts() -> None:
    for stated in ((OLD, NEW), (NEW, OLD), (NEW,)):
        assert confirmation.decode(bytes(file_of(*stated))) == NEW
    for data in (b"", b"\0", bytes(FILE_BYTES), b"x" * FILE_BYTES, b"x" * 20):
        assert confirmation.decode(data) == NOT_CONFIRMED
    assert len(confirmation.encode(NEW)) <= SLOT_BYTES == 512, "a sector"
    assert {confirmation.position_of(OLD), confirmation.position_of(NEW)} == {0, SLOT_BYTES}


def test_each_damaged_byte_leaves_the_other_slot() -> None:
    at = confirmation.position_of(NEW)
    for byte in range(len(confirmation.encode(NEW))):
        content = file_of(OLD, NEW)
        content[at + byte] ^= 0x10
        assert confirmation.decode(bytes(content)) == OLD
