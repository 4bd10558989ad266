"""Verb ``metrics``: numbers of a store for monitoring, as a table or for Prometheus.

::

    segmentlog metrics STORE                               a row per metric, topic and group
    segmentlog metrics STORE --listen 127.0.0.1:9877       measured by each scrape, until it is interrupted

    segmentlog_topic_bytes{broker="store",topic="orders"} 94371840

Only one scrape measures at a time. A scrape that fails is answered with status 500, and the next one measures again.
"""

import argparse
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ..console import Console
from ..errors import FOUND
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import read_conf, source_of
from ..report import signalled

if TYPE_CHECKING:
    from segmentlog.query.metrics import Metrics

_PREFIX: Final = "segmentlog_"
_STOP_S: Final = 0.2


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="serve the metrics to Prometheus at http://HOST:PORT/metrics; it has no authentication",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the broker's configuration, for the head room of its retention",
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from segmentlog.query.metadata import SCHEMAS
    from segmentlog.query.metrics import Metrics
    from segmentlog.store import RetentionSettings

    from ..output.rows import write_table

    retention = None if options.config is None else RetentionSettings.from_conf(read_conf(options.config))
    metrics = Metrics(source_of(options).open(), retention)
    if options.listen is not None:
        return _serve(options, metrics, console)
    return write_table(pa.Table.from_pylist(metrics.rows(), SCHEMAS["metrics"]), options, console)


def _serve(options: argparse.Namespace, metrics: "Metrics", console: Console) -> int:
    from segmentlog.api.remedies import optional_module
    from segmentlog.store.ha import Address

    prometheus = optional_module("prometheus_client", "metrics --listen", extra="metrics")
    address = Address.parse(options.listen, least_port=0)
    metrics.rows()  # a wrong path is an error now, not at the first scrape
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics, import_module("prometheus_client.core").GaugeMetricFamily))
    with signalled() as stop:
        server, thread = prometheus.start_http_server(address.port, address.host, registry)
        try:
            console.stderr.write(f"metrics at http://{address.host}:{server.server_port}/metrics\n")
            console.stderr.flush()
            while not stop.wait(_STOP_S):
                pass
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    return FOUND


class _Collector:
    """Metrics as prometheus-client collects them."""

    def __init__(self, metrics: "Metrics", family: Any) -> None:
        self._metrics = metrics
        self._family = family
        self._lock = threading.Lock()

    def describe(self) -> Iterator[Any]:
        return iter(())

    def collect(self) -> Iterator[Any]:
        from segmentlog.query.metrics import METRICS

        with self._lock:  # the server has a thread per scrape, and a reader is for one at a time
            rows = self._metrics.rows()
        labels = ("topic", "group")
        for name, text in METRICS.items():
            some = [row for row in rows if row["metric"] == name]
            if some:
                used = [label for label in labels if some[0][label] is not None]
                family = self._family(_PREFIX + name, text, labels=["broker", *used])
                for row in some:
                    family.add_metric([row["brokerName"], *(row[label] for label in used)], row["value"])
                yield family
