"""Errors in terms of this API's arguments."""

import inspect
import re
import sys

import pytest

import segmentlog
from segmentlog.api.errors import WORDS, in_api_words, optional_module
from segmentlog.store import DataLossError, MissingExtraError, OnCorrupt, OnLoss, Remedy


def test_remedies_name_arguments_that_exist() -> None:
    scan, opened = inspect.signature(segmentlog.Store.scan), inspect.signature(segmentlog.open)
    for words in WORDS.values():
        for argument in re.findall(r"(\w+)=", words):
            assert argument in {**scan.parameters, **opened.parameters}, words
        for kind, member in re.findall(r"(OnLoss|OnCorrupt)\.([A-Z]+)", words):
            assert member in {"OnLoss": OnLoss, "OnCorrupt": OnCorrupt}[kind].__members__


def test_errors_are_worded_and_others_pass() -> None:
    with pytest.raises(DataLossError) as raised, in_api_words():
        raise DataLossError("2 messages are gone", remedies=(Remedy.SKIP_LOST, Remedy.NEW_APP))
    assert raised.value.fix == WORDS[Remedy.SKIP_LOST]
    with pytest.raises(KeyError), in_api_words():
        raise KeyError


def test_a_package_that_fails_for_another_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert optional_module("json", "x()").loads("1") == 1
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"x\(\) needs the package polars"):
        optional_module("polars", "x()")

    def broken(name: str) -> None:
        raise ModuleNotFoundError(name="libmissing")

    monkeypatch.setattr("segmentlog.api.errors.import_module", broken)
    with pytest.raises(ModuleNotFoundError) as raised:
        optional_module("polars", "x()")
    assert not isinstance(raised.value, MissingExtraError)
