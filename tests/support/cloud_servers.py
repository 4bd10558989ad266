"""Servers of GCS and Azure that others wrote, each in a process of its own; tests are skipped where they are missing.

::

    fake_gcs()  ─► fake-gcs-server   go install github.com/fsouza/fake-gcs-server@latest
    azurite()   ─► azurite-blob      npm install -g azurite
"""

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Final
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from segmentlog.store.format.message import Bytes
from segmentlog.store.objects.object_store import ObjectInfo, ObjectStore
from segmentlog.store.objects.opening import open_objects

from .delegating import Delegating
from .s3_servers import free_address, program_of_go, running

_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of each azurite, as its documentation has them."""
_VERSION: Final = "2021-08-06"
_QUIET: Final = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class UploadedByJson(Delegating):
    """An object store of fake-gcs-server, which has no uploads by GCS's XML API, as obstore makes them."""

    # Drop when `PUT /BUCKET/OBJECT` without a query is not answered with `invalid uploadType`.

    def __init__(self, objects: ObjectStore, server: str, bucket: str, prefix: str) -> None:
        super().__init__(objects)
        self._objects, self._place, self._prefix = objects, f"{server}/upload/storage/v1/b/{bucket}/o", prefix

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        if if_absent:
            pytest.skip("fake-gcs-server has no uploads by the XML API of GCS, so no put if absent of obstore's")
        place = f"{self._place}?uploadType=media&name={quote(f'{self._prefix}/{key}', safe='')}"
        urlopen(Request(place, data.tobytes(), method="POST")).close()
        return self._objects.head(key)


@contextmanager
def fake_gcs() -> Iterator[ObjectStore]:
    program = program_of_go("fake-gcs-server")
    if program is None:
        pytest.skip("fake-gcs-server is not installed")
    address = free_address()
    host, port = address.split(":")
    server = f"http://{address}"
    command = [program, "-backend", "memory", "-scheme", "http", "-host", host, "-port", port, "-public-host", address]
    with running(subprocess.Popen(command, **_QUIET), address):
        bucket = json.dumps({"name": "logs"}).encode()
        made = Request(f"{server}/storage/v1/b?project=p", bucket, {"Content-Type": "application/json"})
        urlopen(made).close()
        objects = open_objects("gs://logs/a/prefix", {"google_base_url": server, "google_bearer_token": "any"})
        yield UploadedByJson(objects, server, "logs", "a/prefix")


@contextmanager
def azurite() -> Iterator[ObjectStore]:
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite is not installed")
    address = free_address()
    port = address.split(":")[1]
    command = [program, "--silent", "--inMemoryPersistence", "--disableTelemetry", "--blobPort", port]
    with running(subprocess.Popen(command, **_QUIET), address):
        endpoint = f"http://{address}/{_ACCOUNT}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed = "PUT" + "\n" * 12 + f"{named}/{_ACCOUNT}/{_ACCOUNT}/logs\nrestype:container"
        signature = hmac.digest(base64.b64decode(_KEY), signed.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signature).decode()}"
        urlopen(Request(f"{endpoint}/logs?restype=container", headers=headers, method="PUT")).close()
        options = {"azure_storage_account_name": _ACCOUNT, "azure_storage_account_key": _KEY}
        yield open_objects("az://logs/a/prefix", options | {"azure_storage_endpoint": endpoint})
