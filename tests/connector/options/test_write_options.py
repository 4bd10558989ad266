import pickle
from pathlib import Path

import pytest

from segmentlog.connector.errors import ConflictingOptionsError, MissingOptionError, UnknownOptionError
from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.options.write_options import WriteOptions, parse_write_options
from segmentlog.connector.options.write_table import SINK, OnNull, Selector
from segmentlog.store import ConfigError, Flush, StoreConfig
from segmentlog.store.sink import SyncReplication

DOCS = Path(__file__).parents[3] / "docs" / "options.md"


def parse(mode: Mode = Mode.BATCH, **given: str) -> WriteOptions:
    return parse_write_options({"path": "/data/store"} | given, mode)


def test_defaults() -> None:
    found = parse()
    assert found.path == "/data/store"
    assert (found.topic, found.app, found.version) == (None, None, None)
    assert found.exactly_once
    assert found.create_topic
    assert found.default_queues == 8
    assert found.selector is Selector.AUTO
    assert (found.on_null_topic, found.on_null_body) == (OnNull.FAIL, OnNull.FAIL)
    assert found.lock_timeout_s == 120
    assert found.config == StoreConfig()
    assert found.sizes == ()


def test_options_travel_to_workers() -> None:
    found = parse(topic="orders", txnAppId="a", txnVersion="7", mappedFileSizeCommitLog="64m")
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_brokers_own_names() -> None:
    found = parse(
        MAPPEDFILESIZECOMMITLOG="64m",
        mappedFileSizeConsumeQueue="2001",
        maxHashSlotNum="500",
        maxIndexNum="2000",
        messageIndexEnable="false",
        enabledAppendPropCRC="false",
        compressMsgBodyOverHowmuch="4k",
        maxMessageSize="1m",
        storeHost="[fd00::1]:10911",
    )
    assert found.config == StoreConfig(
        segment_bytes=64 << 20,
        queue_segment_entries=101,  # brokers go up to the next whole entry
        index_slots=500,
        index_entries=2000,
        index=False,
        record_crc=False,
        compress_over_bytes=4096,
        max_body_bytes=1 << 20,
        store_host="[fd00::1]:10911",
    )
    assert found.sizes == ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")


@pytest.mark.parametrize("name", ["a\n", " a", "a ", "\ta", "", " "])
@pytest.mark.parametrize("option", ["topic", "txnAppId"])
def test_names_are_taken_as_they_are_or_not_at_all(option: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"option `{option}` is empty, or has white space before or after it"):
        parse(**{option: name, "txnVersion": "1"} if option == "txnAppId" else {option: name})


@pytest.mark.parametrize("topic", ["a b", "a\nb", "../up", "größe", "t" * 128])
def test_a_topic_that_rocketmq_does_not_allow_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="option `topic` cannot be a topic: "):
        parse(topic=topic)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "TBW102", "rmq_sys_x", "%RETRY%g", "%DLQ%g"])
def test_system_topics_are_refused_unless_they_are_allowed(topic: str) -> None:
    with pytest.raises(ConfigError, match=f"option `topic` is the system topic `{topic}`.*allowSystemTopics=true"):
        parse(topic=topic)
    assert parse(topic=topic, allowSystemTopics="true").topic == topic


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_no_path(mode: Mode) -> None:
    with pytest.raises(MissingOptionError, match=r"no store is named.*save\('/data/store'\).*INSERT INTO"):
        parse_write_options({"topic": "t"}, mode)


def test_the_error_for_an_option_of_the_source_names_the_source() -> None:
    with pytest.raises(UnknownOptionError, match=r"`startingoffsets`.*`startingOffsets` is an option of the source"):
        parse(startingoffsets="earliest")
    with pytest.raises(UnknownOptionError, match=r"`subscribe` is an option of the source"):
        parse(subscribe="orders")


def test_the_error_for_an_option_of_the_sink_names_the_sink() -> None:
    with pytest.raises(UnknownOptionError, match=r"`txnAppId` is an option of the sink"):
        parse_read_options({"path": "/x", "topic": "t", "txnappid": "a"})


def test_an_unknown_option_has_a_suggestion() -> None:
    with pytest.raises(UnknownOptionError, match=r"`exactlyonc`.*Did you mean `exactlyOnce` for `exactlyonc`"):
        parse(exactlyonc="true")
    assert parse(nonsense="1", strictOptions="false") == parse()


def test_options_that_spark_adds_are_ignored() -> None:
    assert parse(Mode.STREAM, checkpointlocation="/cp") == parse(Mode.STREAM)


@pytest.mark.parametrize(
    ("mode", "given", "error", "text"),
    [
        (Mode.BATCH, {"txnAppId": "a"}, MissingOptionError, "`txnAppId` is there without `txnVersion`"),
        (Mode.BATCH, {"txnVersion": "1"}, MissingOptionError, "`txnVersion` is there without `txnAppId`"),
        (Mode.STREAM, {"txnVersion": "1"}, ConflictingOptionsError, "no meaning in a stream"),
        (
            Mode.STREAM,
            {"txnAppId": "a", "exactlyOnce": "false"},
            ConflictingOptionsError,
            "`txnAppId` and `exactlyOnce=false` exclude each other",
        ),
        (Mode.BATCH, {"txnAppId": "a", "txnVersion": "-1"}, ConfigError, "option `txnVersion` is `-1`"),
        (Mode.BATCH, {"txnAppId": "a", "txnVersion": str(1 << 63)}, ConfigError, "option `txnVersion`"),
        (Mode.BATCH, {"queueSelector": "hash"}, ConfigError, "one of auto, column, shardingkey, roundrobin"),
        (Mode.BATCH, {"onNullTopic": "empty"}, ConfigError, "one of fail, skip"),
        (Mode.BATCH, {"defaultQueueNums": "0"}, ConfigError, "option `defaultQueueNums` is `0`"),
        (Mode.BATCH, {"defaultQueueNums": "70000"}, ConfigError, "a number from 1 to 65536"),
        (Mode.BATCH, {"lockTimeout": "soon"}, ConfigError, "Give a duration with its unit, such as 15m, 30s or"),
        (Mode.BATCH, {"lockTimeout": "30"}, ConfigError, "`30s` for seconds or `30ms` for milliseconds"),
        (Mode.BATCH, {"storeHost": "broker:10911"}, ConfigError, "option `storeHost` is `broker:10911`"),
        (Mode.BATCH, {"storeHost": "10.0.0.1:70000"}, ConfigError, "option `storeHost`"),
        (Mode.BATCH, {"maxMessageSize": "2g"}, ConfigError, "option `maxMessageSize`"),
        (Mode.BATCH, {"mappedFileSizeCommitLog": "4g"}, ConfigError, "option `mappedFileSizeCommitLog`"),
        (Mode.BATCH, {"mappedFileSizeCommitLog": "10"}, ConfigError, "segment_bytes is 10"),
        (Mode.BATCH, {"flush": "async"}, ConflictingOptionsError, "`flush=async` conflicts with `exactlyOnce=true`"),
        (Mode.STREAM, {"flush": "async"}, ConflictingOptionsError, "an exactly-once batch is fsynced"),
        (Mode.BATCH, {"path": "hdfs://x/y"}, ConfigError, "not a local directory"),
    ],
)
def test_conflicting_and_invalid_options_are_refused(
    mode: Mode, given: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(")):
        parse(mode, **given)


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1.5m", 90), ("2h", 7200), ("250 ms", 0.25)])
def test_durations(text: str, seconds: float) -> None:
    assert parse(lockTimeout=text).lock_timeout_s == seconds


def test_without_exactly_once_the_flush_may_wait() -> None:
    assert parse(exactlyOnce="false", flush="async").config.flush is Flush.ASYNC
    assert parse(exactlyOnce="false").config.flush is parse().config.flush is Flush.SYNC


def test_replication() -> None:
    assert parse().replication is parse(replication="async").replication is None
    assert parse(replication="sync").replication == SyncReplication(timeout_s=30, in_sync_replicas=2)
    asked = parse(replication="sync", replicationTimeout="1500ms", inSyncReplicas="3")
    assert asked.replication == SyncReplication(timeout_s=1.5, in_sync_replicas=3)
    with pytest.raises(ConfigError, match="`inSyncReplicas` is `1`, the store's own copy included"):
        parse(replication="sync", inSyncReplicas="1")
    with pytest.raises(ConflictingOptionsError, match="`replication=sync` and `flush=async` exclude each other"):
        parse(replication="sync", flush="async", exactlyOnce="false")
    for name, value in (("replicationTimeout", "3s"), ("inSyncReplicas", "2")):
        with pytest.raises(ConflictingOptionsError, match=f"`{name}` has no meaning without `replication=sync`"):
            parse(**{name: value})


def test_every_option_is_declared_once() -> None:
    names = [name.lower() for option in SINK for name in (option.name, *option.aliases)]
    assert len(set(names)) == len(names)


def test_every_option_changes_the_parsed_options() -> None:
    other = {
        "path": "/elsewhere",
        "topic": "t",
        "exactlyOnce": "false",
        "onChangedReplay": "skip",
        "createTopic": "false",
        "allowSystemTopics": "true",
        "defaultQueueNums": "3",
        "queueSelector": "roundrobin",
        "onNullTopic": "skip",
        "onNullBody": "empty",
        "maxMessageSize": "3",
        "lockTimeout": "3s",
        "replication": "sync",
        "compressMsgBodyOverHowmuch": "3",
        "enabledAppendPropCRC": "false",
        "storeHost": "10.0.0.1:1",
        "mappedFileSizeCommitLog": "3m",
        "mappedFileSizeConsumeQueue": "60",
        "maxHashSlotNum": "3",
        "maxIndexNum": "3",
        "messageIndexEnable": "false",
    }
    tried_elsewhere = {"txnAppId", "txnVersion", "flush", "strictOptions", "replicationTimeout", "inSyncReplicas"}
    assert other.keys() | tried_elsewhere == {option.name for option in SINK}
    for name, text in other.items():
        assert parse(**{name: text}) != parse(), name
