"""Settings of a replica: addresses, and values that make no sense."""

import pytest

from segmentlog.store import ConfigError
from segmentlog.store.ha import Address, ReplicaConfig


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":1",
        "host:0",
        "host:65536",
        "host:x",
        "h:" + "1" * 5000,
        "a..b:1",
        "a\0:1",
        "a" * 64 + ":1",
        "h:²",
    ],
)
def test_addresses_are_host_and_port(text: str) -> None:
    with pytest.raises(ConfigError, match="is not host:port"):
        Address.parse(text)


def test_an_address_may_be_of_ipv6() -> None:
    assert Address.parse("[::1]:10912") == ("::1", 10912)
    assert str(Address.parse("broker-a:10912")) == "broker-a:10912"
    with pytest.raises(ConfigError, match="bytes_per_s is 0"):
        ReplicaConfig(bytes_per_s=0)
