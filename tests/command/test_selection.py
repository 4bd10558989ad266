from pathlib import Path

import pytest

from segmentlog.command.parser import Parser
from segmentlog.command.selection import MESSAGE_COLUMNS, Selection, add_selection
from segmentlog.query.body_search import JsonEquals
from segmentlog.query.position import At, Earliest, Last, Latest
from segmentlog.store import NATIVE_SCHEMA, OffsetOutOfRangeError, QueueKey


def selection(store: Path, *arguments: str) -> Selection:
    parser = Parser("cat", "messages")
    add_selection(parser)
    return Selection(parser.parse([str(store), *arguments]), ("queueId", "queueOffset"))


def test_queues_and_positions(store: Path) -> None:
    found = selection(store, "orders", "-p", "1,3")
    assert sorted(found.queues) == [QueueKey("orders", 1), QueueKey("orders", 3)]
    assert found.scan(Earliest(), Latest()).count() == 200
    assert found.scan(Last(5), Latest()).count() == 10
    assert found.scan(At(90), At(95)).to_arrow().column_names == ["queueId", "queueOffset"]


def test_a_start_after_the_end_of_a_queue_reads_nothing_of_it(store: Path) -> None:
    assert selection(store, "orders", "%RETRY%etl").scan(At(99), Latest()).count() == 4
    assert selection(store, "orders").scan(At(50), Last(60)).count() == 0
    with pytest.raises(OffsetOutOfRangeError, match="--from: offset 101 is after the end of all queues"):
        selection(store, "orders").scan(At(101), Latest())


def test_filters_and_columns(store: Path) -> None:
    found = selection(
        store, "orders", "--tag", "paid", "--sql", "KEYS = 'key-2'", "--columns", "keys", "--properties", "TAGS"
    )
    assert found.scan(Earliest(), Latest()).to_arrow().to_pylist() == [{"keys": "key-2", "TAGS": "paid"}]
    assert selection(store, "orders").spec.predicate.filter is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("o-17", ("o-17",)),
        ("17", ("17", 17)),
        ("null", ("null", None)),
        ("NaN", ("NaN",)),
        ("[1]", ("[1]",)),
        ('"x"', ('"x"',)),
    ],
)
def test_a_value_is_a_text_and_maybe_a_number_bool_or_null_of_json(
    store: Path, text: str, values: tuple[object, ...]
) -> None:
    (found,) = selection(store, "orders", "--json-path", "$.a", "--equals", text).spec.predicate.bodies
    assert found == JsonEquals(("a",), values)  # type: ignore[arg-type]


def test_the_columns_of_a_complete_message_exist() -> None:
    assert set(MESSAGE_COLUMNS) <= set(NATIVE_SCHEMA.names)
