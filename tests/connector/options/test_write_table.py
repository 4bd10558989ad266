import pytest

from segmentlog.connector.options.option import Given
from segmentlog.connector.options.write_table import SINK, OnNull, Selector
from segmentlog.store import ConfigError, Flush, OnChangedReplay

HOSTS = ("10.1.2.3:10911", "[fd00::1]:1", " 127.0.0.1:0 ", "10.1.2.3:65535")
NO_HOSTS = ("10.1.2.3", "broker-a:10911", "10.1.2.3:65536", "10.1.2.3:", "1.2.3:4", "1.2.3.4:x")
NO_TOPICS = ("a b", "a\nb", "../up", "größe", "x" * 128, "orders/eu")


def value(name: str, text: str) -> object:
    return Given({name: text})[SINK.pick(name)[0]]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("txnAppId", "a b", "a b"),
        ("topic", "orders%retry-1|x", "orders%retry-1|x"),
        *(("txnVersion", raw, n) for raw, n in (("0", 0), (" +7 ", 7), (str(1 << 62), 1 << 62))),
        *(("storeHost", host, host.strip()) for host in HOSTS),
        *(("lockTimeout", raw, s) for raw, s in (("1500ms", 1.5), ("2m", 120.0), ("0s", 0.0))),
        ("flush", "ASYNC", Flush.ASYNC),
        ("onChangedReplay", "skip", OnChangedReplay.SKIP),
        ("onNullTopic", "skip", OnNull.SKIP),
        ("onNullBody", "empty", OnNull.EMPTY),
        ("queueSelector", "ShardingKey", Selector.SHARDING_KEY),
    ],
)
def test_accepted_values(name: str, text: str, found: object) -> None:
    assert value(name, text) == found


SPACE = "is empty, or has white space before or after it"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        *((name, text, SPACE) for name in ("topic", "txnAppId") for text in ("", " ", "a\n", " a", "a ", "\ta")),
        *(("topic", text, "cannot be a topic: ") for text in NO_TOPICS),
        *(("txnVersion", text, f"is `{text}`") for text in ("-1", "1.0", "", str(1 << 63), "٣", "1e3")),
        *(("storeHost", text, r"10.1.2.3:10911 or \[fd00::1\]:10911") for text in NO_HOSTS),
        ("onNullTopic", "empty", "one of fail, skip"),
        ("queueSelector", "hash", "one of auto, column, shardingkey, roundrobin"),
        ("defaultQueueNums", "0", "is `0`"),
        ("defaultQueueNums", "70000", "a number from 1 to 65536"),
        ("lockTimeout", "soon", "Give a duration with its unit, such as 15m, 30s or"),
        ("lockTimeout", "30", "`30s` for seconds or `30ms` for milliseconds"),
        ("maxMessageSize", "2g", ""),
        ("mappedFileSizeCommitLog", "4g", ""),
    ],
)
def test_refused_values(name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"option `{name}` .*{problem}"):
        value(name, text)
