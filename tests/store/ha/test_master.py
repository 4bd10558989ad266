import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ReplicationError
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.ha import master
from segmentlog.store.ha.master import FIRST_REQUEST_S, Follower
from segmentlog.store.ha.protocol import (
    HEARTBEAT_S,
    HISTORY,
    HISTORY_BEGIN,
    MORE_HISTORY,
    SILENCE_S,
    Greeting,
    answer,
    encode_header,
    encode_report,
)
from segmentlog.store.ha.slave import Slave

SEGMENT = 1000
GREETING = Greeting(4500, Epochs((Epoch(3, 2000, 9),)))
LOG = bytes([0, *((each * 7 + each // 256) % 256 for each in range(1, 5000))])


def follower(*reports: int, end: int = 4500) -> Follower:
    made = Follower(SEGMENT, 0.0)
    for report in reports:
        made.receive(encode_report(report), end, 0.0)
    return made


def frames(made: Follower, end: int) -> list[tuple[int, int]]:
    found = []
    while (frame := made.next_frame(0, end, 0.0)) is not None:
        found.append(tuple(frame))
    return found


def test_nothing_is_sent_before_the_first_report() -> None:
    made = Follower(SEGMENT, 0.0)
    made.receive(encode_report(7)[:7], 4500, 0.0)
    assert made.next_frame(0, 4500, 100.0) is None
    made.receive(encode_report(7)[7:], 4500, 0.0)
    assert made.next_frame(0, 4500, 0.0) == (7, 1000)


@pytest.mark.parametrize(("report", "start"), [(0, 4000), (1, 1), (4499, 4499), (2000, 2000)])
def test_a_report_of_0_starts_at_the_last_segment_any_other_at_its_own_offset(report: int, start: int) -> None:
    assert frames(follower(report), 4500)[0][0] == start


def test_an_empty_slave_gets_its_second_frame_after_its_first_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "FRAME_BYTES", 300)
    made = follower(0)
    assert frames(made, 4900) == [(4000, 4300)]
    assert made.next_frame(0, 4900, HEARTBEAT_S) is None, "RocketMQ's slave would take a heartbeat at any offset, too"
    made.receive(encode_report(0), 4900, 0.0)  # it was on its way when the frame was sent
    assert frames(made, 4900) == []
    made.receive(encode_report(4300), 4900, 0.0)
    assert frames(made, 4900) == [(4300, 4600), (4600, 4900)]
    made.receive(encode_report(4300), 4900, 0.0)
    assert made.acknowledged == 4300


def test_an_empty_slave_that_does_not_take_its_first_frame_connects_again() -> None:
    made = follower(0)
    assert frames(made, 4500) == [(4000, 4500)]
    made.receive(encode_report(0), 4500, 0.0)
    with pytest.raises(ReplicationError, match="did not take the log from physical offset 4000 on"):
        made.receive(encode_report(0), 4500, 0.0)


def test_an_empty_slave_of_an_empty_log_gets_heartbeats_and_then_one_frame() -> None:
    made = follower(0, end=0)
    assert made.next_frame(0, 0, HEARTBEAT_S) == (0, 0)
    for _ in range(3):
        made.receive(encode_report(0), 0, 0.0)
    assert made.acknowledged == 0
    assert made.next_frame(0, 100, HEARTBEAT_S) == (0, 100)
    assert made.next_frame(0, 200, HEARTBEAT_S) is None
    made.receive(encode_report(100), 200, 0.0)
    assert made.next_frame(0, 200, HEARTBEAT_S) == (100, 200)


def test_a_replica_of_segmentlog_states_whole_records_and_need_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "FRAME_BYTES", 300)
    made = follower(-1, 0)
    made.greet(GREETING)
    assert frames(made, 4900) == [(4000, 4300), (4300, 4600), (4600, 4900)]


def test_a_slave_that_asks_for_expired_bytes_gets_heartbeats() -> None:
    made = follower(1500)
    assert made.next_frame(2000, 4500, 0.0) is None
    assert made.next_frame(2000, 4500, HEARTBEAT_S) == (1500, 1500)
    assert made.next_frame(1000, 4500, HEARTBEAT_S) == (1500, 2000)


def test_no_frame_crosses_a_segment_or_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "FRAME_BYTES", 300)
    found = frames(follower(950), 2100)
    assert found == [(950, 1000), (1000, 1300), (1300, 1600), (1600, 1900), (1900, 2000), (2000, 2100)]


def test_a_heartbeat_follows_five_seconds_without_a_frame() -> None:
    made = follower(4500)
    assert made.next_frame(0, 4500, HEARTBEAT_S - 0.1) is None
    assert made.next_frame(0, 4500, HEARTBEAT_S) == (4500, 4500)
    assert made.next_frame(0, 4500, HEARTBEAT_S + 0.1) is None
    assert made.next_frame(0, 4501, HEARTBEAT_S + 0.1) == (4500, 4501)
    made.check_silence(SILENCE_S - 1)
    with pytest.raises(ReplicationError, match="a slave sent nothing for 20 s"):
        made.check_silence(SILENCE_S)


@pytest.mark.parametrize("reports", [(), (-1,)])
def test_a_slave_without_a_request_is_given_up_soon(reports: tuple[int, ...]) -> None:
    made = follower(*reports)
    made.check_silence(FIRST_REQUEST_S - 1)
    with pytest.raises(ReplicationError, match="a slave sent no request for 10 s"):
        made.check_silence(FIRST_REQUEST_S)
    follower(*reports, 4500).check_silence(FIRST_REQUEST_S)


@pytest.mark.parametrize("report", [-2, -(1 << 63), 4501, (1 << 63) - 1, int.from_bytes(b"GET / HT", "big")])
def test_an_impossible_request_ends_the_connection(report: int) -> None:
    with pytest.raises(ReplicationError, match=f"asked for physical offset {report}, and the log ends at 4500"):
        follower(report)


def test_a_question_is_answered_once_and_before_the_request() -> None:
    made = follower(-1)
    assert made.is_asking
    assert made.next_frame(0, 4500, 100.0) is None
    assert made.greet(GREETING) == answer(GREETING)
    assert (made.is_asking, made.greeting) == (False, GREETING)
    made.receive(encode_report(4500), 4500, 0.0)
    assert made.acknowledged is None
    assert made.next_frame(0, 4501, 0.0) == (4500, 4501)
    for wrong in (follower(-1), follower(7), made):
        with pytest.raises(ReplicationError):
            wrong.receive(encode_report(-1), 4500, 0.0)


def test_a_replica_that_is_ahead_gets_the_epochs_and_heartbeats_and_acknowledges_nothing() -> None:
    made = follower(-1, 4501)
    made.greet(GREETING)
    for report in (4501, 4501, 4600):
        made.receive(encode_report(report), 4500, 0.0)
    assert made.acknowledged is None
    assert made.next_frame(0, 9000, HEARTBEAT_S) == (4501, 4501)
    made.receive(encode_report(-6), 4500, 0.0)
    assert made.refused_by == 5


def test_a_refusal_counts_after_an_answer_alone() -> None:
    for reports in ((-1,), (-1, 7), (7,)):
        with pytest.raises(ReplicationError):
            follower(*reports, -6)
    for reports in ((-1,), (-1, 4500)):
        made = follower(*reports)
        made.greet(GREETING)
        made.receive(encode_report(-6), 4500, 0.0)
        assert (made.refused_by, made.acknowledged) == (5, None)


@pytest.mark.parametrize("wrong", [-1, 999, 1301, 4500, (1 << 63) - 1])
def test_acknowledgements_never_decrease_or_exceed_the_sent_offset(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    monkeypatch.setattr(master, "FRAME_BYTES", 300)
    made = follower(1000)
    assert made.next_frame(0, 4500, 0.0) == (1000, 1300)
    made.receive(encode_report(1100) + encode_report(1100), 4500, 0.0)
    assert made.acknowledged == 1100
    with pytest.raises(ReplicationError, match=f"acknowledged physical offset {wrong}, after 1100 and with 1300 sent"):
        made.receive(encode_report(wrong), 4500, 0.0)
    assert made.acknowledged == 1100


@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(0, 4500))
def test_garbage_never_acknowledges_bytes_that_were_not_sent(pieces: list[bytes], end: int) -> None:
    made, sent = Follower(SEGMENT, 0.0), 0
    try:
        for piece in pieces:
            made.receive(piece, end, 0.0)
            frame = made.next_frame(0, end, 0.0)
            sent = max(sent, frame.stop if frame is not None else 0, made._next or 0)
            assert (made.acknowledged or 0) <= sent <= end
    except ReplicationError:
        pass


@given(st.integers(1, 4500), st.integers(1, 900), st.integers(1, 400))
def test_our_slave_follows_our_master(end: int, held: int, piece: int) -> None:
    """Join both state machines: the slave gets the log, and the master its acknowledgement."""
    held = min(held + 1, end) if end > 1 else end
    slave = Slave.following(end, LOG[end - held : end], SEGMENT, 0.0) if end > 1 else Slave.from_base(0, SEGMENT, 0.0)
    made, log = Follower(SEGMENT, 0.0), b""
    made.receive(slave.report(end, 0.0), 4500, 0.0)
    while (frame := made.next_frame(0, 4500, 0.0)) is not None:
        sent = frame.header + LOG[frame.start : frame.stop]
        for at in range(0, len(sent), piece):
            chunk = slave.receive(sent[at : at + piece], 0.0)
            log += chunk.data if chunk is not None else b""
    assert log == (LOG[end:4500] if end > 1 else LOG[:4500])
    made.receive(slave.report(4500, 0.0), 4500, 0.0)
    assert made.acknowledged == 4500


def test_each_line_of_the_history_is_sent_once_to_slaves_that_asked() -> None:
    silent, asking = follower(1500), follower(-1, 1500)
    for each in (silent, asking):
        assert each.history_position(0, 5) is None
    asking.greet(GREETING)
    assert asking.history_position(0, 0) == 0, "a slave is told that there are no batches"
    assert asking.history_frame(0, b"") == [encode_header(HISTORY, len(HISTORY_BEGIN)), HISTORY_BEGIN, b""]
    assert asking.history_position(0, 0) is None
    assert asking.history_position(0, 5) == 0
    assert asking.history_frame(0, b"first") == [encode_header(MORE_HISTORY, 5), b"first"]
    assert asking.history_position(0, 5) is None
    assert asking.history_position(0, 9) == 5
    assert asking.history_frame(0, b"") == [], "lines that are being written are sent later"
    assert asking.history_frame(0, b"next") == [encode_header(MORE_HISTORY, 4), b"next"]
    assert silent.history_position(0, 9) is None


def test_a_history_with_other_lines_goes_as_a_whole() -> None:
    asking = follower(-1, 1500)
    asking.greet(GREETING)
    asking.history_frame(0, b"first")
    assert asking.history_position(1, 3) == 0
    assert asking.history_frame(1, b"cut")[1:] == [HISTORY_BEGIN, b"cut"]
    assert asking.history_position(1, 3) is None
