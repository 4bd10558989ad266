"""Small plots of a report: rates beside the peers, latencies, growth. Needs matplotlib (extra ``bench``)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from harness import Result, Unit
from matplotlib import pyplot as plt
from matplotlib import ticker
from report import Report

COLOURS = {"segmentlog": "#0b6e4f", "transport": "#9aa0a6", "parquet": "#d98e04", "kafka": "#b23a48"}
OTHER = "#444444"
RATED = ("read", "sink", "drain")
WIDE = 20
"""An axis that spans more times than this is logarithmic; bars on a shorter one begin at 0."""
COLUMNS = 3
Plot = Callable[[list[Result]], Any]


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw the results into SVG files in a folder; return the files."""
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "segmentlog", "svg.fonttype": "none", "font.size": 9})
    sections = {name: section for name, section in report.sections.items() if name in RATED}
    plots: dict[str, tuple[Plot, list[Result]]] = {
        name: (_rates, [each for each in section.results if each.rows == section.rows])
        for name, section in sections.items()
    }
    plots["latency"] = _latencies, [each for each in report.results.values() if each.unit == Unit.LATENCY]
    plots["growth"] = _growth, [each for each in report.results.values() if each.curve]
    paths = []
    for name, (make, results) in plots.items():
        if results:
            paths.append(folder / f"{name}.svg")
            make(results).savefig(paths[-1], bbox_inches="tight", metadata={"Date": None})
    plt.close("all")
    return paths


def _rates(results: list[Result]) -> Any:
    ordered = sorted(results, key=lambda result: result.rate)
    lows, middles, highs = np.array([each.rates() for each in ordered]).T
    figure, axes = plt.subplots(figsize=(8, 0.26 * len(ordered) + 0.9))
    axes.barh(
        [each.name for each in ordered],
        middles,
        xerr=[middles - lows, highs - middles],
        color=[COLOURS.get(each.peer, OTHER) for each in ordered],
        error_kw={"lw": 1},
    )
    if middles[-1] > WIDE * middles[0]:
        axes.set_xscale("log")
    axes.set_xlabel("rows a second (bars: median, lines: min to max)")
    return figure


def _latencies(results: list[Result]) -> Any:
    figure, axes = plt.subplots(figsize=(8, 3))
    for each in results:
        style = "-" if "foreachBatch" in each.name else ":"
        axes.ecdf(1000 * np.array(each.seconds), linestyle=style, color=COLOURS.get(each.peer, OTHER), label=each.name)
    axes.set_xlabel("ms from the append")
    axes.set_ylabel("share of rows")
    axes.set_xlim(left=0)
    axes.legend(fontsize=7)
    return figure


def _growth(results: list[Result]) -> Any:
    kinds = list(dict.fromkeys(each.curve.partition(", by ")[2] for each in results))
    rows = -(-len(kinds) // COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(9, 2.2 * rows), squeeze=False)
    for axes in grid.flat[len(kinds) :]:
        axes.set_visible(False)
    for kind, axes in zip(kinds, grid.flat, strict=False):
        some = sorted((each for each in results if each.curve.endswith(f", by {kind}")), key=lambda each: each.x)
        for curve in dict.fromkeys(each.curve for each in results if each in some):
            points = [(each.x, each.median_seconds / each.rows * 1e6) for each in some if each.curve == curve]
            axes.plot(*zip(*points, strict=True), marker="o", label=curve.partition(", by ")[0])
        axes.set_xscale("log")
        axes.set_xticks(sorted({each.x for each in some}))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.xaxis.set_major_formatter("{x:,g}")
        low, high = axes.get_ylim()
        if high > WIDE * max(low, 1e-9):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:,g}")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(f"by {kind}", fontsize=9)
        axes.set_ylabel("µs a message")
        axes.legend(fontsize=7)
    figure.tight_layout()
    return figure
