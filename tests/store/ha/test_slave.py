import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ConfigError, DivergedLogError, ReplicationError
from segmentlog.store.ha.protocol import (
    HEARTBEAT_S,
    HISTORY,
    MORE_HISTORY,
    SILENCE_S,
    Chunk,
    encode_header,
    encode_report,
)
from segmentlog.store.ha.slave import Slave

SEGMENT = 1000
LOG = bytes([0, *((each * 7 + each // 256) % 256 for each in range(1, 5000))])


def frames(start: int, stop: int, size: int) -> bytes:
    """Return the frames of ``LOG[start:stop]`` as a master sends them: none crosses a segment."""
    sent, at = b"", start
    while at < stop:
        end = min(at + size, stop, at - at % SEGMENT + SEGMENT)
        sent += encode_header(at, end - at) + LOG[at:end]
        at = end
    return sent


def fed(slave: Slave, sent: bytes, piece: int) -> bytes:
    log, stop = b"", None
    for at in range(0, len(sent), piece):
        chunk = slave.receive(sent[at : at + piece], 0.0)
        if chunk is not None:
            assert stop in {None, chunk.offset}
            log, stop = log + chunk.data, chunk.stop
    return log


@given(st.integers(1, 3000), st.integers(1, 700), st.integers(1, 300), st.integers(1, 900))
def test_a_log_is_followed_from_bytes_that_are_held(end: int, size: int, piece: int, held: int) -> None:
    held = min(max(held, 2), end)
    slave = Slave.following(end, LOG[end - held : end], SEGMENT, 0.0)
    request = int.from_bytes(slave.report(end, 0.0), "big")
    assert request == max(end - held, 1)
    assert fed(slave, frames(request, 4000, size), piece) == LOG[end:4000]
    assert slave.is_verified
    assert slave.announced == 4000


@given(st.integers(0, 3), st.integers(1, 700), st.integers(1, 300))
def test_an_empty_log_begins_at_a_segment(segment: int, size: int, piece: int) -> None:
    base = segment * SEGMENT
    slave = Slave.from_base(base, SEGMENT, 0.0)
    assert slave.begin == base
    request = int.from_bytes(slave.report(0, 0.0), "big")
    assert request == (base or 1)  # a report of 0 would mean the last segment
    assert fed(slave, frames(request, 4000, size), piece) == LOG[base:4000]


def test_the_master_may_choose_the_segment() -> None:
    slave = Slave.from_last_segment(SEGMENT, 0.0)
    assert slave.report(0, 0.0) == encode_report(0)
    assert slave.begin is None
    assert slave.receive(encode_header(3000, 0), 0.0) is None
    assert (slave.begin, slave.is_idle) == (3000, True)
    assert slave.receive(frames(3000, 3100, 60), 1.0) == (3000, LOG[3000:3100])
    assert not slave.is_idle


def test_a_segment_that_begins_elsewhere_is_of_another_size() -> None:
    slave = Slave.from_last_segment(SEGMENT, 0.0)
    with pytest.raises(ConfigError, match="segment_bytes is 1000, and the master's last segment begins at"):
        slave.receive(encode_header(2048, 0), 0.0)


@pytest.mark.parametrize("at", [2000, 2001, 2499])
def test_a_log_that_differs_is_refused_and_both_ends_are_named(at: int) -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    sent = bytearray(frames(2000, 3000, 100))
    where = at - 2000
    sent[where // 100 * 112 + 12 + where % 100] ^= 1
    with pytest.raises(DivergedLogError, match=f"differs from this one at physical offset {at}; this one ends at 2500"):
        slave.receive(bytes(sent), 0.0)


def test_a_master_that_ends_before_is_refused_at_its_second_heartbeat() -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    assert slave.receive(frames(2000, 2300, 100) + encode_header(2300, 0), 0.0) is None
    assert slave.receive(frames(2300, 2310, 100) + encode_header(2310, 0), 0.0) is None  # that one was on its way
    assert not slave.is_verified
    with pytest.raises(DivergedLogError, match="nothing at physical offset 2310, and this log ends at 2500"):
        slave.receive(encode_header(2310, 0), 0.0)


@pytest.mark.parametrize("header", [(2600, 10), (2400, 10), (2600, 0), (0, 0)])
def test_a_jump_ends_the_connection(header: tuple[int, int]) -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    slave.receive(frames(2000, 2510, 1000), 0.0)
    with pytest.raises(ReplicationError, match=f"continued at physical offset {header[0]}, and the next byte is at 25"):
        slave.receive(encode_header(*header) + bytes(header[1]), 0.0)


def test_a_report_follows_each_append_and_each_heartbeat() -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    assert slave.report(2500, 0.0) == encode_report(2000)
    assert slave.report(2500, 1.0) == b""
    assert slave.report(2500, HEARTBEAT_S) == encode_report(2000)  # not verified: nothing is acknowledged yet
    slave.receive(frames(2000, 2600, 1000), HEARTBEAT_S)
    assert slave.report(2500, HEARTBEAT_S) == encode_report(2500)
    assert slave.report(2600, HEARTBEAT_S) == encode_report(2600)
    assert slave.report(2600, HEARTBEAT_S + 1) == b""
    assert slave.wait_s(HEARTBEAT_S + 1) == HEARTBEAT_S - 1
    assert slave.report(2600, 2 * HEARTBEAT_S) == encode_report(2600)


def test_a_silent_master_is_given_up() -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    slave.report(2500, 0.0)
    assert slave.wait_s(SILENCE_S - 1) == 0.0
    with pytest.raises(ReplicationError, match="sent nothing for 20 s"):
        slave.wait_s(SILENCE_S)


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_garbage_appends_nothing_that_was_not_sent_as_a_body(pieces: list[bytes]) -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    try:
        for piece in pieces:
            assert slave.receive(piece, 0.0) is None
            assert not slave.is_verified
    except ReplicationError:
        pass


def test_the_history_is_taken_once_and_not_before_the_logs_are_compared() -> None:
    slave = Slave.following(2500, LOG[2000:2500], SEGMENT, 0.0)
    slave.accept_history(10)
    assert slave.receive(encode_header(HISTORY, 6) + b"first." + frames(2000, 2400, 100), 0.0) is None
    assert slave.take_history() == []
    slave.receive(encode_header(MORE_HISTORY, 7) + b"second.", 0.0)
    assert slave.take_history() == []
    assert slave.receive(frames(2400, 2600, 100), 0.0) == (2500, LOG[2500:2600])
    assert slave.take_history() == [Chunk(HISTORY, b"first."), Chunk(MORE_HISTORY, b"second.")]
    assert slave.take_history() == []


def test_the_history_of_a_master_that_did_not_answer_is_refused() -> None:
    slave = Slave.from_base(1000, SEGMENT, 0.0)
    with pytest.raises(ReplicationError, match="a frame of 6 bytes at physical offset -2"):
        slave.receive(encode_header(HISTORY, 6) + b"first.", 0.0)
