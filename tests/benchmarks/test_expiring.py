import os

import pytest


@pytest.mark.parametrize("first", [0, 1])
def test_a_run_looks_at_all_files_and_deletes_none(load, tmp_path, first):
    expiring = load("sections.expiring")
    expiring.write_directories(tmp_path / "store", 5, 100, first)
    names = sorted(os.listdir(tmp_path / "store" / "commitlog"))
    assert names == [f"{(first + number) * expiring.SEGMENT_BYTES:020d}" for number in range(5)]
    service = expiring.service_of(tmp_path / "store")
    assert expiring.timed(service) > 0
    assert service._memory.queues_cleaned_to == first * expiring.SEGMENT_BYTES
    assert expiring.timed(service) > 0
    assert sorted(os.listdir(tmp_path / "store" / "commitlog")) == names
    assert len(list((tmp_path / "store" / "consumequeue").glob("*/*/*"))) == 200
