"""FaultServer: an object store with the part of S3's protocol that clients use here, which fails as it is told.

::

    server.fail(Fault(status=503, code="SlowDown", times=2))       the next two requests
    server.fail(Fault("GET", "log/", reset_after=1000))            the next GET of a key that begins with log/
                                        │
    client ──► GET /bucket/log/a ──► fault, or answer

One bucket per first part of the path. Requests are counted by method and noted with their keys and ranges.
"""

import contextlib
import hashlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

_QUOTE: Final = '"'


@dataclass
class Fault:
    """A failure of the next requests that fit; exactly one kind is set."""

    method: str = ""  # method, key: requests that fit: a method, and the beginning of a key. Empty ones fit all
    key: str = ""
    times: int = 1  # number of requests that fail
    status: int | None = None  # status, code: answered without a look at the object
    code: str = ""
    reset_after: int | None = None  # bytes of the body, then the connection is reset
    short: int | None = None  # bytes of the body, with a length that says that these are all
    stall_after: int | None = None  # stall_after, stall_s: bytes of the body, then a pause
    stall_s: float = 0.0
    etag: str | None = None  # of the answer, as if the object were another one
    is_lost: bool = False  # the request has its effect, and the connection is reset without an answer
    body: bytes | None = None  # answered with 200, in place of the list or of the bytes
    is_tokenless: bool = False  # a list that says that more follows, and not where


class FaultServer:
    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str, float]] = {}  # bucket/key to content, etag, time
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self.requests: list[tuple[str, str, str]] = []  # method, key, range
        self.latency_s = 0.0
        self.page = 1000  # keys of one page of a list
        self.is_bare = False  # lists etags without their quotes, as Azure does
        self.is_overwriting = False  # ignores If-None-Match
        self.is_tolerant = False  # ignores If-Match, as some servers do
        self.allowed: frozenset[str] | None = None  # actions as of policies of S3; None for all
        self.lock = threading.RLock()
        self.at_random: Callable[[], Fault | None] = lambda: None
        self._faults: list[Fault] = []
        server = self

        class Handler(_Handler):
            owner = server

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def options(self, **more: str) -> dict[str, str]:
        return {
            "aws_endpoint": self.url,
            "aws_access_key_id": "AKIATESTTESTTEST",
            "aws_secret_access_key": "secret-of-the-test",
            "aws_region": "eu-central-1",
        } | more

    def fail(self, *faults: Fault) -> None:
        with self.lock:
            self._faults.extend(faults)

    def fault_of(self, method: str, key: str) -> Fault | None:
        with self.lock:
            for fault in self._faults:
                if fault.method in {"", method} and key.startswith(fault.key):
                    fault.times -= 1
                    if not fault.times:
                        self._faults.remove(fault)
                    return fault
            return self.at_random()

    def store(self, place: str, data: bytes, *, modified: float | None = None) -> str:
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        with self.lock:
            self.objects[place] = data, etag, modified or time.time()
        return etag


@contextlib.contextmanager
def serving() -> Iterator[FaultServer]:
    server = FaultServer()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def _folded(key: str, prefix: str) -> str:
    """Return a key up to its first slash after the prefix, as lists with a delimiter have it."""
    part, slash, _ = key.removeprefix(prefix).partition("/")
    return f"{prefix}{part}{slash}"


class _Handler(BaseHTTPRequestHandler):
    owner: FaultServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        self.place = unquote(parts.path).lstrip("/")
        self.query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        key = self.place.partition("/")[2]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.owner.lock:
            self.owner.counts[self.command] += 1
            self.owner.requests.append((self.command, key, self.headers.get("Range", "")))
        if self.owner.latency_s:
            time.sleep(self.owner.latency_s)
        self.fault = None
        if self.owner.allowed is not None and self._action() not in self.owner.allowed:
            self._deny(body)
            return
        self.fault = self.owner.fault_of(self.command, key)
        if self.fault is not None and self.fault.status is not None:
            self._error(self.fault.status, self.fault.code or "Error")
            return
        if self.fault is not None and self.fault.body is not None:
            self._answer(200, self.fault.body, {"Content-Type": "text/html"})
            return
        getattr(self, f"_{self.command.lower()}")(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names of http.server

    def _action(self) -> str:
        """Return the action that a policy has to allow for this request."""
        match self.command:
            case "GET" | "HEAD":
                return "s3:ListBucket" if "list-type" in self.query else "s3:GetObject"
            case "DELETE" if "uploadId" in self.query:
                return "s3:AbortMultipartUpload"
            case "DELETE":
                return "s3:DeleteObject"
        return "s3:DeleteObject" if "delete" in self.query else "s3:PutObject"

    def _deny(self, body: bytes) -> None:
        if "delete" not in self.query:
            self._error(403, "AccessDenied")
            return
        # S3 answers for each key.
        keys = [each.text or "" for each in ET.fromstring(body).iter() if each.tag.endswith("Key")]
        rows = [
            f"<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code><Message>no</Message></Error>" for key in keys
        ]
        self._answer(200, f"<DeleteResult>{''.join(rows)}</DeleteResult>".encode())

    def _get(self, _: bytes) -> None:
        if "list-type" in self.query:
            self._list()
            return
        found = self.owner.objects.get(self.place)
        if found is None:
            self._error(404, "NoSuchKey")
            return
        data, etag, modified = found
        if self.fault is not None and self.fault.etag is not None:
            etag = self.fault.etag
        expected = self.headers.get("If-Match")
        if expected not in {None, etag, "*"} and not self.owner.is_tolerant:
            self._error(412, "PreconditionFailed")
            return
        headers = {"ETag": etag, "Last-Modified": formatdate(modified, usegmt=True), "Accept-Ranges": "bytes"}
        status, wanted = 200, self.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
            if start >= len(data):
                self._error(416, "InvalidRange")
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            status, data = 206, data[start:stop]
        self._answer(status, data, headers)

    _head = _get

    def _list(self) -> None:
        bucket = self.place.split("/")[0] + "/"
        prefix, after = bucket + self.query.get("prefix", ""), self.query.get("continuation-token", "")
        after = after or (bucket + self.query["start-after"] if "start-after" in self.query else "")
        with self.owner.lock:
            keys = sorted(key for key in self.owner.objects if key.startswith(prefix) and key > after)
            if "delimiter" in self.query:
                keys = [key for key in dict.fromkeys(_folded(key, prefix) for key in keys) if key > after]
            size = int(self.query.get("max-keys", self.owner.page))
            page, more = keys[:size], len(keys) > size
            rows = [
                f"<Contents><Key>{escape(key.removeprefix(bucket))}</Key><Size>{len(data)}</Size>"
                f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(modified))}.000Z</LastModified>"
                f"<ETag>{escape(etag.strip(_QUOTE) if self.owner.is_bare else etag)}</ETag></Contents>"
                for key in page
                if key in self.owner.objects
                for data, etag, modified in [self.owner.objects[key]]
            ]
            rows += [
                f"<CommonPrefixes><Prefix>{escape(key.removeprefix(bucket))}</Prefix></CommonPrefixes>"
                for key in page
                if key not in self.owner.objects
            ]
        has_token = more and not (self.fault is not None and self.fault.is_tokenless)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if has_token else ""
        text = (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows)}</ListBucketResult>"
        )
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _put(self, body: bytes) -> None:
        if "partNumber" in self.query:
            upload = self.owner.uploads.get(self.query["uploadId"])
            if upload is None:
                self._error(404, "NoSuchUpload")
                return
            upload[int(self.query["partNumber"])] = body
            self._answer(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
            return
        with self.owner.lock:
            is_conditional = self.headers.get("If-None-Match") == "*" and not self.owner.is_overwriting
            if is_conditional and self.place in self.owner.objects:
                self._error(412, "PreconditionFailed")
                return
            etag = self.owner.store(self.place, body)
        self._answer(200, b"", {"ETag": etag})

    def _post(self, body: bytes) -> None:
        bucket = self.place.split("/")[0]
        if "delete" in self.query:
            keys = [each.text or "" for each in ET.fromstring(body).iter() if each.tag.endswith("Key")]
            with self.owner.lock:
                for key in keys:
                    self.owner.objects.pop(f"{bucket}/{key}", None)
            text = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{text}</DeleteResult>".encode())
        elif "uploads" in self.query:
            name = hashlib.md5(f"{self.place}{time.time_ns()}".encode()).hexdigest()
            self.owner.uploads[name] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            self._answer(200, text.encode())
        else:
            parts = self.owner.uploads.pop(self.query["uploadId"], None)
            if parts is None:
                self._error(404, "NoSuchUpload")
                return
            etag = self.owner.store(self.place, b"".join(parts[number] for number in sorted(parts)))
            text = f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
            self._answer(200, text.encode())

    def _delete(self, _: bytes) -> None:
        with self.owner.lock:
            if "uploadId" in self.query:
                self.owner.uploads.pop(self.query["uploadId"], None)
            else:
                self.owner.objects.pop(self.place, None)
        self._answer(204, b"")

    def _error(self, status: int, code: str) -> None:
        self.fault = None
        self._answer(status, f"<Error><Code>{code}</Code><Message>as the test asked</Message></Error>".encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        fault = self.fault
        if fault is not None and fault.is_lost:
            self._reset()
            return
        if fault is not None and fault.short is not None:
            body = body[: fault.short]
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(ConnectionError):  # the client may have given up
            if fault is not None and fault.reset_after is not None:
                self.wfile.write(body[: fault.reset_after])
                self.wfile.flush()
                self._reset()
            elif fault is not None and fault.stall_after is not None:
                self.wfile.write(body[: fault.stall_after])
                self.wfile.flush()
                time.sleep(fault.stall_s)
                self.wfile.write(body[fault.stall_after :])
            else:
                self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.close()
