"""Job ``profile``: statistics of all messages of a store, by topic, queue, tag, producer host and minute.

::

    queue ranges ──► tasks: Arrow batches ──► group-bys, one table per dimension; registers for keys
                                                 │ merged: concatenated, grouped again; greatest register
                                                 ▼
    topics │ queues │ tags │ hosts │ minutes │ sizes │ lateness      sizes and lateness by bucket, for quantiles

    bucket of v   v below 32, else 16 per power of two: a quantile is exact to a sixteenth
"""

import html
import io
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.output import printable
from segmentlog.query.extras import optional_module
from segmentlog.query.source import StoreSource
from segmentlog.store import (
    OnCorrupt,
    OnLoss,
    QueueRange,
    RetentionSettings,
    ScanSpec,
    ScanTask,
    Snapshot,
    is_remote,
)
from segmentlog.store.maintenance import Conditions, plan_retention
from segmentlog.store.sink import java_hash_array

from .report import Report, rows_of
from .spread import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import SparkSession

Ints = npt.NDArray[np.int64]

_TASK_BYTES: Final = 64 << 20
_COLUMNS: Final = ("topic", "queueId", "tags", "keys", "bornHost", "bornTimestamp", "storeTimestamp", "storeSize")
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_RESERVED_HOURS: Final = (24, 48, 72, 168, 720)
_BITS: Final = 14
_REGISTERS: Final = 1 << _BITS
_RANKS: Final = 42
DIMENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topic",),
    "queues": ("topic", "queueId"),
    "tags": ("topic", "tag"),
    "hosts": ("host",),
    "minutes": ("minute",),
    "sizes": ("topic", "bucket"),
    "lateness": ("topic", "bucket"),
}
_SUMS: Final = (("messages", "sum"), ("bytes", "sum"), ("first", "min"), ("last", "max"))
_SPEC: Final = ScanSpec(columns=_COLUMNS, on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP, raw_body=True)
_TIME: Final = pa.timestamp("ms", "UTC")
_RETENTION_SCHEMA: Final = pa.schema(
    [("reservedHours", pa.int64()), ("freedSegments", pa.int64()), ("freedBytes", pa.int64())]
)
_TOPIC_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queues", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("messagesPerSecond", pa.float64()),
        ("bytesPerSecond", pa.float64()),
        ("skew", pa.float64()),  # messages of the largest queue, divided by the mean of all
        ("keys", pa.int64()),
        *((name + share, pa.int64()) for name in ("size", "lateness") for share in ("P50", "P99", "Max")),
        ("first", _TIME),
        ("last", _TIME),
    ]
)
_SPREADS: Final = (("size", "sizes"), ("lateness", "lateness"))
_ON_PAGE: Final = ("topics", "hosts", "tags", "queues", "minutes", "sizes", "lateness", "retention")
_BY_SIZE: Final = ("hosts", "tags")  # tables whose largest rows come first on the page
_SIZES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
_DURATIONS: Final = ((_DAY_MS, "d"), (3_600_000, "h"), (_MINUTE_MS, "min"), (1000, "s"), (1, "ms"))
_BARS_MAX: Final = 15
_ROWS_MAX: Final = 100
_BINS_MAX: Final = 400
_NAME_MAX: Final = 40
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff }
body { margin: 0 auto; max-width: 1100px; padding: 1rem }
h1 { overflow-wrap: anywhere }
figure { margin: 0 }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1rem }
svg { width: 100%; height: auto }
.table { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap }
.number { text-align: right }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .5rem }
dt { color: #666; font-size: .85em } dd { margin: 0; font-size: 1.2em }
"""


@dataclass(frozen=True, kw_only=True)
class Statistics(Report):
    """Report whose table has a row per topic.

    Attributes
    ----------
    tables : Mapping[str, pyarrow.Table]
        Further tables: ``queues``, ``tags``, ``hosts``, ``minutes``, ``sizes``, ``lateness``, ``retention``.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return numbers, rows and all tables as one object for JSON."""
        return {**super().document(), **{name: rows_of(table) for name, table in self.tables.items()}}


class Partial(NamedTuple):
    """Statistics of some messages; `merged` joins those of different messages."""

    tables: Mapping[str, pa.Table]
    keys: Mapping[str, bytes]
    """Registers by topic."""


class _StoreTask(NamedTuple):
    source: StoreSource
    task: ScanTask


def run(
    spark: "SparkSession | None",
    store: str | os.PathLike[str] | StoreSource,
    *,
    topics: Sequence[str] = (),
    commit_log_paths: Sequence[str] = (),
    now_ms: int | None = None,
    processes: int | None = None,
) -> Statistics:
    """Read all messages of a store, and count them.

    Parameters
    ----------
    spark
        Whose tasks read; None for the cores of this machine.
    topics
        The topics; all if there are none. ``daysUntilFull`` is null unless all are read.
    commit_log_paths
        Directories of CommitLog segments, if not ``commitlog`` in the store; a source has its own.
    now_ms
        Time of the retention that is planned, ms since the epoch; the clock's if None.
    processes
        How many, without Spark.

    Returns
    -------
    Statistics
        Damaged and lost messages are left out.

    Raises
    ------
    UnknownQueueError
        If a topic does not exist.
    """
    source = store if isinstance(store, StoreSource) else StoreSource.of(store, commit_log_paths=[*commit_log_paths])
    snapshot = source.open()
    ranges = [
        QueueRange(each.key, each.min_offset, each.max_offset)
        for topic in topics or snapshot.topics()
        for each in snapshot.queues(topic)
        if len(each)
    ]
    tasks = snapshot.plan(ranges, max_bytes=_TASK_BYTES, spec=_SPEC) if ranges else []
    near = sum(task.bytes for task in tasks) <= 2 * _TASK_BYTES and spark is None
    parts = [_StoreTask(source, task) for task in tasks]
    found = merged(spread(_count, parts, spark, processes=1 if near else processes))
    now = int(time.time() * 1000) if now_ms is None else now_ms
    return _statistics(snapshot, found, now, source.commit_log_paths, is_whole=not topics)


def _count(part: _StoreTask) -> Partial:
    return merged(map(partial_of, part.source.scan(part.task, _SPEC)))


def partial_of(batch: pa.RecordBatch) -> Partial:
    """Return the statistics of one batch, which has the columns of the scan."""
    stored, born = (_millis(batch[name]) for name in ("storeTimestamp", "bornTimestamp"))
    size = batch["storeSize"].cast(pa.int64())
    columns = {
        "topic": batch["topic"].cast(pa.string()),
        "queueId": batch["queueId"],
        "tag": batch["tags"],
        "host": pc.replace_substring_regex(batch["bornHost"], r":\d+$", ""),  # producers change their port
        "minute": pa.array(stored // _MINUTE_MS * _MINUTE_MS),
        "messages": pa.array(np.ones(batch.num_rows, np.int64)),
        "bytes": size,
        "first": pa.array(stored),
        "last": pa.array(stored),
    }
    buckets = {"sizes": bucket_of(size.to_numpy()), "lateness": bucket_of(np.maximum(stored - born, 0))}
    tables = {}
    for name, by in DIMENSIONS.items():
        table = pa.table({**columns, "bucket": buckets[name]} if name in buckets else columns)
        tables[name] = _grouped(table, by)
    return Partial(tables, _registers(columns["topic"], batch["keys"]))


def merged(partials: Iterable[Partial]) -> Partial:
    """Join statistics of different messages."""
    every = [each for each in partials if each.tables]
    tables = {
        name: _grouped(pa.concat_tables([each.tables[name] for each in every]), by)
        for name, by in DIMENSIONS.items()
        if every
    }
    keys: dict[str, bytes] = {}
    for each in every:
        for topic, registers in each.keys.items():
            held = keys.get(topic)
            keys[topic] = registers if held is None else _greatest(held, registers)
    return Partial(tables, keys)


def _greatest(one: bytes, two: bytes) -> bytes:
    greatest: npt.NDArray[np.uint8] = np.maximum(np.frombuffer(one, np.uint8), np.frombuffer(two, np.uint8))
    return greatest.tobytes()


def _grouped(table: pa.Table, by: Sequence[str]) -> pa.Table:
    grouped = table.group_by(list(by), use_threads=False).aggregate(list(_SUMS))
    return grouped.select([*by, *("_".join(each) for each in _SUMS)]).rename_columns([*by, *(n for n, _ in _SUMS)])


def _millis(column: pa.Array) -> Ints:
    values: Ints = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
    return values


# Buckets


def bucket_of(values: Ints) -> Ints:
    """Return the bucket of each value from 0 on."""
    exponent = np.maximum(np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 5, 0).astype(np.int64)
    buckets: Ints = exponent * 16 + (values >> exponent)
    return buckets


def least_of(bucket: int) -> int:
    """Return the least value of a bucket."""
    exponent = max(bucket // 16 - 1, 0)
    return (bucket - exponent * 16) << exponent


def quantile(buckets: Ints, counts: Ints, share: float) -> int:
    """Return the least value of the bucket that a quantile of some values is in."""
    order = np.argsort(buckets)
    reached = np.cumsum(counts[order])
    return least_of(int(buckets[order][np.searchsorted(reached, share * reached[-1])]))


# Keys: HyperLogLog (Flajolet et al. 2007), with linear counting of few keys


def _registers(topics: pa.Array, keys: pa.Array) -> dict[str, bytes]:
    encoded = topics.dictionary_encode()
    found: dict[str, bytes] = {}
    for number, topic in enumerate(encoded.dictionary.to_pylist()):
        texts = keys.filter(pc.equal(encoded.indices, number)).drop_null().unique()
        texts = pc.list_flatten(pc.utf8_split_whitespace(texts))
        texts = texts.filter(pc.greater(pc.binary_length(texts), 0))
        if len(texts):
            found[topic] = registers_of(texts.cast(pa.string()))
    return found


def registers_of(texts: pa.StringArray) -> bytes:
    """Return the registers of some texts."""
    crcs = np.fromiter(map(zlib.crc32, texts.cast(pa.binary()).to_pylist()), np.uint64, len(texts))
    mixed = crcs << np.uint64(32) | java_hash_array(texts).astype(np.uint32).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    places = mixed >> np.uint64(64 - _BITS)
    rest = mixed << np.uint64(_BITS) >> np.uint64(65 - _RANKS)  # few enough bits for an exact float
    ranks = (_RANKS - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)
    registers = np.zeros(_REGISTERS, np.uint8)
    np.maximum.at(registers, places.astype(np.int64), ranks)
    return registers.tobytes()


def cardinality(registers: bytes) -> int:
    """Estimate how many different texts there were, to about one per cent."""
    held = np.frombuffer(registers, np.uint8)
    estimate = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / float(np.sum(2.0 ** -held.astype(np.float64)))
    empty = int(np.count_nonzero(held == 0))
    if estimate <= 2.5 * _REGISTERS and empty:
        estimate = _REGISTERS * float(np.log(_REGISTERS / empty))
    return round(estimate)


# The report


def _statistics(
    snapshot: Snapshot, found: Partial, now_ms: int, commit_log_paths: tuple[str, ...], *, is_whole: bool
) -> Statistics:
    rows = sorted(_topic_rows(found), key=lambda row: -row["bytes"])
    tables = {name: _shown(found.tables[name], name) for name in DIMENSIONS if name != "topics" and found.tables}
    free, plans = None, list[dict[str, int]]()
    # An object store is not full, and no broker deletes there, nor in the directory of an archive.
    if not is_remote(snapshot.path) and snapshot.held_segments() is None:
        free = shutil.disk_usage(snapshot.log.directories[0] if snapshot.log.segments else snapshot.path).free
        plans = list(_retention(snapshot, now_ms, commit_log_paths))
    rate = _bytes_per_day(found)
    keys = b"\0" * _REGISTERS
    for registers in found.keys.values():
        keys = _greatest(keys, registers)
    numbers = {
        "messages": sum(row["messages"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "topics": len(rows),
        "keys": cardinality(keys),
        "bytesPerDay": rate,
        "freeBytes": free,
        "daysUntilFull": round(free / rate, 1) if free is not None and rate and is_whole else None,
    }
    table = pa.Table.from_pylist(rows, _TOPIC_SCHEMA)
    return Statistics(
        numbers=numbers, table=table, tables={**tables, "retention": pa.Table.from_pylist(plans, _RETENTION_SCHEMA)}
    )


def _topic_rows(found: Partial) -> Iterator[dict[str, Any]]:
    queues = _by_topic(found, "queues", "messages")
    spread_of = {label: _by_topic(found, name, "bucket", "messages") for label, name in _SPREADS}
    for row in found.tables["topics"].to_pylist() if found.tables else ():
        topic = row["topic"]
        counts = np.array(queues[topic]["messages_list"])
        seconds = max((row["last"] - row["first"]) / 1000, 1.0)
        shown = {
            **row,
            "queues": counts.size,
            "messagesPerSecond": round(row["messages"] / seconds, 3),
            "bytesPerSecond": round(row["bytes"] / seconds, 3),
            "skew": round(float(counts.max() / counts.mean()), 3),
            "keys": cardinality(found.keys[topic]) if topic in found.keys else 0,
        }
        for name, by_topic in spread_of.items():
            buckets, messages = (np.array(by_topic[topic][f"{each}_list"]) for each in ("bucket", "messages"))
            for label, share in (("P50", 0.5), ("P99", 0.99), ("Max", 1.0)):
                shown[name + label] = quantile(buckets, messages, share)
        yield shown


def _by_topic(found: Partial, name: str, *columns: str) -> dict[str, dict[str, list[int]]]:
    """Return columns of a table by topic, as lists."""
    if not found.tables:
        return {}
    lists = found.tables[name].group_by("topic", use_threads=False).aggregate([(each, "list") for each in columns])
    return {row["topic"]: row for row in lists.to_pylist()}


def _shown(table: pa.Table, name: str) -> pa.Table:
    """Sort a table, name its times, and replace buckets by their least values."""
    by = DIMENSIONS[name]
    if "bucket" in by:
        least = pa.array([least_of(each) for each in table["bucket"].to_pylist()], pa.int64())
        label = "bytesFrom" if name == "sizes" else "msFrom"
        table = table.set_column(by.index("bucket"), label, least)
        by = tuple(label if each == "bucket" else each for each in by)
    for column in ("minute", "first", "last"):
        if column in table.column_names:
            table = table.set_column(table.column_names.index(column), column, table[column].cast(_TIME))
    return table.sort_by([(each, "ascending") for each in by])


def _bytes_per_day(found: Partial) -> int:
    """Return the bytes of the last day; of a younger store those of its time, at least an hour, as of a day."""
    if not found.tables:
        return 0
    minutes = found.tables["minutes"]
    times, sizes = minutes["minute"].to_numpy(), minutes["bytes"].to_numpy()
    last = int(times.max())
    recent = times > last - _DAY_MS
    span = min(_DAY_MS, max(last - int(times.min()), 60 * _MINUTE_MS))
    return int(sizes[recent].sum() * (_DAY_MS / span))


def _retention(snapshot: Snapshot, now_ms: int, commit_log_paths: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Yield what a broker with some settings of ``fileReservedTime`` would delete now, of the CommitLog."""
    if snapshot.log.is_agreed:  # a DLedger group deletes by rules of its own
        return
    sizes = {segment.base: segment.size for segment in snapshot.log.segments}
    for hours in _RESERVED_HOURS:
        settings = RetentionSettings(file_reserved_hours=hours, files_per_run=max(len(sizes), 1))
        plan = plan_retention(
            snapshot.path,
            settings,
            Conditions(now_ms=now_ms, manual=True, log_used=0.0, queues_used=0.0),
            commit_log_paths=commit_log_paths,
        )
        freed = [size for base, size in sizes.items() if base < plan.log_start] if plan.log_start >= 0 else []
        yield {"reservedHours": hours, "freedSegments": len(freed), "freedBytes": sum(freed)}


# A page of HTML


def page_of(found: "Statistics", title: str) -> str:
    """Return statistics as one page of HTML: plots as SVG inside it, tables, no script, nothing from a network.

    Every text is escaped: topics may be named ``<script>``. `MissingExtraError` without matplotlib.
    """
    numbers = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(_value(name, value))}</dd></div>"
        for name, value in found.numbers.items()
    )
    largest = {name: found.tables[name].sort_by([("bytes", "descending")]) for name in _BY_SIZE if name in found.tables}
    every = {"topics": found.table, **found.tables, **largest}
    tables = "".join(_table(name, every[name]) for name in _ON_PAGE if name in every)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_text(title)}</h1><p>Times are in UTC. Lateness is the time from born to stored.</p>"
        f'<dl>{numbers}</dl><div class="plots">{_plots(found)}</div>{tables}</body></html>\n'
    )


def _plots(found: "Statistics") -> str:
    if not found.table.num_rows:
        return ""
    tables = found.tables
    largest = found.table.slice(0, _BARS_MAX)
    return "".join(
        [
            _plot("Messages per minute (UTC)", lambda axes: _over_time(axes, tables["minutes"])),
            _plot("Bytes by topic", lambda axes: _bars(axes, largest)),
            _plot("Size of messages (bytes)", lambda axes: _distribution(axes, tables["sizes"], "bytesFrom")),
            _plot("From born to stored (ms)", lambda axes: _distribution(axes, tables["lateness"], "msFrom")),
        ]
    )


def _plot(title: str, draw: Any) -> str:
    optional_module("matplotlib", "plots need", extra="plots")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": title}
    settings |= {"axes.grid": True, "axes.axisbelow": True}
    with rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a font may lack the letters of a topic; the browser has its own fonts
        figure = Figure(figsize=(6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.set_title(title)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return f"<figure>{svg[svg.index('<svg') :]}</figure>"


def _over_time(axes: "Axes", minutes: pa.Table) -> None:
    times = minutes["minute"].cast(pa.int64()).to_numpy() // 60_000
    first, last = int(times.min()), int(times.max())
    width = -(-(last - first + 1) // _BINS_MAX)
    counts = np.bincount((times - first) // width, weights=minutes["messages"].to_numpy()) / width
    # One more edge than counts: the last bin has a width, also if it is the only one.
    edges = ((first + np.arange(counts.size + 1) * width) * 60).astype("datetime64[s]")
    axes.stairs(counts, edges, fill=True, alpha=0.6)
    axes.tick_params(axis="x", rotation=25)
    axes.set_ylim(bottom=0)


def _bars(axes: "Axes", topics: pa.Table) -> None:
    from matplotlib.ticker import EngFormatter

    names = [printable(name, _NAME_MAX) for name in topics["topic"].to_pylist()]
    places = np.arange(len(names))
    axes.barh(places, topics["bytes"].to_numpy())
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(EngFormatter("B"))


def _distribution(axes: "Axes", table: pa.Table, column: str) -> None:
    """Draw the share of messages up to each value."""
    from matplotlib.ticker import EngFormatter, NullFormatter

    values, counts = table[column].to_numpy(), table["messages"].to_numpy()
    order = np.argsort(values)
    axes.step(np.maximum(values[order], 1), np.cumsum(counts[order]) / counts.sum() * 100, where="post")
    axes.set_xscale("log")
    # The default formatter writes powers in TeX, which is off: a topic may be named `$x$`.
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("% of messages")


def _table(name: str, table: pa.Table) -> str:
    numeric = {each.name for each in table.schema if pa.types.is_integer(each.type) or pa.types.is_floating(each.type)}

    def cell(tag: str, column: str, text: str) -> str:
        return f"<{tag}{' class=number' if column in numeric else ''}>{_text(text)}</{tag}>"

    head = "".join(cell("th", column, column) for column in table.column_names)
    rows = "".join(
        f"<tr>{''.join(cell('td', column, _value(column, value)) for column, value in row.items())}</tr>"
        for row in rows_of(table.slice(0, _ROWS_MAX))
    )
    more = f"<p>The first {_ROWS_MAX} of {table.num_rows:,} rows.</p>" if table.num_rows > _ROWS_MAX else ""
    return f'<h2>{_text(name.capitalize())}</h2><div class="table"><table><tr>{head}</tr>{rows}</table></div>{more}'


def _value(name: str, value: object) -> str:
    """Write a number with the unit that its name tells, and a time without its zone."""
    if value is None:
        return "–"
    if not isinstance(value, int | float):
        return str(value).replace("T", " ").removesuffix("Z") if name in {"minute", "first", "last"} else str(value)
    if name.startswith(("lateness", "ms")):
        return _scaled(value, _DURATIONS)
    if "bytes" in name.lower() or name.startswith("size"):
        per = "/s" if name.endswith("PerSecond") else "/day" if name.endswith("PerDay") else ""
        return _scaled(value, _SIZES) + per
    return f"{value:,} {'days' if name.startswith('days') else 'h' if name.endswith('Hours') else ''}".rstrip()


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    scale, unit = next((each for each in units if abs(value) >= each[0]), units[-1])
    return f"{value / scale:,.{0 if scale == 1 else 1}f} {unit}"


def _text(text: str) -> str:
    return html.escape(printable(text))
