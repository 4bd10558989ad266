import gc
import os
import select
import socket
import ssl
import struct
import subprocess
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import ConfigError, ReplicationError
from segmentlog.store.ha import Address, Tls, link
from segmentlog.store.ha.link import Acceptor, Link, connect
from support import certificates
from support.certificates import Authority

needs_openssl = pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    return authority.sign("peer")


@contextmanager
def linked(client: Tls | None, server: Tls | None) -> Iterator[tuple[Link, Link]]:
    """Yield both ends of a connection; the accepting one does nothing but answer the handshake before."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(connect, Address("127.0.0.1", listener.getsockname()[1]), 30, client)
        with Acceptor(server).link(listener.accept()[0]) as far:
            while not connecting.done():
                with suppress(OSError, ReplicationError):  # the cause is the error of the other end
                    assert far.receive(memoryview(bytearray(1))) == 0
                    far.wait(0.01)
            with connecting.result() as near:
                yield near, far


def passed(near: Link, far: Link, data: bytes) -> bytes:
    """Send bytes from one link to the other, in pieces as the connection takes them."""
    left, got, buffer = memoryview(data), b"", memoryview(bytearray(1 << 20))
    while len(got) < len(data):
        left = left[near.send([left[:5], left[5:]]) :] if left else left
        got += bytes(buffer[: far.receive(buffer)])
    return got


@pytest.mark.parametrize("is_secret", [False, pytest.param(True, marks=needs_openssl)])
def test_bytes_pass_both_ways(is_secret: bool, request: pytest.FixtureRequest) -> None:
    files = request.getfixturevalue("tls") if is_secret else None
    data = os.urandom(3_000_000)
    with linked(files, files) as (near, far):
        assert passed(near, far, data) == data
        assert passed(far, near, data) == data
        assert not near.wait(0.0)
        assert near.receive(memoryview(bytearray(10))) == 0
        far.send_all(b"report", 5)
        assert near.wait(5)
        assert near.receive(memoryview(bytearray(10))) == 6
        far.close()
        assert near.wait(5)
        with pytest.raises(ReplicationError, match="closed the connection"):
            near.receive(memoryview(bytearray(10)))


def test_a_peer_that_takes_nothing_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        link = Link(ours)
        with link, pytest.raises(ReplicationError, match="took nothing"):
            link.send_all(bytes(50 << 20), 0.05)


@needs_openssl
def test_the_certificate_of_a_master_names_its_address(authority: Authority, tls: Tls) -> None:
    elsewhere = authority.sign("elsewhere", address="10.9.8.7")
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"), linked(tls, elsewhere):
        pass


@needs_openssl
def test_a_file_that_is_not_a_certificate_or_key_is_named_in_the_error(tmp_path: Path, tls: Tls) -> None:
    (tmp_path / "text").write_text("text")
    for wrong in ("certificate", "key", "authority"):
        for file in (str(tmp_path / "text"), str(tmp_path / "missing")):
            with pytest.raises(ConfigError, match=f"tls: the .*{wrong} {file}.* cannot be used"):
                Acceptor(replace(tls, **{wrong: file}))


@needs_openssl
def test_a_key_with_a_passphrase_is_refused_and_nothing_is_asked_for(tmp_path: Path, tls: Tls) -> None:
    key = str(tmp_path / "encrypted.key")
    words = ["openssl", "ec", "-in", tls.key, "-out", key, "-aes256", "-passout", "pass:secret"]
    subprocess.run(words, check=True, capture_output=True)
    with pytest.raises(ConfigError, match=f"with the key {key} cannot be used: the key has a passphrase"):
        Acceptor(replace(tls, key=key))


def test_an_address_as_text_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'host-b:10912' is not an Address\. Pass such as Address\('broker-a', 10912\)"
    ):
        connect("host-b:10912", 1.0, None)  # type: ignore[arg-type]


@contextmanager
def reset_connection() -> Iterator[socket.socket]:
    """Yield a connection that its peer has reset, and bytes of which are still to be read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        poll = select.poll()
        poll.register(near, 0)
        assert poll.poll(60_000)
        yield near


@needs_openssl
@pytest.mark.parametrize("side", ["replica", "master"])
def test_a_connection_that_was_reset_before_the_handshake_is_closed(
    tls: Tls, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reset_connection() as connection, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setattr(link.socket, "create_connection", lambda *_, **__: connection)
        sides = {
            "replica": lambda: connect(Address("127.0.0.1", 1), 30, tls),
            "master": lambda: Acceptor(tls).link(connection),
        }
        with pytest.raises(ConnectionAbortedError, match="the peer left before the handshake"):
            sides[side]()
        gc.collect()
    assert [str(each.message) for each in caught] == []
    assert connection.fileno() == -1
