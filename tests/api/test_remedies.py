import inspect
import re
import sys

import pytest

import segmentlog
from segmentlog.api.remedies import WORDS, in_api_words, optional_module
from segmentlog.store import DataLossError, MissingExtraError, OnCorrupt, OnDamage, OnLoss, ReadFrom, Remedy


def test_remedies_name_arguments_that_exist() -> None:
    calls = (segmentlog.Store.scan, inspect.unwrap(segmentlog.open), segmentlog.Config)
    known = {name for call in calls for name in inspect.signature(call).parameters}
    kinds = {"on_loss": OnLoss, "on_corrupt": OnCorrupt, "on_damage": OnDamage, "read_from": ReadFrom}
    for words in WORDS.values():
        assert set(re.findall(r"(\w+)=", words)) <= known, words
        for argument, value in re.findall(r"(\w+)=['\"](\w+)['\"]", words):
            assert kinds[argument](value)


def test_store_errors_get_the_remedy_of_the_api_and_a_key_error_passes_unchanged() -> None:
    with pytest.raises(DataLossError) as raised, in_api_words():
        raise DataLossError("2 messages are gone", remedies=(Remedy.SKIP_LOST, Remedy.NEW_APP))
    assert raised.value.fix == WORDS[Remedy.SKIP_LOST]
    with pytest.raises(KeyError), in_api_words():
        raise KeyError


def test_an_installed_package_with_a_missing_dependency_is_not_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert optional_module("json", "x()").loads("1") == 1
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"x\(\) needs the package polars"):
        optional_module("polars", "x()")

    def broken(name: str) -> None:
        raise ModuleNotFoundError(name="libmissing")

    monkeypatch.setattr("segmentlog.api.remedies.import_module", broken)
    with pytest.raises(ModuleNotFoundError) as raised:
        optional_module("polars", "x()")
    assert not isinstance(raised.value, MissingExtraError)
