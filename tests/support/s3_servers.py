"""Servers of S3 that others wrote, on this machine: moto's in this process, and versitygw in a process of its own.

::

    moto_server()  ─┐
    versitygw()    ─┴─► S3Server ── url("name") ──► s3://NAME in a new bucket ──► open_objects(url, server.options)
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

_KEYS: Final = {"aws_access_key_id": "someone", "aws_secret_access_key": "their-secret"}
_REGION: Final = "us-east-1"
_STARTS_S: Final = 60
_numbers: Final = count()


class S3Server(NamedTuple):
    """A server of S3 whose buckets are made when they are asked for."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {"aws_endpoint": self.endpoint, "aws_region": _REGION, **_KEYS}

    def url(self, name: str = "logs") -> str:
        """Make a bucket, and return the URL of a prefix in it."""
        boto3: Any = pytest.importorskip("boto3")
        bucket = f"{name}-{os.getpid()}-{next(_numbers)}"
        boto3.client("s3", endpoint_url=self.endpoint, region_name=_REGION, **_KEYS).create_bucket(Bucket=bucket)
        return f"s3://{bucket}/a/prefix"


@contextmanager
def moto_server() -> Iterator[S3Server]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


def versitygw_program() -> str | None:
    """Return the path of versitygw, which ``go install github.com/versity/versitygw/cmd/versitygw@latest`` makes."""
    return program_of_go("versitygw")


def program_of_go(name: str) -> str | None:
    """Return the path of a program, also if only ``go install`` knows its directory."""
    go = Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin"
    return shutil.which(name) or shutil.which(name, path=go)


@contextmanager
def versitygw(folder: Path) -> Iterator[S3Server]:
    program = versitygw_program()
    if program is None:
        pytest.skip("versitygw is not installed")
    buckets, attributes = folder / "buckets", folder / "attributes"
    for each in (buckets, attributes):
        each.mkdir(parents=True)
    address = free_address()
    keys = {"ROOT_ACCESS_KEY": _KEYS["aws_access_key_id"], "ROOT_SECRET_KEY": _KEYS["aws_secret_access_key"]}
    # A file system in memory may have no extended attributes.
    command = [program, "--quiet", "--port", address, "posix", "--sidecar", attributes, buckets]
    process = subprocess.Popen(command, env=os.environ | keys, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with running(process, address):
        yield S3Server(f"http://{address}")


def free_address() -> str:
    """Return an address of this machine with a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def running(process: "subprocess.Popen[bytes]", address: str) -> Iterator[None]:
    """Wait until a server listens, and kill it at the end."""
    try:
        _await(process, address)
        yield
    finally:
        process.kill()
        process.wait()


def _await(process: "subprocess.Popen[bytes]", address: str) -> None:
    host, port = address.split(":")
    until = time.monotonic() + _STARTS_S
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise OSError(f"{process.args!r} does not listen at {address}")
