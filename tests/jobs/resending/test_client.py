import threading
from typing import Any

import pytest

from segmentlog.jobs.resending.client import Cluster, Connection, Queue, wait
from segmentlog.store import BrokerError
from segmentlog.store.ha import Address
from support.scripted_broker import ROUTE, Request, ScriptedBroker, frame


def test_requests_larger_than_a_socket_takes_are_sent_in_parts() -> None:
    body = bytes(8 << 20)
    with ScriptedBroker({"orders": 1}) as broker, Connection(Address("127.0.0.1", broker.port)) as connection:
        fields = {"b": "orders", "e": "0", "i": ""}
        asked = [connection.submit(310, fields, body) for _ in range(3)]
        found: list[int] = []
        while len(found) < 3:
            found += [answer.opaque for _, answers in wait([connection], 10) for answer in answers]
            assert connection.problem is None
        assert found == asked
        assert [each.body for each in broker.sent] == [body] * 3


def test_waiting_ends_in_time_and_by_a_closed_connection() -> None:
    gate = threading.Event()

    def script(_: Request) -> bytes:
        gate.wait(5)
        raise ConnectionError

    with ScriptedBroker({}, script) as broker, Connection(Address("127.0.0.1", broker.port)) as connection:
        connection.submit(21, {})
        assert wait([connection], 0.05) == []
        assert connection.problem is None
        gate.set()
        assert wait([connection], 5) == [(connection, [])]
        assert "the other end closed it" in str(connection.problem)


@pytest.mark.parametrize(
    ("route", "found"),
    [
        ('{"brokerDatas":[],"queueDatas":[]}', "cannot be written"),
        ('{"brokerDatas":[{"brokerName":"a","brokerAddrs":{1:"h:1"}}],"queueDatas":[{"brokerName":"a"}]}', "no master"),
        ("{}", "cannot be written"),
        ("nonsense", "not JSON"),
    ],
)
def test_a_route_without_masters_is_refused(route: str, found: str) -> None:
    with ScriptedBroker({}, lambda each: frame(each, body=route.encode())) as broker:
        cluster = Cluster(name_server=Address("127.0.0.1", broker.port), timeout_s=5)
        with pytest.raises(BrokerError, match=found):
            cluster.queues("orders")


def test_a_route_names_the_queues_of_all_masters() -> None:
    def script(request: Request) -> bytes:
        assert (request.code, request.fields) == (ROUTE, {"topic": "orders"})
        datas: list[Any] = [
            '{"brokerName":"b","brokerAddrs":{"0":"10.0.0.2:10911"}}',
            '{"brokerName":"a","brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.3:10911"}}',
            '{"brokerName":"c","brokerAddrs":{1:"10.0.0.4:10911"}}',
        ]
        queues = [f'{{"brokerName":"{each}","writeQueueNums":2,"perm":6}}' for each in "abc"]
        return frame(request, body=f'{{"brokerDatas":[{",".join(datas)}],"queueDatas":[{",".join(queues)}]}}'.encode())

    with ScriptedBroker({}, script) as broker:
        cluster = Cluster(name_server=Address("127.0.0.1", broker.port), timeout_s=5)
        a, b = Address("10.0.0.1", 10911), Address("10.0.0.2", 10911)
        assert cluster.queues("orders") == [Queue(a, 0), Queue(a, 1), Queue(b, 0), Queue(b, 1)]
