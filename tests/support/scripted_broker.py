"""Scripted broker: a socket on loopback that speaks the remoting protocol, and stores messages or follows a script.

::

    ScriptedBroker({"orders": 4}, script)     topics with their numbers of queues
    script(request) -> bytes | None           the answer's frame; None: stored and answered as a broker does it
"""

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from segmentlog.store.format.properties import parse_properties

from .loopback import LoopbackServer

SEND, TOPICS, ROUTE = 310, 21, 105


@dataclass(frozen=True)
class Request:
    code: int
    opaque: int
    fields: Mapping[str, str]
    body: bytes

    @property
    def properties(self) -> dict[str, str]:
        return parse_properties(self.fields["i"].encode())

    @property
    def queue(self) -> tuple[str, int]:
        return self.fields["b"], int(self.fields["e"])

    @property
    def origin(self) -> str:
        return self.properties["SEGMENTLOG_ORIGIN"]


Script = Callable[[Request], bytes | None]


def frame(request: Request, code: int = 0, body: bytes = b"", remark: str = "", **fields: object) -> bytes:
    texts = {name: str(value) for name, value in fields.items()}
    return answer(body, code=code, opaque=request.opaque, language="JAVA", remark=remark, extFields=texts)


def answer(body: bytes, **header: object) -> bytes:
    data = json.dumps({"code": 0, "opaque": 7, "flag": 1, **header}).encode()
    return struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body


class ScriptedBroker(LoopbackServer):
    """Broker and name server at once. A context manager. ``sent`` has all messages in the order of their arrival."""

    def __init__(self, topics: Mapping[str, int], script: Script = lambda _: None, perm: int = 6) -> None:
        self.topics, self.script, self.perm = dict(topics), script, perm
        self.sent: list[Request] = []
        self._lock = threading.Lock()
        super().__init__()
        self.address = f"127.0.0.1:{self.port}"

    def stored(self, topic: str, queue_id: int) -> list[Request]:
        return [each for each in self.sent if each.queue == (topic, queue_id)]

    def _serve(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")
        while lengths := reader.read(8):
            size, header = struct.unpack(">ii", lengths)
            head: dict[str, Any] = json.loads(reader.read(header))
            body = reader.read(size - 4 - header)
            request = Request(head["code"], head["opaque"], head["extFields"], body)
            answer = self.script(request)
            connection.sendall(self._answer(request) if answer is None else answer)

    def _answer(self, request: Request) -> bytes:
        if request.code == TOPICS:
            table = {
                name: {"topicName": name, "writeQueueNums": count, "readQueueNums": count, "perm": self.perm}
                for name, count in self.topics.items()
            }
            return frame(request, body=json.dumps({"topicConfigTable": table}).encode())
        if request.code == ROUTE:
            name = request.fields["topic"]
            if name not in self.topics:
                return frame(request, 17, remark="No topic route info")
            addresses = f'{{0:"{self.address}",1:"127.0.0.1:1"}}'  # numbers without quotes, as fastjson writes them
            queues = json.dumps({"brokerName": "a", "writeQueueNums": self.topics[name], "perm": self.perm})
            brokers = f'{{"brokerName":"a","brokerAddrs":{addresses}}}'
            return frame(request, body=f'{{"brokerDatas":[{brokers}],"queueDatas":[{queues}]}}'.encode())
        with self._lock:
            self.sent.append(request)
            return frame(request, queueOffset=len(self.stored(*request.queue)) - 1, queueId=request.fields["e"])
