import itertools
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.errors import (
    MissingFileError,
    SegmentLogError,
    StoreClosedError,
    StoreIOError,
    UnreadableError,
    UnsupportedStoreError,
)
from segmentlog.store.objects import obstore_objects, retries
from segmentlog.store.objects.object_store import ObjectStore
from segmentlog.store.objects.obstore_objects import _classified
from segmentlog.store.objects.opening import open_objects
from segmentlog.store.objects.retries import FailureKind
from support.delegating import patch_import
from support.fault_server import Fault, FaultServer, serving

DATA = np.random.default_rng(3).integers(0, 256, 3_000_000, dtype=np.uint8)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setattr(retries, "_FIRST_WAIT_S", 0.001)
    with serving() as found:
        found.store("bucket/p/a", DATA.tobytes())
        yield found


def _open(server: FaultServer, **options: str) -> ObjectStore:
    return open_objects("s3://bucket/p", server.options(**options))


PASSING = {
    "throttled": Fault("GET", status=503, code="SlowDown", times=3),
    "too many": Fault("GET", status=429, code="Throttling", times=3),
    "server error": Fault("GET", status=500, code="InternalError", times=3),
    "gateway": Fault("GET", status=502, times=2),
    "request timeout": Fault("GET", status=400, code="RequestTimeout", times=2),
    "reset before the body": Fault("GET", reset_after=0, times=2),
    "reset in the body": Fault("GET", reset_after=100_000, times=3),
    "short": Fault("GET", short=1000, times=3),
    "empty": Fault("GET", short=0, times=1),
    "lost": Fault("GET", is_lost=True, times=2),
    "stalled": Fault("GET", stall_after=1000, stall_s=3.0, times=1),
    "expired once": Fault("GET", status=400, code="ExpiredToken", times=1),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_costs_time_and_no_byte(server: FaultServer, fault: str) -> None:
    store = _open(server, read_timeout="1s")
    kind = PASSING[fault]
    server.fail(Fault(**vars(kind)))
    assert np.array_equal(store.get("a", 1000, 1_500_000), DATA[1000:1_500_000])
    assert server.counts["GET"] == kind.times + 1


LASTING: dict[str, tuple[Fault, type[SegmentLogError], str]] = {
    "throttled": (Fault(status=503, code="SlowDown"), StoreIOError, r"503 SlowDown, after 3 attempts.*fewer tasks"),
    "server error": (Fault(status=500), StoreIOError, r"500 Error, after 3 attempts"),
    "short": (Fault(short=10), StoreIOError, r"10 of 2000 bytes came, after 3 attempts.*proxy"),
    "reset": (Fault(reset_after=10), StoreIOError, r"the connection broke.*after 3 attempts.*network"),
    "expired": (Fault(status=400, code="ExpiredToken"), UnreadableError, r"400 ExpiredToken.*Renew the credentials"),
    "denied": (Fault(status=403, code="AccessDenied"), UnreadableError, r"403 AccessDenied.*Grant"),
    "signature": (Fault(status=403, code="SignatureDoesNotMatch"), UnreadableError, r"403 SignatureDoesNotMatch"),
    "missing": (Fault(status=404, code="NoSuchKey"), MissingFileError, r"no such object.*deleted"),
    "no bucket": (Fault(status=404, code="NoSuchBucket"), StoreIOError, r"404 NoSuchBucket.*segmentlog makes none"),
    "glacier": (Fault(status=403, code="InvalidObjectState"), StoreIOError, r"403 InvalidObjectState.*restore it"),
    "clock": (Fault(status=403, code="RequestTimeTooSkewed"), StoreIOError, r"403 RequestTimeTooSkewed.*the clock"),
    "another region": (Fault(status=307, code="TemporaryRedirect"), StoreIOError, r"a redirect: .*the region"),
    "redirect": (Fault(status=400, code="AuthorizationHeaderMalformed"), StoreIOError, r"400 Auth.*region"),
    "replaced": (Fault(etag='"other"'), StoreIOError, r"replaced.*open the store again"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_lasts_is_an_error_with_object_range_and_remedy(server: FaultServer, fault: str) -> None:
    store = _open(server, max_retries="2")
    kind, error, pattern = LASTING[fault]
    server.fail(Fault(**{**vars(kind), "method": "GET", "times": 1000}))
    etag = '"x"' if fault == "replaced" else None
    with pytest.raises(error, match=pattern) as raised:
        store.get("a", 1000, 3000, etag)
    assert "reading [1000, 3000) failed" in str(raised.value)
    assert server.counts["GET"] <= 2 or "after 3 attempts" in str(raised.value)
    assert raised.value.path == "s3://bucket/p/a"
    assert raised.value.offset == 1000
    assert raised.value.__cause__ is None
    for secret in ("secret-of-the-test", "AKIATESTTESTTEST", "as the test asked"):
        assert secret not in str(raised.value) + repr(raised.value) + repr(store)


def test_an_etag_is_compared_where_the_server_ignores_the_condition(server: FaultServer) -> None:
    store = _open(server)
    old = store.head("a")
    assert old is not None
    server.is_tolerant = True
    server.store("bucket/p/a", DATA[::-1].tobytes())
    with pytest.raises(StoreIOError, match=r"replaced: its etag is .*, not ") as raised:
        store.get("a", 0, 10, old.etag)
    assert server.counts["GET"] == 1, "nothing is gained by trying again"
    assert isinstance(raised.value, StoreIOError)


def test_expired_credentials_that_a_head_meets_are_renewed(server: FaultServer) -> None:
    store = _open(server)
    before = store._client  # type: ignore[attr-defined]
    server.fail(Fault(status=400, code="ExpiredToken", times=2))  # an answer to HEAD has no code; that to GET has it
    assert store.head("a") is not None
    assert store._client is not before  # type: ignore[attr-defined]
    server.fail(Fault(status=403, code="AccessDenied", times=2))
    with pytest.raises(UnreadableError, match="403 AccessDenied"):
        store.head("a")


def test_a_conflict_of_two_requests_is_tried_again_and_is_not_taken_for_an_object_that_exists(
    server: FaultServer,
) -> None:
    store = _open(server)
    for name, if_absent in (("first", True), ("second", False)):
        if if_absent:
            store.put("probed", DATA[:10], if_absent=True)  # asks for the condition
        server.fail(Fault("PUT", f"p/{name}", status=409, code="ConditionalRequestConflict", times=2))
        found = store.put(name, DATA[:10], if_absent=if_absent)
        assert found is not None
        assert found.size == 10
        assert bytes(store.get(name, 0, 10)) == DATA[:10].tobytes()


def test_an_upload_in_parts_whose_last_answer_is_lost_is_sent_again(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_objects, "_PARTS_FROM", 1 << 20)
    store = _open(server)
    numbers = itertools.count()  # of requests to this key that are POST: the first one begins the upload
    server.at_random = lambda: None
    fault_of = server.fault_of

    def lost(method: str, key: str) -> Fault | None:
        is_last = method == "POST" and key == "p/large" and next(numbers) == 1
        return Fault(is_lost=True) if is_last else fault_of(method, key)

    monkeypatch.setattr(server, "fault_of", lost)
    found = store.put("large", DATA)
    assert found is not None
    assert found.size == DATA.size
    assert np.array_equal(store.get("large", 0, DATA.size), DATA)


def test_marks_of_folders_are_left_out_of_a_list(server: FaultServer) -> None:
    for place in ("bucket/p/", "bucket/p/log/", "bucket/p/log/0/"):
        server.store(place, b"")
    server.store("bucket/p/log/0/x", b"x")
    server.store("bucket/p/empty", b"")
    assert [each.key for each in _open(server).list()] == ["a", "empty", "log/0/x"]


def test_an_etag_of_a_list_is_the_etag_of_the_object(server: FaultServer) -> None:
    store = _open(server)
    for is_bare in (False, True):
        server.is_bare = is_bare
        (listed,) = store.list()
        assert listed == store.head("a")
        assert bytes(store.get("a", 0, 10, listed.etag)) == DATA[:10].tobytes()


def test_a_server_that_never_answered_is_an_error_after_five_seconds_and_one_that_did_is_asked_longer(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_reached", set())
    waits: list[float] = []
    now = iter(range(1, 1000))
    patch_import(
        monkeypatch, retries, "time", monotonic=lambda: float(next(now)), sleep=waits.append
    )  # 1 s per attempt
    refused = {"aws_endpoint": "http://127.0.0.1:9"}
    for ask in (lambda store: store.get("a", 0, 10), lambda store: list(store.list()), lambda store: store.head("a")):
        store = open_objects("s3://bucket/p", server.options(**refused))
        with pytest.raises(StoreIOError, match=r"no connection, after 5 attempts.*Compare the endpoint"):
            ask(store)
    answered = open_objects("s3://bucket/p", server.options(**refused, max_retries="8"))
    monkeypatch.setattr(retries, "_reached", {answered._place})  # type: ignore[attr-defined]
    with pytest.raises(StoreIOError, match=r"no connection, after 9 attempts.*network"):
        answered.get("a", 0, 10)
    assert _open(server).head("a")
    assert len(retries._reached) == 2


def test_a_server_that_pauses_is_an_error_in_time(server: FaultServer) -> None:
    slow = _open(server, retry_timeout="1s", max_retries="100", read_timeout="200ms")
    server.fail(Fault("GET", stall_after=10, stall_s=1.0, times=100))
    began = time.monotonic()
    with pytest.raises(StoreIOError, match=r"no answer in time.*timeout"):
        slow.get("a", 0, 1_000_000)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("host", ["169.254.169.254", "169.254.170.2", "metadata.google.internal"])
def test_an_unreachable_service_of_the_machine_means_that_no_credentials_were_found(host: str) -> None:
    text = f"Error performing PUT http://{host}/latest in 3s - HTTP error: error sending request"
    found = _classified(text)
    assert (found.kind, found.found) == (FailureKind.UNKNOWN, "no credentials were found")


def test_a_key_that_may_not_be_deleted_is_denied(server: FaultServer) -> None:
    server.allowed = frozenset({"s3:GetObject", "s3:PutObject", "s3:ListBucket"})
    with pytest.raises(UnreadableError, match="deleting failed: AccessDenied"):
        _open(server).delete(["a"])


def test_a_list_that_breaks_off_lists_everything_once(server: FaultServer) -> None:
    for number in range(2500):
        server.store(f"bucket/p/log/{number:05}", b"x")
    store = _open(server)
    server.fail(Fault("GET", status=503, code="SlowDown", times=2), Fault("GET", reset_after=5000, times=2))
    assert [each.key for each in store.list("log/")] == [f"log/{number:05}" for number in range(2500)]


CUT_PAGES = {
    "an error with status 200": Fault("GET", body=b"<?xml version='1.0'?><Error><Code>InternalError</Code></Error>"),
    "a page of a proxy": Fault("GET", body=b"<!DOCTYPE html><html><body><p>Sign in<br></body></html>"),
    "an empty page": Fault("GET", body=b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"),
    "no answer at all": Fault("GET", body=b""),
    "no token": Fault("GET", is_tokenless=True),
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("fault", CUT_PAGES)
def test_a_page_that_ends_a_list_early_is_asked_for_again(server: FaultServer, fault: str, at: int, times: int) -> None:
    if at == 0 and times == 2 and fault in {"an empty page", "an error with status 200"}:
        return  # an empty list twice is an empty place
    names = [f"log/{number:05}" for number in range(25)]
    for name in names:
        server.store(f"bucket/p/{name}", b"x")
    server.page, numbers = 10, itertools.count()
    server.at_random = lambda: Fault(**vars(CUT_PAGES[fault])) if at <= next(numbers) < at + times else None
    assert [each.key for each in _open(server).list("log/")] == names


@pytest.mark.parametrize("at", range(4))
def test_a_page_that_ends_a_list_of_folders_early_is_asked_for_again(server: FaultServer, at: int) -> None:
    server.page = 2
    for name in "abcde":
        server.store(f"bucket/prefix/{name}/manifests/1", b"x")
    objects = open_objects("s3://bucket/prefix", server.options())
    requests = iter(range(100))
    server.at_random = lambda: Fault(is_tokenless=True) if next(requests) == at else None
    assert list(objects.folders()) == list("abcde")


def test_a_list_costs_one_request_more_than_its_pages(server: FaultServer) -> None:
    store = _open(server)
    assert list(store.list("log/")) == []
    assert server.counts["GET"] == 2
    assert [each.key for each in store.list()] == ["a"]
    assert server.counts["GET"] == 4


@pytest.mark.parametrize(
    "fault", [Fault("PUT", "p/man", is_lost=True), Fault("PUT", "p/man", status=503, code="SlowDown", times=3)]
)
def test_a_writer_that_lost_its_answer_is_still_the_winner(server: FaultServer, fault: Fault) -> None:
    store = _open(server)
    server.fail(Fault(**vars(fault)))
    mine = np.frombuffer(b"mine" * 100, np.uint8)
    assert store.put("manifests/1", mine, if_absent=True) is not None
    assert bytes(store.get("manifests/1", 0, 400)) == mine.tobytes()
    server.store("bucket/p/manifests/2", b"theirs")
    server.fail(Fault("PUT", "p/man", status=503, code="SlowDown"))
    assert store.put("manifests/2", mine, if_absent=True) is None
    assert store.put("manifests/1", mine, if_absent=True) is None, "no answer was lost: this object was there before"


def test_put_if_absent_is_refused_where_the_server_overwrites(server: FaultServer) -> None:
    server.is_overwriting = True
    store = _open(server)
    for _ in range(2):
        with pytest.raises(UnsupportedStoreError, match="If-None-Match"):
            store.put("manifests/1", DATA, if_absent=True)
    assert list(server.objects) == ["bucket/p/a"]
    server.is_overwriting = False
    store = _open(server)
    server.fail(Fault("PUT", is_lost=True), Fault("PUT", status=503, times=2))
    assert store.put("manifests/1", DATA, if_absent=True) is not None
    assert sorted(server.objects) == ["bucket/p/a", "bucket/p/manifests/1"]


def test_parts_of_a_large_object_are_sent_again(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstore_objects, "_PARTS_FROM", 1 << 20)
    monkeypatch.setattr(obstore_objects, "_PART_BYTES", 1 << 18)
    store = _open(server)
    data = np.arange(9 << 14, dtype="<u8").view(np.uint8)  # four parts and a half
    server.fail(Fault("PUT", status=503, code="SlowDown", times=2), Fault("POST", status=500, times=1))
    info = store.put("big", data)
    assert info is not None
    assert server.objects["bucket/p/big"][0] == data.tobytes()
    assert server.uploads == {}


def test_deletions_are_repeated(server: FaultServer) -> None:
    store = _open(server)
    server.fail(Fault("POST", status=503, code="SlowDown", times=2), Fault("DELETE", status=503, times=2))
    store.delete(["a", "nope"])
    assert list(store.list()) == []


def test_a_store_stays_in_its_process(server: FaultServer) -> None:
    store = _open(server)
    with pytest.raises(TypeError, match="opened in the process"):
        pickle.dumps(store)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            store.head("a")
        except StoreClosedError:
            os.write(write, b"closed")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"closed"
    os.close(read)
    os.close(write)


def test_a_store_that_is_opened_after_a_fork_does_not_wait_for_threads_of_the_parent(server: FaultServer) -> None:
    _open(server).head("a")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            _open(server).head("a")
        except StoreClosedError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    said = select.select([read], [], [], 20)[0]
    if not said:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert said, "it hangs"
    assert b"forked from one that has read or written by URL" in os.read(read, 1000)
    os.close(read)
    os.close(write)


@pytest.mark.slow
def test_random_faults_change_no_byte(server: FaultServer) -> None:
    random = np.random.default_rng(5)
    kinds = [each for each in PASSING.values() if not each.stall_s and each.code != "ExpiredToken"]
    server.at_random = lambda: kinds[int(random.integers(len(kinds)))] if random.random() < 0.5 else None
    store = _open(server, max_retries="100")
    for _ in range(60):
        start, stop = sorted(random.integers(0, DATA.size, 2).tolist())
        assert np.array_equal(store.get("a", start, stop), DATA[start:stop])
    assert server.counts["GET"] > 90


_FULL = """
import resource, sys
import numpy as np
from segmentlog.store.errors import NoSpaceError
from segmentlog.store.objects.opening import open_objects
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    open_objects(sys.argv[1]).put("key", np.zeros(5000, np.uint8))
except NoSpaceError as error:
    print(error)
"""


def test_a_full_file_system_is_one_and_no_wrong_url(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    ran = subprocess.run([sys.executable, "-c", _FULL, url], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("[SEGMENTLOG_NO_SPACE] writing 5000 bytes failed: File too large")
    assert f"(in {url}/key). Make room there" in ran.stdout
