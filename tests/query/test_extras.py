import sys

import pytest

from segmentlog.query.extras import optional_module
from segmentlog.store import MissingExtraError


def test_an_installed_package_with_a_missing_dependency_is_not_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert optional_module("json", "x() needs").loads("1") == 1
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"x\(\) needs the package polars"):
        optional_module("polars", "x() needs")

    def broken(name: str) -> None:
        raise ModuleNotFoundError(name="libmissing")

    monkeypatch.setattr("segmentlog.query.extras.import_module", broken)
    with pytest.raises(ModuleNotFoundError) as raised:
        optional_module("polars", "x() needs")
    assert not isinstance(raised.value, MissingExtraError)
