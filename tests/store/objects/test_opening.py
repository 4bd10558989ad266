import importlib
import logging
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store.errors import ConfigError, MissingExtraError, SegmentLogError
from segmentlog.store.objects.arrow_objects import ArrowObjects
from segmentlog.store.objects.object_store import is_object_url
from segmentlog.store.objects.obstore_objects import ObstoreObjects
from segmentlog.store.objects.opening import open_objects
from support.fault_server import Fault, serving

AZURE = {"azure_storage_account_name": "acc", "azure_skip_signature": "true"}


@pytest.mark.parametrize(
    ("url", "client"),
    [
        ("s3://bucket/a/b/", 'S3Store(bucket="bucket", prefix="a/b")'),
        ("s3a://bucket/a", 'S3Store(bucket="bucket", prefix="a")'),
        ("s3n://bucket", 'S3Store(bucket="bucket")'),
        ("gs://bucket/a", 'GCSStore(bucket="bucket", prefix="a")'),
        ("gcs://bucket/a", 'GCSStore(bucket="bucket", prefix="a")'),
        ("az://c/a", 'AzureStore(container_name="c", account_name="acc", prefix="a")'),
        ("abfs://c/a", 'AzureStore(container_name="c", account_name="acc", prefix="a")'),
        ("abfss://c@acc.dfs.core.windows.net/a", 'AzureStore(container_name="c", account_name="acc", prefix="a")'),
        ("https://example.com/a", 'HTTPStore("https://example.com/a")'),
    ],
)
def test_a_url_names_bucket_and_prefix(url: str, client: str) -> None:
    assert is_object_url(url)
    store = open_objects(url, {**AZURE, "google_skip_signature": "true"})
    assert isinstance(store, ObstoreObjects)
    assert repr(store._client) == client
    assert store.url == url.rstrip("/").replace("s3a:", "s3:").replace("s3n:", "s3:").replace("gcs:", "gs:")


@pytest.mark.parametrize("url", ["ftp://host/a", "/data/store", "store", "s3:/bucket"])
def test_other_paths_are_not_object_stores(url: str) -> None:
    assert not is_object_url(url)
    with pytest.raises(ConfigError, match="not the URL of an object store"):
        open_objects(url)


@pytest.mark.parametrize(
    "url",
    ["s3://b/x#a", "s3://b/x?a", "s3://b/x#", "s3://b/../x", "s3://b/x/./y", "s3://b/x//y", "gs://b/x?", "az://c/x#a"],
)
def test_a_url_that_means_another_place_than_it_names_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"%3F and %23|credentials or a query"):
        open_objects(url)


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "gs:///", "abfss://"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=f"`{url}` names no bucket. Write it like {url.partition(':')[0]}://bucket/"):
        open_objects(url)


@pytest.mark.parametrize(
    "url", ["s3://AKIA:s3cret@bucket/a", "https://user:s3cret@host/a", "https://acc.blob.core.windows.net/c?sig=s3cret"]
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_objects(url)
    assert "s3cret" not in "".join(traceback.format_exception(raised.value)).replace(f"open_objects({url!r})", "")
    assert "options" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("az://c/a", {"azure_storage_account_name": "acc", "azure_storage_account_key": "!!s3cret"}),
        ("gs://b/a", {"google_service_account_key": "{s3cret}"}),
        ("s3://b/a", {"aws_access_key_id": "s3cret"}),
        ("s3://b/a", {"timeout": "soon"}),
        ("s3://b/a", {"max_retries": "many"}),
        ("s3://b/a", {"read_gap": "1m"}),
        ("s3://b/a", {"library": "boto"}),
        ("s3://b/a", {"aws_profile": "no-such-profile"}),
    ],
)
def test_a_value_that_makes_no_sense_is_an_error_without_a_credential(url: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        open_objects(url, options)
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


def test_credentials_are_in_no_error_log_or_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving() as server:
        store = open_objects("s3://bucket/p", server.options(aws_session_token="tok3n", max_retries="3"))
        texts = [repr(store), str(store), store.url]
        for fault in (
            Fault(status=403, code="AccessDenied"),
            Fault(status=503, times=9),
            Fault(reset_after=1, times=9),
        ):
            server.fail(fault)
            for call in (lambda: store.get("a", 0, 1), lambda: store.put("a", np.zeros(1, np.uint8))):
                try:
                    call()
                except SegmentLogError as error:
                    texts += traceback.format_exception(error)
        texts += [record.getMessage() for record in caplog.records]
    text = "".join(texts)
    assert "SEGMENTLOG" in text
    for secret in ("secret-of-the-test", "tok3n", "AKIATESTTESTTEST", "Signature="):
        assert secret not in text


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name.startswith(("obstore", "boto3")):
            raise ImportError(name)
        return there(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'segmentlog\[remote\]'"):
        open_objects("s3://bucket/a")
    assert isinstance(open_objects(f"file://{tmp_path}"), ArrowObjects)


def test_hdfs_without_its_client_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    with pytest.raises(ConfigError, match="libhdfs"):
        open_objects("hdfs://127.0.0.1:9/store")


def test_an_endpoint_of_the_environment_may_be_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        options = server.options(max_retries="0")
        monkeypatch.setenv("AWS_ENDPOINT", options.pop("aws_endpoint"))
        options.pop("allow_http", None)
        store = open_objects("s3://bucket/a", options)
        store.put("k", np.frombuffer(b"abc", np.uint8))
        assert [each.key for each in store.list()] == ["k"]


def test_places_with_the_same_options_and_environment_share_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(options: dict[str, str]) -> object:
        return open_objects("az://c/p", options)._client  # type: ignore[attr-defined]

    first = client(AZURE)
    assert client(AZURE) is first
    assert client({**AZURE, "timeout": "7s"}) is not first
    renewed = open_objects("az://c/p", AZURE)
    renewed._renew()  # type: ignore[attr-defined]
    assert renewed._client is not first  # type: ignore[attr-defined]
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "t")
    assert client(AZURE) is not first
