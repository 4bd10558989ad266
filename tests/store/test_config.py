from dataclasses import FrozenInstanceError

import pytest

from segmentlog.store import ConfigError, Flush, RetentionSettings, Services, StoreConfig
from segmentlog.store.ha import Begin, ReplicaConfig, ServerConfig

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


@pytest.mark.parametrize(
    ("kind", "wrong", "fix"),
    [
        (StoreConfig, {"segment_bytes": "64m"}, "Pass a whole number"),
        (StoreConfig, {"segment_bytes": True}, "Pass a whole number"),
        (StoreConfig, {"flush_interval_ms": "500"}, "Pass a whole number"),
        (StoreConfig, {"compress_over_bytes": "4k"}, "Pass a whole number or None"),
        (StoreConfig, {"index": "no"}, "Pass True or False"),
        (StoreConfig, {"store_host": 5}, "Pass text"),
        (RetentionSettings, {"share_force": "1"}, "Pass a number"),
        (RetentionSettings, {"protected_groups": "etl"}, "Pass a list of texts"),
        (RetentionSettings, {"protected_groups": ("etl", 5)}, "Pass a list of texts"),
        (RetentionSettings, {"min_age_ms": {"orders": "1h"}}, "Pass a mapping of texts to whole numbers"),
        (RetentionSettings, {"release": "6"}, "Pass one of '4.9', '5.1', '5.3'"),
        (ServerConfig, {"allowed": "10.0.0.0/8"}, "Pass a list of texts"),
        (ServerConfig, {"tls": ("c", "k", "a")}, "Pass a Tls or None"),
        (ServerConfig, {"port": 1 << 16}, "Pass a number from 1 to 65535, or 0 for a free port"),
        (ReplicaConfig, {"begin": "middle"}, "Pass one of 'first', 'last'"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_the_field(
    kind: type, wrong: dict[str, object], fix: str
) -> None:
    with pytest.raises(ConfigError, match=f"^.SEGMENTLOG_BAD_OPTION. {next(iter(wrong))}") as raised:
        kind(**wrong)
    assert raised.value.fix == fix


def test_lists_and_values_of_enums_are_accepted() -> None:
    assert ServerConfig(allowed=["10.0.0.0/8"], poll_s=1).poll_s == 1  # type: ignore[arg-type]
    assert ReplicaConfig(begin="last").begin is Begin.LAST  # type: ignore[arg-type]
    assert RetentionSettings(min_age_ms={"orders": 5}, protected_groups=("etl",), refuse_share=1).refuse_share == 1


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
