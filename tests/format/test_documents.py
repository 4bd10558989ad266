import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format.documents import (
    DEPTH_MAX,
    Document,
    Origin,
    _parse_plain,
    _parse_wide,
    load,
    parse,
    render,
)

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | strings
)
object_keys = st.dictionaries(strings, scalars, max_size=3).map(lambda fields: tuple(fields.items()))
OFFSETS = '{\n\t"groupTopicMap":{"groupA":["OrderTopic"]},\n\t"offsetTable":{\n\t\t"O@g":{0:12,1:30\n\t\t}\n\t}\n}'
CLIENT_OFFSETS = '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0\n\t\t}:7\n\t}\n}'
# No int beside a str of the same digits: the writer then leaves one bare, which reads back as it was.
keys = strings | st.integers(-(2**63), 2**63 - 1) | object_keys
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)
documents = st.dictionaries(keys, values, max_size=5)


def read_back(value: Any) -> Any:
    """Return a value as it is read after being written: integer keys get quotes, unless their digits are a str, too."""
    if isinstance(value, list):
        return [read_back(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        str(key) if isinstance(key, int) and str(key) not in value else key: read_back(item)
        for key, item in value.items()
    }


@given(documents)
def test_documents_round_trip(document: Document) -> None:
    text = render(document)
    assert parse(text) == read_back(document)
    assert render(parse(text)) == text


def assert_place(error: FormatError, text: str) -> None:
    """See that an error tells line and column of its offset."""
    assert error.offset is not None
    before = text[: error.offset]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert error.problem.endswith(f"at line {line}, column {column}")


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("{}", {}),
        (" \t\r\n{ } \n", {}),
        ("{,,}", {}),
        ('{"a":1,}', {"a": 1}),
        ('{,"a":[,1,,2,]}', {"a": [1, 2]}),
        ("{a:1,b_2:'x\"y'}", {"a": 1, "b_2": 'x"y'}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{5:1,"5":2}', {5: 1, "5": 2}),
        ("{-5:-1}", {-5: -1}),
        ('{"a":1.5,"b":-2e3,"c":true,"d":false,"e":null}', {"a": 1.5, "b": -2000.0, "c": True, "d": False, "e": None}),
        (r'{"a":"\u00fc\t\\\"\/\x41\0"}', {"a": 'ü\t\\"/A\0'}),
        (r'{"a":"\ud83d\ude00"}', {"a": "\U0001f600"}),
        (r'{"a":"\ud83d!"}', {"a": "\ufffd!"}),
        ('{"a":"line\nbreak"}', {"a": "line\nbreak"}),
        ('{/* why */"a"://1\n2/***/}', {"a": 2}),
        ("{true:1,null:2}", {"true": 1, "null": 2}),
        ("{{}:1}", {(): 1}),
        (OFFSETS, {"groupTopicMap": {"groupA": ["OrderTopic"]}, "offsetTable": {"O@g": {0: 12, 1: 30}}}),
        (CLIENT_OFFSETS, {"offsetTable": {(("brokerName", "broker-a"), ("queueId", 0)): 7}}),
    ],
)
def test_texts_that_fastjson_accepts_are_parsed(text: str, document: dict[Any, Any]) -> None:
    assert parse(text) == document
    assert parse(render(parse(text))) == read_back(document)


@pytest.mark.parametrize(
    ("text", "says", "at"),
    [
        ("", "the end of the text instead of an object", 0),
        ("[]", "'[' instead of an object", 0),
        ("{", "the end of the text instead of a key", 1),
        ('{"a"', "the end of the text instead of a colon", 4),
        ('{"a" 1}', "'1' instead of a colon", 5),
        ('{"a":}', "'}' instead of a value", 5),
        ('{"a":1 "b":2}', "instead of a comma or '}'", 7),
        ('{"a":[1 2]}', "'2' instead of a comma or ']'", 8),
        ('{"a":[1}', "instead of a comma or ']'", 7),
        ('{"a":1}}', "'}' instead of the end of the text", 7),
        ('{"a":1}\0', "instead of the end of the text", 7),
        ('{\n  "a":"x}', "a string that never ends at line 2, column 7", 8),
        ('{"a":"\\q"}', "unknown escape", 9),
        ('{"a":"\\u12"}', "unknown escape", 11),
        ('{"a":nul}', "the unknown word 'nul'", 8),
        ('{"a":NaN}', "the unknown word 'NaN'", 8),
        ('{"a":1e999}', "too large", 10),
        ('{"a":' + "1" * 65 + "}", "a number of 65 characters", 70),
        ("{1.5:2}", "instead of a key", 4),
        ("{{a:[]}:1}", "holds more than plain fields", 7),
        ("{{a:1},b:2}", "',' instead of a colon", 6),
        ('{"a":1/* never closed', "instead of a comma", 6),
        ('\ufeff{"a":1}', "instead of an object", 0),
    ],
)
def test_bad_text_is_refused_where_it_goes_wrong(text: str, says: str, at: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert caught.value.offset == at
    assert_place(caught.value, text)


@given(
    st.text(alphabet="{}[]:,\"'\\ \n/*-0aeu19.\ud800")
    | st.text()
    | st.builds(
        lambda inserted, at, cut: OFFSETS[:at] + inserted + OFFSETS[at + cut :],
        st.text(),
        st.integers(0, len(OFFSETS) - 1),
        st.integers(0, 10),
    )
)
def test_any_text_is_a_document_or_a_format_error(text: str) -> None:
    try:
        document = parse(text)
    except FormatError as error:
        document = {}
        assert_place(error, text)
    render(document).encode()


@pytest.mark.attack
@pytest.mark.parametrize(
    ("front", "again"),
    [
        *(("", again) for again in ("{", '{"a":')),
        *(("{", again) for again in (",", " ", "/**/", "a")),
        *(('{"a":', again) for again in "[9"),
        *(("{/*", "*"), ('{"', "\\\\"), ('{"a":"', "\\"), ("{'", "\\'"), ('{"a":0.', "9")),
    ],
)
def test_hostile_text_is_refused_in_one_pass(front: str, again: str) -> None:
    # Two million characters: anything worse than linear would run into the suite's time limit.
    with pytest.raises(FormatError):
        parse(front + again * 10**6)


@given(documents)
def test_plain_json_is_read_alike_by_the_quick_and_the_thorough_parser(document: Document) -> None:
    text = json.dumps(read_back(document), skipkeys=True, ensure_ascii=False)
    assert _parse_plain(text) == _parse_wide(text)


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":' + value + "}" for value in ("NaN", "Infinity", "-Infinity", "1e999", "1" * 65, "0." + "1" * 65)),
        *('{"a":"\\ud800"}', '{"\\uDC00":1}', '{"a":1}{', "[1]", "0"),
        '{"a":' * DEPTH_MAX + "{}" + "}" * DEPTH_MAX,
        '{"a":' + "[" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_the_plain_parser_declines_texts_that_it_would_read_differently(text: str) -> None:
    assert _parse_plain(text) is None


def test_many_topics_are_read_at_once() -> None:
    entry = '"Topic%06d":{"order":false,"perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}'
    text = '{"topicConfigTable":{' + ",\n".join(entry % number for number in range(5_000)) + "}}"
    plain = _parse_plain(text)
    assert plain is not None, "the thorough parser takes several times as long"
    assert parse(text) == plain
    table = plain["topicConfigTable"]
    assert isinstance(table, dict)
    assert len(table) == 5_000


def test_nesting_ends_where_it_is_said_to() -> None:
    deepest = '{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX
    assert render(parse(deepest)).count("{") == DEPTH_MAX
    with pytest.raises(FormatError, match="nesting of more than 64"):
        parse('{"a":' + deepest + "}")
    deep: Document = {}
    for _ in range(1000):
        deep = {"a": deep}
    with pytest.raises(FormatError, match="nested more than"):
        render(deep)


def test_a_document_is_written_as_fastjson_writes_it() -> None:
    document: Document = {"b": {2: 7, 10: 8}, "a": [], "c": {}, "d": ["x", {"y": None}], "e": 'q"ü\n'}
    assert render(document) == (
        '{\n\t"a":[],\n\t"b":{\n\t\t"2":7,\n\t\t"10":8\n\t},\n\t"c":{},\n\t"d":[\n\t\t"x",\n\t\t{\n\t\t\t"y":null\n\t\t}\n\t],'
        '\n\t"e":"q\\"ü\\n"\n}'
    )
    for value in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(FormatError, match="cannot be written"):
            render({"a": value})


@pytest.mark.parametrize(
    ("file", "backup", "value", "origin"),
    [
        (b'{"a":1}', b'{"a":2}', {"a": 1}, Origin.FILE),
        *((file, b'{"a":2}', {"a": 2}, Origin.BACKUP) for file in (None, b"", b'{"a":', b"\0" * 40)),
        (b'{"a":1}', b"damaged", {"a": 1}, Origin.FILE),
        (None, None, {}, Origin.NOTHING),
        (b"", b"", {}, Origin.NOTHING),
        (b'{"a":"\xff"}', None, {"a": "\ufffd"}, Origin.FILE),
        *((*damaged, None, None) for damaged in ((b"{", None), (b"{", b""), (None, b"{"), (b"{", b"[]"))),
    ],
)
def test_the_backup_counts_where_the_file_does_not_and_damage_is_not_an_empty_document(
    file: bytes | None, backup: bytes | None, value: Document | None, origin: Origin | None
) -> None:
    if value is not None:
        assert load(file, backup) == (value, origin)
        return
    with pytest.raises(FormatError, match="instead of a key"):
        load(file, backup)
