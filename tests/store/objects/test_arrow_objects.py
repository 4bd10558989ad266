"""Particulars of pyarrow.fs; the contract is in test_object_store.py."""

import errno
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs as arrow_fs

from segmentlog.store.errors import NoSpaceError, StoreIOError, UnsupportedStoreError
from segmentlog.store.objects.arrow_objects import ArrowObjects
from segmentlog.store.objects.opening import open_objects
from segmentlog.store.objects.retries import Retries
from support.delegating import FailingListings
from support.fault_server import Fault, serving


def test_put_if_absent_is_refused_where_pyarrow_has_no_call_for_it(tmp_path: Path) -> None:
    store = ArrowObjects("hdfs://host/x", arrow_fs.LocalFileSystem(), str(tmp_path))
    with pytest.raises(UnsupportedStoreError, match="unless it exists"):
        store.put("a", np.zeros(1, np.uint8), if_absent=True)
    assert store.head("a") is None
    assert store.put("a", np.zeros(1, np.uint8)) is not None


def test_a_write_that_fails_leaves_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArrowObjects("file:///x", arrow_fs.LocalFileSystem(), str(tmp_path), Retries(1, 1), is_local=True)

    broken = errno.EIO

    def refuse(*_: object) -> None:
        raise OSError(broken, "broken")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(StoreIOError, match=r"EIO.*after 2 attempts"):
        store.put("a/b", np.zeros(1, np.uint8), if_absent=True)
    broken = errno.ENOSPC
    with pytest.raises(NoSpaceError, match=r"ENOSPC.*Make room there"):
        store.put("a/b", np.zeros(1, np.uint8), if_absent=True)
    assert list(store.list()) == []
    assert list((tmp_path / "a").iterdir()) == []


def test_a_folder_that_appears_while_it_is_listed_is_listed_again(tmp_path: Path) -> None:
    system = FailingListings(arrow_fs.LocalFileSystem())
    found = ArrowObjects("file:///x", system, str(tmp_path), Retries(3, 5))
    assert list(found.list("none/")) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"1")
    system.failures = 1
    assert [each.key for each in found.list("a/")] == ["a/b"]
    system.failures = 1
    assert found.folders() == ["a"]
    assert system.failures == 0


def test_s3_is_read_without_obstore_if_the_option_asks_for_it() -> None:
    with serving() as server:
        server.store("bucket/p/a", b"0123456789" * 100)
        store = open_objects("s3://bucket/p", server.options(library="pyarrow", max_retries="2"))
        assert isinstance(store, ArrowObjects)
        assert bytes(store.get("a", 3, 7)) == b"3456"
        server.fail(Fault(status=403, code="AccessDenied", times=50))
        with pytest.raises(Exception) as raised:
            store.get("a", 3, 7)
        assert "secret-of-the-test" not in str(raised.value)
