import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.retention.settings import PROPERTIES, RetentionSettings, RocketMQRelease, Thresholds


def test_properties_are_read_by_their_names_and_the_defaults_are_rocketmqs() -> None:
    settings = RetentionSettings.from_broker({})
    assert settings == RetentionSettings()
    assert (settings.file_reserved_hours, settings.delete_when, settings.files_max) == (72, "04", 10)
    assert settings.thresholds == Thresholds(0.75, 0.85, 0.90)
    properties = {
        "fileReservedTime": " 48 ",
        "deleteWhen": " 05",
        "cleanFileForciblyEnable": "FALSE",
        "logicalDiskSpaceCleanForciblyThreshold": "0.5",
        "rocketmq.broker.diskSpaceWarningLevelRatio": "0.6",
        "brokerName": "other",
    }
    expected = {"file_reserved_hours": 48, "force_enabled": False, "share_force": 0.5, "refuse_share": 0.6}
    expected["delete_when"] = " 05"  # as in RocketMQ, where the space makes it a wrong entry
    found = RetentionSettings.from_broker(properties, RocketMQRelease.V5_3)
    assert found == RetentionSettings(release=RocketMQRelease.V5_3, **expected)
    attributes = set(PROPERTIES.values())
    assert len(attributes) == len(PROPERTIES)
    ours = {"release", "start_ms", "log_bytes_max", "protected_groups", "hard_limit_percent", "min_age_ms", "archive"}
    assert attributes == set(RetentionSettings.__dataclass_fields__) - ours
    with pytest.raises(ConfigError, match="log_bytes_max is 0"):
        RetentionSettings(log_bytes_max=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fileReservedTime", "three"),
        ("fileReservedTime", "2.5"),
        ("fileReservedTime", str(1 << 31)),
        ("cleanFileForciblyEnable", "yes"),
        ("logicalDiskSpaceCleanForciblyThreshold", "nan"),
        ("rocketmq.broker.diskSpaceWarningLevelRatio", ""),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is {value!r}, it must be"):
        RetentionSettings.from_broker({name: value})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (RetentionSettings(disk_max_used_percent=3), (0.10, 0.85, 0.90)),
        (RetentionSettings(disk_max_used_percent=99), (0.95, 0.85, 0.90)),
        (RetentionSettings(force_percent=10, refuse_percent=10), (0.75, 0.30, 0.35)),
        (RetentionSettings(force_percent=99, refuse_percent=99), (0.75, 0.85, 0.90)),
        (RetentionSettings(force_percent=40, force_share=0.5, refuse_share=0.8), (0.75, 0.50, 0.80)),
        (RetentionSettings(release=RocketMQRelease.V4_9, force_percent=40, refuse_percent=50), (0.75, 0.85, 0.90)),
        (RetentionSettings(release=RocketMQRelease.V4_9, force_share=0.99, refuse_share=0.1), (0.75, 0.99, 0.10)),
    ],
)
def test_thresholds_are_limited_as_the_release_limits_them(
    settings: RetentionSettings, expected: tuple[float, float, float]
) -> None:
    assert settings.thresholds == expected


def test_a_run_deletes_so_many_segments() -> None:
    of_5, of_4 = RocketMQRelease.V5_1, RocketMQRelease.V4_9
    for release, asked, expected in ((of_5, 0, 1), (of_5, -4, 1), (of_5, 1000, 1000), (of_4, 1000, 10)):
        assert RetentionSettings(release=release, files_per_run=asked).files_max == expected
