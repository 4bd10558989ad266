import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode, encode
from support import fixtures

i64 = st.integers(-(2**63), 2**63 - 1)
names = ("physic_timestamp", "logics_timestamp", "index_timestamp", "master_flushed_offset", "confirm_offset")
rests = st.binary(max_size=CHECKPOINT_BYTES - 40).map(lambda rest: rest.rstrip(b"\0"))
checkpoints = st.builds(Checkpoint, **dict.fromkeys(names, i64), rest=rests)


@given(checkpoints)
def test_checkpoints_round_trip(checkpoint: Checkpoint) -> None:
    data = encode(checkpoint)
    assert len(data) == CHECKPOINT_BYTES
    assert decode(data) == checkpoint


@given(st.binary(max_size=CHECKPOINT_BYTES + 100))
def test_any_bytes_decode_as_a_checkpoint_and_encode_unchanged(data: bytes) -> None:
    assert encode(decode(data)) == data[:CHECKPOINT_BYTES].ljust(CHECKPOINT_BYTES, b"\0")


@pytest.mark.conformance
@pytest.mark.scaled(quick=8)
@pytest.mark.parametrize("name", fixtures.names())
def test_rocketmq_reads_the_same(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = (fixtures.unpack(name, tmp_path_factory.mktemp("store")) / "checkpoint").read_bytes()
    ours, theirs = decode(data), fixtures.expected(name).checkpoint
    assert ours.physic_timestamp == theirs["physicMsgTimestamp"]
    assert ours.logics_timestamp == theirs["logicsMsgTimestamp"]
    assert ours.index_timestamp == theirs["indexMsgTimestamp"]
    assert ours.min_timestamp == theirs["minTimestamp"]
    assert encode(ours) == data


def test_recovery_begins_three_seconds_before() -> None:
    for times, least in (((0, 0, 0), 0), ((2999, 9000, 1), 0), ((9000, 8000, 7000), 5000), ((9000, 8000, 100), 5000)):
        assert Checkpoint(**dict(zip(names, times, strict=False))).min_timestamp == least


def test_more_than_a_field_or_a_file_holds_is_refused() -> None:
    for bad in (Checkpoint(physic_timestamp=2**63), Checkpoint(confirm_offset=-(2**63) - 1)):
        with pytest.raises(FormatError, match="64 bits"):
            encode(bad)
    with pytest.raises(FormatError, match="do not fit"):
        encode(Checkpoint(rest=b"x" * CHECKPOINT_BYTES))
