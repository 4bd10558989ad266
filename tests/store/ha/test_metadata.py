import json
import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import MessageStore, Outgoing, ReplicationError
from segmentlog.store.ha import Address, MetadataCopier
from segmentlog.store.ha.metadata import BrokerDocument, decode_document, receive_answer
from support.scripted_broker import Request, ScriptedBroker, answer, frame
from support.written_stores import SMALL

TOPICS = {"dataVersion": {"counter": 3}, "topicConfigTable": {"T": {"topicName": "T", "writeQueueNums": 4}}}
GROUPS = {"subscriptionGroupTable": {"g": {"groupName": "g"}}}


def broker(bodies: dict[int, bytes]) -> ScriptedBroker:
    """Broker that answers with documents by code; without one it closes the connection."""

    def script(request: Request) -> bytes:
        if request.code not in bodies:
            raise ConnectionError
        return frame(request, body=bodies[request.code])

    return ScriptedBroker({}, script)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "copy", SMALL) as store:
        store.append(Outgoing(topic="Ours", body=b"1"))
    return tmp_path / "copy"


def test_positions_of_a_broker_with_light_queues_go_where_it_reads_them(store: Path) -> None:
    light = {"lmqOffsetTable": {"%LMQ%a@%LMQ%a": 5}, "offsetTable": {"T@g": {"0": 12}}}
    with broker(bodies() | {43: json.dumps(light).encode()}) as scripted:
        copied = MetadataCopier(str(store), Address("127.0.0.1", scripted.port)).copy()
    assert "lmqConsumerOffset.json" in copied
    assert json.loads((store / "config" / "lmqConsumerOffset.json").read_text()) == light
    assert not (store / "config" / "consumerOffset.json").exists()


def bodies() -> dict[int, bytes]:
    return {
        21: json.dumps(TOPICS).encode(),
        43: b'{"offsetTable":{"T@g":{0:12}}}',
        45: b"",
        201: json.dumps(GROUPS).encode(),
    }


def test_files_follow_the_broker(store: Path) -> None:
    config, documents = store / "config", bodies()
    with broker(documents) as scripted:
        copier = MetadataCopier(str(store), Address("127.0.0.1", scripted.port))
        assert copier.copy() == ["topics.json", "consumerOffset.json", "subscriptionGroup.json"]
        assert json.loads((config / "topics.json").read_text()) == TOPICS
        assert json.loads((config / "consumerOffset.json").read_text()) == {"offsetTable": {"T@g": {"0": 12}}}
        assert "Ours" in (config / "topics.json.bak").read_text()
        assert not (config / "delayOffset.json").exists()
        assert copier.copy() == []
        documents[43] = b'{"offsetTable":{"T@g":{0:13}}}'
        documents[45] = b'{"offsetTable":{1:5}}'
        assert copier.copy() == ["consumerOffset.json", "delayOffset.json"]
        assert '"0":12' in (config / "consumerOffset.json.bak").read_text()
    with MessageStore.open(store, SMALL) as opened:  # adds its own topic to the broker's
        assert opened.recovered.was_clean
    assert set(json.loads((config / "topics.json").read_text())["topicConfigTable"]) >= {"T"}


@pytest.mark.parametrize("code", [each.code for each in BrokerDocument])
def test_a_broker_that_goes_away_changes_nothing(store: Path, code: int) -> None:
    before = {file.name: file.read_bytes() for file in (store / "config").iterdir()}
    answers = bodies()
    del answers[code]
    with (
        broker(answers) as scripted,
        pytest.raises(ReplicationError, match=f"closed the connection at request code {code}"),
    ):
        MetadataCopier(str(store), Address("127.0.0.1", scripted.port)).copy()
    assert {file.name: file.read_bytes() for file in (store / "config").iterdir()} == before


def test_a_failed_copy_is_repeated(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.ha.metadata.PERIOD_S", 0.01)
    stop, documents = threading.Event(), dict[int, bytes]()
    with broker(documents) as scripted:
        copier = MetadataCopier(str(store), Address("127.0.0.1", scripted.port))
        thread = threading.Thread(target=copier.run, args=(stop,))
        thread.start()
        while not copier.problem:
            stop.wait(0.01)
        documents.update(bodies())
        while not copier.copies:
            stop.wait(0.01)
        stop.set()
        thread.join()
        assert copier.problem == ""


# Answers


def decoded(data: bytes, document: BrokerDocument = BrokerDocument.TOPICS) -> object:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return decode_document(receive_answer(ours, document), document, 7)


@pytest.mark.parametrize("body", [b"", b"null", b" \n"])
def test_a_document_may_be_missing(body: bytes) -> None:
    assert decoded(answer(body)) is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"HTTP/1.1 400", "impossible length of 1213486160"),
        (answer(b"{}") + b"x", "more bytes than its answer"),
        (answer(b"{}") * 2, "more bytes than its answer"),
        (struct.pack(">iI", 8, 4) + b"\xff\xff\xff\xff", "not JSON"),
        (answer(b"{}", opaque=8), "answered request 8, and the request was 7"),
        (answer(b"", code=1, remark="no"), "request code 21 with code 1: no"),
        (answer(b"{}"), "topics.json has no table topicConfigTable"),
        (answer(b'{"topicConfigTable":[]}'), "has no table"),
        (answer(b"{" * 5000), "not JSON"),
        (answer(b"{}")[:-1], "closed the connection at request code 21"),
    ],
)
def test_other_bytes_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ReplicationError, match=problem):
        decoded(data)


@given(st.binary(max_size=80))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(ReplicationError):
        decoded(data)
