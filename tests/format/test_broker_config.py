import gzip
from pathlib import Path

import pytest

from segmentlog.store.errors import FormatError
from segmentlog.store.format.broker_config import (
    ClientQueue,
    GroupConfig,
    Permission,
    TopicConfig,
    client_offsets,
    consumer_offsets,
    delay_offsets,
    subscription_groups,
    topic_configs,
)
from segmentlog.store.format.documents import parse
from support import fixtures

READERS = [topic_configs, subscription_groups, consumer_offsets, delay_offsets, client_offsets]


@pytest.mark.parametrize("reader", READERS)
def test_a_store_without_the_document_has_none_of_it(reader: object) -> None:
    assert callable(reader)
    assert reader({}) == {}


def test_topics_of_rocketmq_5() -> None:
    document = parse(
        """{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{
        "OrderTopic":{"attributes":{"queue.type":"SimpleCQ","cleanup.policy":"DELETE"},"order":true,"perm":4,"readQueueNums":8,
        "topicFilterType":"MULTI_TAG","topicName":"OrderTopic","topicSysFlag":1,"writeQueueNums":4,"later":{"x":1}}}}"""
    )
    assert topic_configs(document) == {
        "OrderTopic": TopicConfig(
            topic="OrderTopic",
            read_queues=8,
            write_queues=4,
            permission=Permission.READ,
            is_ordered=True,
            filter_type="MULTI_TAG",
            sys_flag=1,
            attributes=(("cleanup.policy", "DELETE"), ("queue.type", "SimpleCQ")),
        )
    }


def test_topics_of_rocketmq_4_and_what_is_missing() -> None:
    document = parse('{"topicConfigTable":{"T":{"order":false,"perm":6,"topicName":"T"},"U":{}}}')
    assert topic_configs(document) == {"T": TopicConfig(topic="T"), "U": TopicConfig(topic="U")}
    assert topic_configs(document)["T"].permission == Permission.READ | Permission.WRITE


def test_groups() -> None:
    document = parse(
        """{"forbiddenTable":{},"subscriptionGroupTable":{"groupA":{"brokerId":0,"consumeBroadcastEnable":false,
        "consumeEnable":false,"groupName":"groupA","groupRetryPolicy":{"type":"CUSTOMIZED"},"retryMaxTimes":3,
        "retryQueueNums":2},"groupB":{}}}"""
    )
    assert subscription_groups(document) == {
        "groupA": GroupConfig(group="groupA", can_consume=False, can_broadcast=False, retry_queues=2, retry_max=3),
        "groupB": GroupConfig(group="groupB"),
    }


@pytest.mark.parametrize("queues", ["{0:12,1:30\n\t\t}", '{"0":12,"1":30}', '{"0":"12",1:30}'])
def test_consumer_offsets_with_and_without_quotes(queues: str) -> None:
    document = parse('{"offsetTable":{"OrderTopic@groupA":' + queues + ',"%RETRY%g@g@h":{},"no group":{0:1}}}')
    assert consumer_offsets(document) == {("OrderTopic", "groupA"): {0: 12, 1: 30}, ("%RETRY%g", "g@h"): {}}


def test_client_offsets() -> None:
    document = parse('{"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T"}:7,{"topic":"T","brokerName":"b"}:0}}')
    assert client_offsets(document) == {ClientQueue("T", "a", 3): 7, ClientQueue("T", "b", 0): 0}


@pytest.mark.conformance
def test_delay_offsets_that_a_broker_wrote(tmp_path: Path) -> None:
    """The messages of each level that were delivered again are at least those up to the offset it kept."""
    store = fixtures.unpack("delay-4.9.1", tmp_path)
    text = (store / "config" / "delayOffset.json").read_text()
    offsets = delay_offsets(parse(text))
    queues = {
        q["queueId"]: q["maxOffset"] for q in fixtures.expected("delay-4.9.1").queues if q["topic"].startswith("SCHED")
    }
    assert offsets
    assert all(0 <= offset <= queues[level - 1] for level, offset in offsets.items())
    with gzip.open(fixtures.FOLDER / "delay-4.9.1" / "plan-1.json.gz") as plan:
        assert b"delayLevel" in plan.read()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"offsetTable":[]}', r"offsetTable is \[\] where an object was expected"),
        ('{"offsetTable":{"T@g":7}}', "'T@g' holds 7 where queues and their offsets"),
        ('{"offsetTable":{"T@g":{"x":7}}}', "a key of 'T@g' is 'x' where an integer"),
        ('{"offsetTable":{"T@g":{0:1.5}}}', "0 of 'T@g' is 1.5 where an integer"),
        ('{"offsetTable":{"T@g":{0:true}}}', "is True where an integer"),
        ('{"offsetTable":{"T@g":{0:null}}}', "is None where an integer"),
        ('{"offsetTable":{"T@g":{"' + "9" * 5000 + '":1}}}', "where an integer"),
    ],
)
def test_offsets_of_another_type_are_refused(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        consumer_offsets(parse(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"topicConfigTable":{"T":1}}', "'T' holds 1 where an object"),
        ('{"topicConfigTable":{"T":{"perm":"rw"}}}', "perm of 'T' is 'rw' where an integer"),
        ('{"topicConfigTable":{"T":{"order":1}}}', "order of 'T' is 1, it can be true or false"),
        ('{"topicConfigTable":{"T":{"topicFilterType":1}}}', "topicFilterType of 'T' is 1 where text"),
        ('{"topicConfigTable":{"T":{"attributes":1}}}', "attributes is 1 where an object"),
    ],
)
def test_topics_of_another_type_are_refused(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        topic_configs(parse(text))


def test_a_key_that_is_no_queue_is_refused() -> None:
    with pytest.raises(FormatError, match="'T' where a queue was expected"):
        client_offsets(parse('{"offsetTable":{"T":1}}'))
