"""Numbers for Prometheus, served at ``/metrics`` by prometheus-client.

::

    rows  {"metric": "topic_bytes", "brokerName": "store", "topic": "orders", "value": 94371840}
      └─► segmentlog_topic_bytes{broker="store",topic="orders"} 94371840        …_total is a counter, others are gauges
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from ..console import Console
from ..parser import listening

_PREFIX: Final = "segmentlog_"
_COUNTER: Final = "_total"
_LABELS: Final = ("topic", "group")

Row = Mapping[str, Any]


@contextmanager
def scraped(
    listen: str, rows: Callable[[], Sequence[Row]], texts: Mapping[str, str], console: Console
) -> Iterator[None]:
    """Serve the numbers of ``rows``, which each scrape asks for, until the block ends; ``texts`` describe them."""
    from segmentlog.query.extras import optional_module
    from segmentlog.store.ha import Address

    prometheus = optional_module("prometheus-client", "--listen needs", extra="metrics")
    address = Address.parse(listen, least_port=0)
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(rows, texts))
    with listening(address):
        server, thread = prometheus.start_http_server(address.port, address.host, registry)
    try:
        console.stderr.write(f"metrics at http://{address.host}:{server.server_port}/metrics\n")
        console.stderr.flush()
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Collector:
    """Metrics as prometheus-client collects them."""

    def __init__(self, rows: Callable[[], Sequence[Row]], texts: Mapping[str, str]) -> None:
        self._rows = rows
        self._texts = texts
        self._families = import_module("prometheus_client.core")
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Any]:
        with self._lock:  # the server has a thread per scrape, and a reader is for one at a time
            rows = self._rows()
        for name, text in self._texts.items():
            some = [row for row in rows if row["metric"] == name]
            if some:
                used = [label for label in _LABELS if some[0].get(label) is not None]
                kind = (
                    self._families.CounterMetricFamily if name.endswith(_COUNTER) else self._families.GaugeMetricFamily
                )
                family = kind(_PREFIX + name, text, labels=["broker", *used])
                for row in some:
                    family.add_metric([row["brokerName"], *(row[label] for label in used)], row["value"])
                yield family
