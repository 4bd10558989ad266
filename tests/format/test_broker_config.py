import pytest

from segmentlog.store.errors import FormatError
from segmentlog.store.format.broker_config import ClientQueue, client_offsets, consumer_offsets, parse_properties
from segmentlog.store.format.documents import parse


@pytest.mark.parametrize("queues", ["{0:12,1:30\n\t\t}", '{"0":12,"1":30}', '{"0":"12",1:30}'])
def test_offsets_of_consumers_and_clients(queues: str) -> None:
    document = parse('{"offsetTable":{"OrderTopic@groupA":' + queues + ',"%RETRY%g@g@h":{},"no group":{0:1}}}')
    assert consumer_offsets(document) == {("OrderTopic", "groupA"): {0: 12, 1: 30}, ("%RETRY%g", "g@h"): {}}
    document = parse('{"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T"}:7,{"topic":"T","brokerName":"b"}:0}}')
    assert client_offsets(document) == {ClientQueue("T", "a", 3): 7, ClientQueue("T", "b", 0): 0}
    assert consumer_offsets({}) == client_offsets({}) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"offsetTable":[]}', r"offsetTable is \[\] where an object was expected"),
        ('{"offsetTable":{"T@g":7}}', "'T@g' holds 7 where queues and their offsets"),
        ('{"offsetTable":{"T@g":{"x":7}}}', "a key of 'T@g' is 'x' where an integer"),
        ('{"offsetTable":{"T@g":{0:1.5}}}', "0 of 'T@g' is 1.5 where an integer"),
        ('{"offsetTable":{"T@g":{0:true}}}', "is True where an integer"),
        ('{"offsetTable":{"T@g":{0:null}}}', "is None where an integer"),
        ('{"offsetTable":{"T@g":{99999999999:1}}}', "'T@g' has offset 1 for queue 99999999999"),
        ('{"offsetTable":{"T@g":{"-1":1}}}', "'T@g' has offset 1 for queue -1"),
        ('{"offsetTable":{"T@g":{0:9223372036854775808}}}', "offsets up to 9223372036854775807"),
        ('{"offsetTable":{"T@g":{"' + "9" * 5000 + '":1}}}', "where an integer"),
    ],
)
def test_offsets_of_another_type_are_refused(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        consumer_offsets(parse(text))


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ('"T"', "'T' where a queue was expected"),
        ('{"topic":1}', "topic of 'offsetTable' is 1 where text"),
        ('{"topic":"T","queueId":"x"}', "queueId of 'offsetTable' is 'x' where an integer"),
        ('{"topic":"T","queueId":2147483648}', "'T' has offset 1 for queue 2147483648"),
    ],
)
def test_queues_of_another_type_are_refused(key: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        client_offsets(parse('{"offsetTable":{' + key + ":1}}"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1\nb: 2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1 \nb= 2\t", {"a": "1 ", "b": "2\t"}),
        ("a=/data/\\\n    store\nb=2", {"a": "/data/store", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\\", {"a": "1"}),
        (r"a\=b\ c=\u00e9\t\q", {"a=b c": "é\tq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==b=c", {"a": "=b=c"}),
        ("deleteWhen=03;04", {"deleteWhen": "03;04"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected
    with pytest.raises(FormatError, match="four hexadecimal digits"):
        parse_properties(r"a=\u12")
