import pytest

from segmentlog.connector.errors import ConflictingOptionsError, MissingOptionError, UnknownOptionError
from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.write_options import WriteOptions, parse_write_options
from segmentlog.connector.options.write_table import SINK
from segmentlog.store import ConfigError, Flush, StoreConfig
from segmentlog.store.sink import SyncReplication
from support.options import without_effect


def parse(mode: Mode = Mode.BATCH, **given: str) -> WriteOptions:
    return parse_write_options({"path": "/data/store"} | given, mode)


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


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "TBW102", "rmq_sys_x", "%RETRY%g", "%DLQ%g"])
def test_system_topics_are_refused_unless_they_are_allowed(topic: str) -> None:
    with pytest.raises(ConfigError, match=f"option `topic` is the system topic `{topic}`.*allowSystemTopics=true"):
        parse(topic=topic)
    assert parse(topic=topic, allowSystemTopics="true").topic == topic


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_no_path(mode: Mode) -> None:
    with pytest.raises(MissingOptionError, match=r"no store is named.*save\('/data/store'\).*INSERT INTO"):
        parse_write_options({"topic": "t"}, mode)


def test_unknown_options_are_left_out_on_request() -> None:
    with pytest.raises(UnknownOptionError, match=r"`exactlyonc`.*Did you mean `exactlyOnce` for `exactlyonc`"):
        parse(exactlyonc="true")
    assert parse(nonsense="1", strictOptions="false", checkpointlocation="/cp") == parse()


@pytest.mark.parametrize(
    ("mode", "given", "error", "text"),
    [
        (Mode.BATCH, {"txnAppId": "a"}, MissingOptionError, "`txnAppId` is there without `txnVersion`"),
        (Mode.BATCH, {"txnVersion": "1"}, MissingOptionError, "`txnVersion` is there without `txnAppId`"),
        (Mode.STREAM, {"txnVersion": "1"}, ConflictingOptionsError, "no meaning in a stream"),
        (Mode.STREAM, {"txnAppId": "a", "exactlyOnce": "false"}, ConflictingOptionsError, "and `exactlyOnce=false`"),
        (
            Mode.BATCH,
            {"mappedFileSizeCommitLog": "10"},
            ConfigError,
            "`mappedFileSizeCommitLog` is 10. Use 1024 or more",
        ),
        (Mode.BATCH, {"maxIndexNum": "1"}, ConfigError, "`maxIndexNum` is 1. Use 2 or more"),
        (Mode.BATCH, {"txnAppId": "a", "txnVersion": str((1 << 62) + 1)}, ConfigError, "`txnVersion` is `4611686018"),
        (Mode.BATCH, {"flush": "async"}, ConflictingOptionsError, "`flush=async` conflicts with `exactlyOnce=true`"),
        (Mode.STREAM, {"flush": "async"}, ConflictingOptionsError, "an exactly-once batch is fsynced"),
        (Mode.BATCH, {"path": "hdfs://x/y"}, ConfigError, "a store is written in a directory"),
    ],
)
def test_conflicting_and_invalid_options_are_refused(
    mode: Mode, given: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(")):
        parse(mode, **given)


def test_flush_and_replication() -> None:
    assert parse(exactlyOnce="false", flush="async").config.flush is Flush.ASYNC
    assert parse(exactlyOnce="false").config.flush is parse().config.flush is Flush.SYNC
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


def test_every_option_has_a_value_that_changes_the_parsed_options() -> None:
    texts = ("true", "false", "3", "60", "3s", "3m", "skip", "sync", "roundrobin", "10.0.0.1:1")
    without = without_effect(parse, SINK, texts)
    assert without == {"txnAppId", "txnVersion", "flush", "strictOptions", "replicationTimeout", "inSyncReplicas"}
