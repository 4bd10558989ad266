"""Three small plots of a report: rates beside the peers, latencies, growth. Needs matplotlib (extra ``bench``)."""

from pathlib import Path

from harness import Result, Unit
from report import Report

COLOURS = {"segmentlog": "#0b6e4f", "transport": "#9aa0a6", "parquet": "#d98e04", "kafka": "#b23a48"}
OTHER = "#444444"
RATED = ("read", "sink", "drain")
WIDE = 20
"""An axis that spans more times than this is logarithmic; bars on a shorter one begin at 0."""


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw the results into SVG files below a folder; return the files."""
    import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to import

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "segmentlog", "svg.fonttype": "none", "font.size": 9})
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in RATED:
        section = report.sections.get(name)
        whole = [] if section is None else [result for result in section.results if result.rows == section.rows]
        if whole:
            made.append(_rates(whole, folder / f"{name}.svg"))
    waits = [result for result in report.results() if result.unit is Unit.LATENCY]
    if waits:
        made.append(_latencies(waits, folder / "latency.svg"))
    grown = [result for result in report.results() if result.curve]
    if grown:
        made.append(_growth(grown, folder / "growth.svg"))
    return made


def _rates(results: list[Result], path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend was chosen

    ordered = sorted(results, key=lambda result: result.rate)
    figure, axes = plt.subplots(figsize=(8, 0.26 * len(ordered) + 0.9))
    lows, middles, highs = zip(*(result.rates() for result in ordered), strict=True)
    spread = [
        [middle - low for middle, low in zip(middles, lows, strict=True)],
        [high - middle for middle, high in zip(middles, highs, strict=True)],
    ]
    colours = [COLOURS.get(result.peer, OTHER) for result in ordered]
    axes.barh([result.name for result in ordered], middles, xerr=spread, color=colours, error_kw={"lw": 1})
    if middles[-1] > WIDE * middles[0]:
        axes.set_xscale("log")
    axes.set_xlabel("rows a second (bars: median, lines: min to max)")
    return _saved(figure, path)


def _latencies(results: list[Result], path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(figsize=(8, 3))
    for result in results:
        waits = sorted(result.seconds)
        shares = [(place + 1) / len(waits) for place in range(len(waits))]
        style = "-" if "foreachBatch" in result.name else ":"
        axes.step(
            [wait * 1000 for wait in waits], shares, style, color=COLOURS.get(result.peer, OTHER), label=result.name
        )
    axes.set_xlabel("ms from the append")
    axes.set_ylabel("share of rows")
    axes.set_xlim(left=0)
    axes.legend(fontsize=7)
    return _saved(figure, path)


def _growth(results: list[Result], path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above
    from matplotlib import ticker  # noqa: PLC0415 - as above

    names = list(dict.fromkeys(result.curve for result in results))
    kinds = list(dict.fromkeys(name.partition(", by ")[2] for name in names))
    columns = 3
    figure, grid = plt.subplots(
        -(-len(kinds) // columns), columns, figsize=(9, 2.2 * -(-len(kinds) // columns)), squeeze=False
    )
    for axes in list(grid.flat)[len(kinds) :]:
        axes.set_visible(False)
    for kind, axes in zip(kinds, grid.flat, strict=False):
        for name in (name for name in names if name.endswith(f", by {kind}")):
            points = sorted((each.x, each.median_seconds / each.rows * 1e6) for each in results if each.curve == name)
            axes.plot(*zip(*points, strict=True), marker="o", label=name.partition(", by ")[0])
        axes.set_xscale("log")
        axes.set_xticks(sorted({each.x for each in results if each.curve.endswith(f", by {kind}")}))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
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
    return _saved(figure, path)


def _saved(figure: object, path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})  # type: ignore[attr-defined]
    plt.close(figure)  # type: ignore[arg-type]
    return path
