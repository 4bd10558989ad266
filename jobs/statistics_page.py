"""Statistics as one page of HTML: plots as SVG inside it, tables, no script, nothing from a network.

::

    Statistics ──► matplotlib: SVG ─┐
               └─► tables ──────────┴──► <!doctype html> …      every text is escaped: topics may be named <script>
"""

import html
import io
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from segmentlog.output import printable
from segmentlog.store import MissingExtraError

from .report import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .statistics import Statistics

_BARS_MAX: Final = 15
_ROWS_MAX: Final = 200
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


def page_of(found: "Statistics", title: str) -> str:
    """Return the page; `MissingExtraError` without matplotlib."""
    numbers = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(_number(value))}</dd></div>" for name, value in found.numbers.items()
    )
    tables = "".join(_table(name, table) for name, table in {"topics": found.table, **found.tables}.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{_text(title)}</h1><dl>{numbers}</dl><div class="plots">{_plots(found)}</div>{tables}</body></html>\n'
    )


def _plots(found: "Statistics") -> str:
    if not found.table.num_rows:
        return ""
    tables = found.tables
    largest = found.table.slice(0, _BARS_MAX)
    return "".join(
        [
            _plot("Messages per minute", lambda axes: _over_time(axes, tables["minutes"])),
            _plot("Bytes by topic", lambda axes: _bars(axes, largest)),
            _plot("Size of messages (bytes)", lambda axes: _distribution(axes, tables["sizes"], "bytesFrom")),
            _plot("From born to stored (ms)", lambda axes: _distribution(axes, tables["lateness"], "msFrom")),
        ]
    )


def _plot(title: str, draw: Any) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plots need matplotlib", fix="Run: pip install 'segmentlog[plots]'") from None
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
        f"<tr>{''.join(cell('td', column, _number(value)) for column, value in row.items())}</tr>"
        for row in rows_of(table.slice(0, _ROWS_MAX))
    )
    more = f"<p>The first {_ROWS_MAX} of {table.num_rows:,} rows.</p>" if table.num_rows > _ROWS_MAX else ""
    return f'<h2>{_text(name)}</h2><div class="table"><table><tr>{head}</tr>{rows}</table></div>{more}'


def _number(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _text(text: str) -> str:
    return html.escape(printable(text))
