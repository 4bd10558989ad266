import pickle
from types import ModuleType

import pytest

from segmentlog import store
from segmentlog.connector import errors as connector_errors
from segmentlog.store import Remedy, SegmentLogError, UnreadableError, errors


def kinds_of(module: ModuleType) -> list[type[SegmentLogError]]:
    """Return the errors that a module defines."""
    found = (kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__)
    return [kind for kind in found if issubclass(kind, SegmentLogError)]


KINDS = kinds_of(errors)


@pytest.mark.parametrize("kind", [*KINDS, *kinds_of(connector_errors)])
def test_every_error_crosses_to_another_process(kind: type[SegmentLogError]) -> None:
    error = kind("the problem", path="/store/file", offset=7, fix="Do this")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == f"[{kind.condition}] the problem (in /store/file at offset 7). Do this."
    assert (again.problem, again.path, again.offset, again.fix) == ("the problem", "/store/file", 7, "Do this")


@pytest.mark.parametrize("kind", KINDS)
def test_remedies_cross_to_another_process_as_they_were_worded(kind: type[SegmentLogError]) -> None:
    error = kind("the problem", fix="Do this", remedies=(Remedy.SKIP_LOST, Remedy.WAIT_LONGER))
    assert error.fix == f"Do this. {Remedy.SKIP_LOST.value}. {Remedy.WAIT_LONGER.value}"
    error.reword({Remedy.SKIP_LOST: "Say so", Remedy.NEW_APP: "not asked for"})
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == f"[{kind.condition}] the problem. Do this. Say so."
    assert (again.remedies, again.described) == (error.remedies, f"[{kind.condition}] the problem")


def test_an_error_is_restated_with_its_advice() -> None:
    error = errors.FormatError("one thing", path="/a", offset=7, fix="Do this", remedies=(Remedy.SKIP_LOST,))
    error.reword({Remedy.SKIP_LOST: "Say so"})
    again = error.restated("another", path="/b")
    assert str(again) == "[SEGMENTLOG_BAD_FORMAT] another (in /b at offset 7). Do this. Say so."
    assert error.restated("another").path == "/a"


def test_an_error_without_advice() -> None:
    assert errors.FormatError("x").fix is None
    assert str(errors.FormatError("x")) == "[SEGMENTLOG_BAD_FORMAT] x."


def test_an_io_error_keeps_its_number_in_another_process() -> None:
    error = errors.MissingFileError("gone", path="/store/file", errno=2)
    assert pickle.loads(pickle.dumps(error)).errno == 2


def test_every_error_is_offered_at_the_door_and_has_its_condition() -> None:
    assert {kind.__name__ for kind in KINDS} <= set(store.__all__)
    assert len({kind.condition for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.NotAStoreError, FileNotFoundError),
        (UnreadableError, PermissionError),
        (errors.UnknownQueueError, KeyError),
        (errors.OffsetOutOfRangeError, IndexError),
        (errors.ConfigError, ValueError),
    ],
)
def test_errors_that_are_pythons_as_well(kind: type[SegmentLogError], base: type[Exception]) -> None:
    assert issubclass(kind, base)


@pytest.mark.parametrize("name", ["line\nend", "escape\x1b[2J", "\udcff", "\u202eright to left"])
def test_a_hostile_path_is_shown_harmless(name: str) -> None:
    text = str(SegmentLogError("x", path=f"/store/{name}"))
    assert text.isprintable()
    assert "/store/" in text
    assert "/store/grüße/已支付" in str(SegmentLogError("x", path="/store/grüße/已支付"))
