from dataclasses import FrozenInstanceError

import pytest

from segmentlog.store import ConfigError, Flush, Services, StoreConfig

BOUNDS = {
    "segment_bytes": 1 << 10,
    "queue_segment_entries": 1,
    "index_slots": 1,
    "index_entries": 2,
    "max_body_bytes": 0,
}


@pytest.mark.parametrize(("name", "least"), BOUNDS.items())
def test_sizes_have_bounds_and_an_error_names_them(name: str, least: int) -> None:
    for wrong in (least - 1, -(1 << 40), 1 << 31):
        with pytest.raises(ConfigError, match=f"{name} is {wrong}") as raised:
            StoreConfig(**{name: wrong})  # type: ignore[arg-type]
        assert raised.value.fix == f"Pass a number from {least} to 2147483647"
    for right in (least, (1 << 31) - 1):
        assert getattr(StoreConfig(**{name: right}), name) == right  # type: ignore[arg-type]


def test_defaults_are_rocketmqs_but_for_durability() -> None:
    config = StoreConfig()
    assert (config.segment_bytes, config.queue_segment_entries) == (1 << 30, 300_000)
    assert (config.index_slots, config.index_entries, config.index) == (5_000_000, 20_000_000, True)
    assert (config.flush, config.services) == (Flush.SYNC, Services.BACKGROUND)
    assert (config.record_crc, config.compress_over_bytes) == (True, None)


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        StoreConfig().index = False  # type: ignore[misc]
    assert hash(StoreConfig()) == hash(StoreConfig())
