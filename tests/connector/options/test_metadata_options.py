import pytest

from segmentlog.connector.errors import ConflictingOptionsError
from segmentlog.connector.options.metadata_options import METADATA, parse_metadata_options, wants_metadata
from segmentlog.connector.options.read_table import SOURCE, MetadataKind
from segmentlog.query.selection import TopicPattern, Topics
from segmentlog.store import ConfigError

LEAST = {"path": "/data/store", "metadata": "lag"}


def test_every_frame_takes_options_of_the_source() -> None:
    assert set(METADATA) == set(MetadataKind)
    for table in METADATA.values():
        assert set(table) <= set(SOURCE)


def test_all_topics_are_meant_without_a_topic() -> None:
    assert parse_metadata_options(LEAST).read.topics == TopicPattern(".*")
    assert parse_metadata_options(LEAST | {"topic": "a"}).read.topics == Topics(("a",))


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        *(("lag", "startingOffsets"), ("lag", "tags"), ("topics", "consumerGroup"), ("topics", "startingOffsets")),
        *(("segments", "subscribe"), ("segments", "consumerGroup"), ("queues", "assign"), ("groups", "schemaMode")),
    ],
)
def test_an_option_without_a_meaning_is_refused(kind: str, option: str) -> None:
    text = f"option `{option}` has no meaning with `metadata={kind}`"
    with pytest.raises(ConflictingOptionsError, match=text):
        parse_metadata_options(LEAST | {"metadata": kind, option: "x"})


def test_the_kind_that_was_meant_is_named() -> None:
    with pytest.raises(ConfigError, match="`queues`, if that was meant"):
        parse_metadata_options(LEAST | {"metadata": "queue"})


def test_metadata_is_asked_for_by_one_option() -> None:
    assert wants_metadata({"Metadata": "lag"})
    assert not wants_metadata({"path": "/data/store"})
