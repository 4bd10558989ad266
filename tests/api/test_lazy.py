import operator
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import segmentlog
from segmentlog.api import scan as scan_module
from segmentlog.api.lazy import conditions
from segmentlog.store import CorruptRecordError, DataLossError, QueueRange, ScanSpec, Tags

START = datetime(2026, 1, 31, tzinfo=UTC)
COLUMNS = ["topic", "queueId", "queueOffset", "storeTimestamp", "tags", "keys", "body"]
ORDER = ["topic", "queueId", "queueOffset"]
NATIVE = frozenset(COLUMNS)
Made: TypeAlias = tuple[segmentlog.Scan, pl.DataFrame]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def compared(name: str, value: Any) -> list[pl.Expr]:
    column = pl.col(name)
    return [column == value, column != value, column < value, column <= value, column > value, column >= value]


SEVERAL = {
    "topic": [["orders"], ["orders", "payments"], ["none"], []],
    "tags": [["paid"], ["paid", "none"], ["", "sent"], [None, "paid"], []],
    "queueId": [[0], [1, 3], [-1], [None, 2], []],
    "queueOffset": [[0, 99], [5], [100], []],
}
ATOMS: list[pl.Expr] = [
    *(each for value in ("orders", "x") for each in compared("topic", value)),
    *(each for value in ("paid", "") for each in compared("tags", value)),
    *(each for value in (0, 2, 7, -1, 1.5) for each in compared("queueId", value)),
    *(each for value in (0, 50, 99, 1 << 40) for each in compared("queueOffset", value)),
    *(each for seconds in (-1, 0, 100.0005, 399, 1e6) for each in compared("storeTimestamp", at(seconds))),
    pl.lit("paid") == pl.col("tags"),
    pl.lit(1) < pl.col("queueId"),
    pl.lit(at(300)) >= pl.col("storeTimestamp"),
    pl.col("queueOffset").is_between(10, 20),
    pl.col("storeTimestamp").is_between(at(50), at(60), closed="none"),
    pl.col("storeTimestamp").is_between(at(60), at(50)),
    pl.col("storeTimestamp").dt.second() == 7,
    pl.col("tags").is_null(),
    pl.col("tags").eq_missing(pl.lit(None)),
    pl.col("tags").str.starts_with("p"),
    pl.col("keys") == "key-7",
    pl.col("queueId").is_in([None, 1], nulls_equal=True),
    pl.col("queueId") == pl.col("queueOffset"),
    pl.col("queueId").cast(pl.String) == "1",
    pl.lit(True),
    *(pl.col(name).is_in(values) for name, lists in SEVERAL.items() for values in lists),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    """Scans, each with all of its rows."""
    from support.store_builder import Geometry, StoreBuilder, messages  # noqa: PLC0415 - beside its only use

    path = tmp_path_factory.mktemp("lazy") / "broker-a"
    with StoreBuilder(path, geometry=Geometry(segment_bytes=1 << 15, queue_segment_entries=50)) as builder:
        for topic in ("orders", "payments"):
            builder.append(messages(400, topic=topic, store_time_start=int(START.timestamp() * 1000), step_ms=1000))
    store = segmentlog.open(path)
    every = ["orders", "payments"]
    scans = [
        store.scan(every, columns=COLUMNS),
        store.scan(every, columns=COLUMNS, tags=["paid", "none"], start={("orders", 1): 7, ("payments", 0): 0}),
        store.scan(every, columns=COLUMNS, sql="KEYS = 'key-7' OR TAGS IN ('sent', 'x')", start=at(20), end=at(350)),
    ]
    return [(scan, scan.to_polars()) for scan in scans]


@pytest.fixture
def scan(made: list[Made]) -> segmentlog.Scan:
    return made[0][0]


def check(made: Made, predicate: pl.Expr, columns: Sequence[str] = COLUMNS) -> None:
    scan, frame = made
    eager = frame.filter(predicate).select(columns)
    lazy = scan.lazy().filter(predicate).select(columns).collect()
    assert lazy.schema == eager.schema
    assert lazy.equals(eager)


@pytest.mark.scaled(quick=12)
@pytest.mark.parametrize("predicate", ATOMS, ids=str)
def test_a_filter_equals_that_of_an_eager_frame(made: list[Made], predicate: pl.Expr) -> None:
    for each in made:
        check(each, predicate)
    check(made[0], ~predicate)
    check(made[0], predicate, ["body"])


expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(operator.invert),
        st.lists(inner, min_size=3, max_size=3).map(lambda parts: reduce(operator.xor, parts)),
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(predicate=expressions, which=st.integers(0, 2))
def test_conditions_in_any_combination(made: list[Made], predicate: pl.Expr, which: int) -> None:
    check(made[which], predicate)


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        (pl.col("tags") == "paid", {"tags": [("paid", "paid")]}),
        (pl.col("tags").is_in(["a", "b"]) & (pl.col("tags") != "c"), {"tags": [("a", "a"), ("b", "b")]}),
        (
            (pl.col("queueId") == 1) & pl.col("queueOffset").is_between(3, 9) & (pl.col("keys") == "k"),
            {"queueId": [(1, 1)], "queueOffset": [(3, 9)]},
        ),
        ((pl.col("queueId") == 1) | (pl.col("queueId") == 3), {"queueId": [(1, 1), (3, 3)]}),
        ((pl.col("queueId") == 1) | (pl.col("keys") == "k"), {}),
        (pl.col("storeTimestamp") >= at(0), {"storeTimestamp": [(1_769_817_600_000, float("inf"))]}),
        ((pl.col("topic") == "a") & (pl.col("topic") == "b"), {"topic": []}),
        (~(pl.col("topic") == "a"), {}),
    ],
    ids=str,
)
def test_conditions_that_a_store_can_answer_are_found_in_a_predicate(predicate: pl.Expr, found: dict[str, Any]) -> None:
    """If a release of Polars writes its expressions in another form, this fails, and results stay right."""
    assert conditions(predicate, NATIVE) == found


def test_a_form_that_is_not_known_narrows_nothing() -> None:
    class Strange:
        class meta:  # noqa: N801 - as in Polars
            @staticmethod
            def serialize(**_: str) -> str:
                return '{"BinaryExpr": 7}'

    assert conditions(Strange(), NATIVE) == {}  # type: ignore[arg-type]


class Reads:
    """Ranges and specification that a lazy frame reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: Sequence[QueueRange] = ()
        self.spec: ScanSpec | None = None
        read = scan_module.Scan._read

        def noted(scan: segmentlog.Scan, ranges: Sequence[QueueRange], spec: ScanSpec, threads: int) -> Any:
            self.ranges, self.spec = ranges, spec
            return read(scan, ranges, spec, threads)

        monkeypatch.setattr(scan_module.Scan, "_read", noted)


def test_less_is_read(scan: segmentlog.Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)
    wanted = (pl.col("topic") == "orders") & (pl.col("queueId") == 2) & (pl.col("tags") == "paid")
    wanted &= pl.col("storeTimestamp") >= at(200)
    frame = scan.lazy().filter(wanted).select("keys").collect()
    (only,) = reads.ranges
    assert (only.key.topic, only.key.queue_id, only.start, only.stop) == ("orders", 2, 50, 100)
    assert reads.spec is not None
    assert set(reads.spec.columns) == {"topic", "queueId", "storeTimestamp", "tags", "keys"}
    assert reads.spec.predicate.filter == Tags(frozenset({"paid"}))
    assert frame.height > 0
    assert frame.equals(scan.to_polars().filter(wanted).select("keys"))


def test_rows_and_columns_are_limited(scan: segmentlog.Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)
    assert scan.lazy().head(3).select("keys").collect().height == 3
    assert reads.spec is not None
    assert reads.spec.columns == ("keys",)
    assert reads.spec.batch_rows == 3
    assert scan.lazy().select(pl.len()).collect().item() == 800
    limited = scan.lazy().head(300).filter(pl.col("tags") == "paid").collect()
    assert limited.equals(scan.to_polars().head(300).filter(pl.col("tags") == "paid"))
    assert scan.lazy().head(0).collect().schema == scan.to_polars().schema
    joined = scan.lazy().join(scan.lazy(), on=ORDER).select(pl.len())
    assert joined.collect(engine="streaming").item() == 800
    assert scan.lazy().filter(pl.col("topic") == "none").collect().height == 0


def test_a_property_is_not_taken_for_a_column(tmp_path: Path) -> None:
    with segmentlog.open(tmp_path / "store", "x", config=segmentlog.Config(segment_bytes=1 << 20)) as store:
        store.append("orders", b"1", tags="a", properties={"tags": "b"})
        store.append("orders", b"2", tags="b", properties={"tags": "a"})
        store.flush()
        scan = store.scan("orders", columns="body", properties="tags")
        assert scan.lazy().filter(pl.col("tags") == "b").collect().rows() == [(b"1", "b")]


def test_a_lazy_frame_raises_the_errors_of_the_scan(store: segmentlog.Store, path: Path) -> None:
    lazy = store.scan("orders").lazy()
    first, second, *_ = sorted((path / "commitlog").iterdir())
    first.unlink()
    with pytest.raises(DataLossError, match="on_loss='skip'"):
        lazy.filter(pl.col("storeTimestamp") >= at(1)).collect()
    assert lazy.filter(pl.col("storeTimestamp") >= at(399)).collect().height == 1
    second.write_bytes(b"\1" * second.stat().st_size)
    with pytest.raises(CorruptRecordError):
        store.scan("orders").lazy().collect()
