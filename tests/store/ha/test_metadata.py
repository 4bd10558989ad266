"""Copies of a broker's documents: the files follow the broker, whole, and a silent broker changes nothing."""

import json
import socket
import struct
import threading
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import MessageStore, Outgoing, ReplicationError
from segmentlog.store.ha import Address, MetadataCopier
from segmentlog.store.ha.metadata import BrokerDocument, decode_document, receive_answer
from support.written_stores import SMALL

TOPICS = {"dataVersion": {"counter": 3}, "topicConfigTable": {"T": {"topicName": "T", "writeQueueNums": 4}}}
GROUPS = {"subscriptionGroupTable": {"g": {"groupName": "g"}}}


class Broker:
    """Answers requests with documents by code; a context manager."""

    def __init__(self, bodies: dict[int, bytes]) -> None:
        self.bodies = bodies
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                while lengths := connection.recv(8, socket.MSG_WAITALL):
                    _, header = struct.unpack(">ii", lengths)
                    request = json.loads(connection.recv(header, socket.MSG_WAITALL))
                    body = self.bodies.get(request["code"])
                    if body is None:
                        break
                    data = json.dumps({"code": 0, "opaque": request["opaque"]}).encode()
                    connection.sendall(struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "copy", SMALL) as store:
        store.append(Outgoing(topic="Ours", body=b"1"))
    return tmp_path / "copy"


def bodies() -> dict[int, bytes]:
    return {
        21: json.dumps(TOPICS).encode(),
        43: b'{"offsetTable":{"T@g":{0:12}}}',
        45: b"",
        201: json.dumps(GROUPS).encode(),
    }


def test_files_follow_the_broker(store: Path) -> None:
    config = store / "config"
    with Broker(bodies()) as broker:
        copier = MetadataCopier(str(store), broker.address)
        assert copier.copy() == ["topics.json", "consumerOffset.json", "subscriptionGroup.json"]
        assert json.loads((config / "topics.json").read_text()) == TOPICS
        assert json.loads((config / "consumerOffset.json").read_text()) == {"offsetTable": {"T@g": {"0": 12}}}
        assert "Ours" in (config / "topics.json.bak").read_text()
        assert not (config / "delayOffset.json").exists()
        assert copier.copy() == []
        broker.bodies[43] = b'{"offsetTable":{"T@g":{0:13}}}'
        broker.bodies[45] = b'{"offsetTable":{1:5}}'
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
        Broker(answers) as broker,
        pytest.raises(ReplicationError, match=f"closed the connection at request code {code}"),
    ):
        MetadataCopier(str(store), broker.address).copy()
    assert {file.name: file.read_bytes() for file in (store / "config").iterdir()} == before


def test_a_failed_copy_is_repeated(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.ha.metadata.PERIOD_S", 0.01)
    stop = threading.Event()
    with Broker({}) as broker:
        copier = MetadataCopier(str(store), broker.address)
        thread = threading.Thread(target=copier.run, args=(stop,))
        thread.start()
        while not copier.problem:
            stop.wait(0.01)
        broker.bodies.update(bodies())
        while not copier.copies:
            stop.wait(0.01)
        stop.set()
        thread.join()
        assert copier.problem == ""


# Answers


def answer(body: bytes, **header: object) -> bytes:
    data = json.dumps({"code": 0, "opaque": 7, "flag": 1, **header}).encode()
    return struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body


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
