import json
import pickle
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.body_search import body_filters, parse_json_path
from segmentlog.store import ConfigError
from segmentlog.store.read.matching import Matcher
from segmentlog.store.read.spec import Predicate


def search(bodies: list[bytes | None], **conditions: Any) -> list[int]:
    filters = pickle.loads(pickle.dumps(body_filters(**conditions)))
    assert filters == body_filters(**conditions)
    # Not from the start of its buffers, as batches of a scan may be.
    values = pa.array([b"front", *bodies], pa.binary()).slice(1)
    return [row for row, match in enumerate(Matcher(Predicate(bodies=filters)).by_bodies(values)) if match]


BODIES = [b"order o-17", b"", None, b"\xff\xfe o-17 \xff", "größe ÄÖ".encode(), b"a\0b", b"O-17\nlast line"]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"contains": "o-17"}, [0, 3]),
        ({"contains": "o-17", "ignore_case": True}, [0, 3, 6]),
        ({"contains": "äö", "ignore_case": True}, [4]),
        ({"contains": "GRÖSSE", "ignore_case": True}, []),
        ({"contains": "."}, []),
        ({"contains": "a\0b"}, [5]),
        ({"contains": b"\xff"}, [3]),
        ({"contains": b"\xfe o"}, [3]),
        ({"contains": "ÿ"}, []),
        ({"regex": "o-[0-9]+$"}, [0]),
        ({"regex": "(?i)^O-[0-9]+"}, [6]),
        ({"regex": "17.last"}, []),
        ({"regex": "(?s)17.last"}, [6]),
        ({"regex": "gr.{2}e"}, [4]),
        ({"regex": rb"gr.{4}e"}, [4]),
        ({"regex": rb"\xff$"}, [3]),
        ({"regex": r"\x00"}, [5]),
        ({"regex": ""}, [0, 1, 3, 4, 5, 6]),
        ({"contains": "o-17", "regex": "^order"}, [0]),
        ({"contains": "o-17", "regex": "^x"}, []),
    ],
)
def test_bodies_are_searched_as_bytes(conditions: dict[str, Any], expected: list[int]) -> None:
    assert search(BODIES, **conditions) == expected


def test_a_batch_without_bodies_has_no_match() -> None:
    assert search([], contains="x") == search([None], json_path="$", equals=1) == []


@given(st.lists(st.binary(max_size=20)), st.binary(min_size=1, max_size=3))
def test_a_search_for_bytes_equals_that_of_python(bodies: list[bytes], part: bytes) -> None:
    assert search([*bodies], contains=part) == [row for row, body in enumerate(bodies) if part in body]


JSONS = [
    b'{"id":"o-17"}',
    b' { "id" :\n\t"o-17" , "more": [1] } ',
    rb'{"id":"o\u002d17"}',
    rb'{"\u0069d":"o-17"}',
    b'{"id":17}',
    b'{"id": 17.0}',
    b'{"id": 1.7e1}',
    b'{"id": 170E-1}',
    b'{"id":"17"}',
    b'{"id":true}',
    b'{"id":null}',
    b'{"id":"a/b"}',
    rb'{"id":"a\/b"}',
    rb'{"id":"a\"b"}',
    b'{"id":1, "id":"o-17"}',
    b'{"id":"o-17", "id":1}',
    b'{"id":"o-17"} more',
    b'{"id":"o-17\xff"}',
    b'{"id":"o-17", "bad":"\xff"}',
    b'{"id":"o-17", "x":NaN}',
    b"",
    b"[" * 100_000,
    b'{"id":-0}',
    b'{"id":1}',
    b'["id", "o-17"]',
    b'{"id":123456789012345678901234567890}',
    '{"id":"o-17"}'.encode("utf-16"),
]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("o-17", [0, 1, 2, 3, 14]),
        (17, [4, 5, 6, 7]),
        (17.0, [4, 5, 6, 7]),
        ("17", [8]),
        (("17", 17), [4, 5, 6, 7, 8]),
        (True, [9]),
        (1, [15, 23]),
        (None, [10]),
        ("a/b", [11, 12]),
        ('a"b', [13]),
        (0, [22]),
        (123456789012345678901234567890, [25]),
        (1.5, []),
    ],
)
def test_values_of_json_are_compared_however_they_are_written(value: Any, expected: list[int]) -> None:
    assert search([*JSONS], json_path="$.id", equals=value) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [("$.a.b[1].c", [0]), ("$['a']['b'][1][\"c\"]", [0]), ("$.a.b[0]", [1]), ("$", [2]), ("$[0]", [3]), ("$.a[0]", [])],
)
def test_paths_of_json(path: str, expected: list[int]) -> None:
    bodies = [b'{"a":{"b":[0,{"c":7}]}}', b'{"a":{"b":[7]}}', b"7", b"[7]", b'{"a":{"b":{"c":7}}}', b'{"a":7}']
    assert search([*bodies], json_path=path, equals=7) == expected


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)


@given(st.data(), st.text(max_size=4), scalars, st.booleans())
def test_the_search_before_json_is_parsed_loses_no_match(
    data: st.DataObject, key: str, value: Any, only_ascii: bool
) -> None:
    document = data.draw(st.dictionaries(st.text(max_size=4), scalars)) | {key: value}
    body = json.dumps(document, ensure_ascii=only_ascii).encode("utf-8", "surrogatepass")
    if data.draw(st.booleans()):
        body = body.replace(b"/", rb"\/")
    filters = body_filters(json_path="$", equals=value)
    path = ("outer", key)
    found = type(filters[0])(path, (value,)).matches(pa.array([b'{"outer":' + body + b"}"], pa.binary()))  # type: ignore[call-arg]
    is_utf8 = not re.search(b"\xed[\xa0-\xbf]", body)
    assert found.to_pylist() == [is_utf8]


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ({"contains": ""}, "contains is empty"),
        ({"contains": 5}, "contains=5 is not a text"),
        ({"contains": "\udcff"}, "is not a text that UTF-8 can encode"),
        ({"contains": b"x", "ignore_case": True}, "ignore_case needs a text, and contains is bytes"),
        ({"ignore_case": True}, "ignore_case has nothing to compare"),
        ({"regex": "ab[c"}, "regex='ab[c' is not a regular expression: missing ] at character 3: `[c`"),
        ({"regex": "a(?=b)"}, "invalid perl operator at character 2: `(?=`"),
        ({"regex": b"\xff("}, "is not a regular expression: missing )"),
        ({"json_path": "$.a"}, "json_path needs equals"),
        ({"equals": None}, "equals needs json_path"),
        ({"json_path": "a.b", "equals": 1}, "json_path='a.b': it does not begin with `$`"),
        ({"json_path": "$.a[x]", "equals": 1}, "'[x]' at character 4 is not a step"),
        ({"json_path": "$.a.", "equals": 1}, "'.' at character 4 is not a step"),
        ({"json_path": "$.a[-1]", "equals": 1}, "'[-1]' at character 4 is not a step"),
        ({"json_path": "$", "equals": "\udcff"}, "equals='\\udcff' is not a text that UTF-8 can encode"),
        ({"json_path": b"$", "equals": 1}, "json_path=b'$': it does not begin with `$`"),
        ({"json_path": "$", "equals": [1]}, "equals=[1] is not a text, number, bool or None of JSON"),
        ({"json_path": "$", "equals": float("nan")}, "equals=nan is not a text, number"),
    ],
)
def test_wrong_conditions(conditions: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        body_filters(**conditions)
    assert caught.value.fix


def test_errors_have_the_names_of_the_door() -> None:
    with pytest.raises(ConfigError, match=re.escape("--json-path needs --equals")):
        body_filters(json_path="$.a", named=lambda name: f"--{name.replace('_', '-')}")


def test_conditions_are_optional() -> None:
    assert body_filters() == ()
    assert parse_json_path("$.a-b['c.d'][3].größe") == ("a-b", "c.d", 3, "größe")
