import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.errors import CheckpointError
from segmentlog.connector.stream.offsets import LastRead, StoreOffset, StreamOffset, TopicOffset
from segmentlog.store import QueueKey
from segmentlog.store.follow import MessageIdentity

NUMBERS = st.integers(0, (1 << 63) - 1)
QUEUES = st.dictionaries(st.integers(0, (1 << 31) - 1), NUMBERS, max_size=15)
TOPICS = st.builds(
    TopicOffset,
    queues=QUEUES,
    begins=QUEUES,
    last=st.none() | st.builds(LastRead, st.integers(0, 99), NUMBERS, st.builds(MessageIdentity, NUMBERS, NUMBERS)),
    lost=NUMBERS,
)
NAMES = st.text(min_size=1, max_size=8)
STORES = st.builds(
    StoreOffset, id=st.none() | NAMES, topics=st.dictionaries(NAMES, TOPICS, max_size=3), has_gap=st.booleans()
)
OFFSETS = st.builds(StreamOffset, st.dictionaries(NAMES, STORES, max_size=3))


@given(OFFSETS)
def test_there_and_back(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(offset.to_json()) == offset


@given(OFFSETS, st.randoms(use_true_random=False))
def test_the_same_offset_is_the_same_text_however_it_came_about(offset: StreamOffset, random: object) -> None:
    def shuffled(value: object) -> object:
        if not isinstance(value, dict):
            return value
        items = list(value.items())
        random.shuffle(items)
        return {key: shuffled(each) for key, each in items}

    again = StreamOffset.from_dict(shuffled(json.loads(offset.to_json())))
    # Spark's Python side writes the dictionary as it comes.
    assert json.dumps(again.to_dict()) == offset.to_json() == json.dumps(offset.to_dict())


def test_an_offset_is_written_as_sorted_json_and_has_all_positions() -> None:
    topic = TopicOffset(
        queues={10: 7, 2: 40}, begins={2: 12}, last=LastRead(2, 39, MessageIdentity(81920, 1767225600000)), lost=3
    )
    offset = StreamOffset({"broker-a": StoreOffset(id="3f", topics={"orders": topic})})
    assert offset.to_json() == (
        '{"stores": {"broker-a": {"id": "3f", "topics": {"orders": {"begins": {"2": 12}, '
        '"last": [2, 39, 81920, 1767225600000], "lost": 3, "queues": {"10": 7, "2": 40}}}}}, "version": 1}'
    )
    assert offset.positions() == {("broker-a", QueueKey("orders", 10)): 7, ("broker-a", QueueKey("orders", 2)): 40}


def test_ten_thousand_queues_stay_small() -> None:
    topic = TopicOffset(queues=dict.fromkeys(range(10_000), 123_456), last=LastRead(1, 2, MessageIdentity(3, 4)))
    assert len(StreamOffset({"b": StoreOffset(topics={"t": topic})}).to_json()) < 170_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[" * 100_000,
        "[]",
        "null",
        "{}",
        '{"orders": {"0": 23}}',
        '{"stores": [], "version": 1}',
        '{"stores": {"b": {}}, "version": 1}',
        '{"stores": {"b": {"id": 7, "topics": {}}}, "version": 1}',
        '{"stores": {"b": {"topics": {"t": {"queues": {"0": 1.0}}}}}, "version": 1}',
        '{"stores": {"b": {"topics": {"t": {"queues": {"0": -1}}}}}, "version": 1}',
        '{"stores": {"b": {"topics": {"t": {"queues": {"0": true}}}}}, "version": 1}',
        '{"stores": {"b": {"topics": {"t": {"queues": {"x": 1}}}}}, "version": 1}',
        '{"stores": {"b": {"topics": {"t": {"queues": {}, "last": [1, 2]}}}}, "version": 1}',
    ],
)
def test_offsets_that_the_source_cannot_have_written_are_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match="an offset that this source cannot have written"):
        StreamOffset.from_json(text)


def test_an_offset_of_another_version() -> None:
    with pytest.raises(CheckpointError, match=r"an offset of version 2, this release reads version 1.*begin a new"):
        StreamOffset.from_json('{"stores": {}, "version": 2}')
