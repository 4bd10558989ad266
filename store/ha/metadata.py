"""Copies of a broker's configuration documents: topics, consumer offsets, groups, delay offsets.

::

    broker:listenPort ──► 21, 43, 45, 201 ──► documents ──► config/topics.json …       every 10 s, if changed
                                                              FILE.bak   the former file, replaced before

The body of an answer is a document, as fastjson writes it; `format/remoting.py` has the frames. The log does not have
these documents. Each file is replaced by a rename: a reader finds the former or the new one, whole. RocketMQ:
``SlaveSynchronize``, ``RequestCode``.
"""

import logging
import os
import socket
import threading
from enum import Enum
from typing import Final

from ..errors import FormatError, ReplicationError, SegmentLogError
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole, replace_file
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format import store_paths
from ..format.documents import Document, render
from ..format.remoting import SUCCESS, Answer, AnswerReader, encode_request
from ..format.store_paths import StorePaths
from .settings import Address

_log = logging.getLogger(__name__)

PERIOD_S: Final = 10.0  # seconds between two copies, as of RocketMQ 4
_READ_BYTES: Final = 64 << 10
_TIMEOUT_S: Final = 5.0
_FIX: Final = "Check that the address is a broker's listenPort, not its haListenPort"


class BrokerDocument(Enum):
    """Configuration document of a broker: its request code, and its name in the directory ``config``."""

    TOPICS = (21, store_paths.TOPICS, "topicConfigTable")
    CONSUMER_OFFSETS = (43, store_paths.CONSUMER_OFFSETS, "offsetTable")
    DELAY_OFFSETS = (45, "delayOffset.json", "offsetTable")
    GROUPS = (201, "subscriptionGroup.json", "subscriptionGroupTable")

    def __init__(self, code: int, file: str, table: str) -> None:
        self.code = code  # RocketMQ's request code
        self.file = file  # file name
        self.table = table  # field that the document has to have


def decode_document(answer: Answer, document: BrokerDocument, opaque: int) -> Document | None:
    """Return the document in an answer; None if the broker does not have it."""
    if answer.opaque != opaque:
        raise ReplicationError(f"the broker answered request {answer.opaque}, and the request was {opaque}")
    if answer.code != SUCCESS:
        raise ReplicationError(
            f"the broker refused request code {document.code} with code {answer.code}: {answer.remark}"
        )
    try:
        found = answer.document()
    except FormatError as error:
        raise ReplicationError(f"the broker's answer is not JSON: {error}", fix=_FIX) from error
    if found is not None and not isinstance(found.get(document.table), dict):
        raise ReplicationError(f"the broker's {document.file} has no table {document.table}", fix=_FIX)
    return found


def receive_answer(connection: socket.socket, document: BrokerDocument) -> Answer:
    """Receive the one answer to the request for a document; `ReplicationError` for any other bytes."""
    reader = AnswerReader()
    while True:
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ReplicationError(f"the broker closed the connection at request code {document.code}")
        try:
            found = reader.feed(data)
        except FormatError as error:
            raise ReplicationError(error.problem, fix=error.fix) from error
        if len(found) > 1 or (found and reader.is_within_answer):
            raise ReplicationError("the broker sent more bytes than its answer", fix=_FIX)
        if found:
            return found[0]


def fetch_documents(broker: Address) -> dict[BrokerDocument, Document]:
    """Return the documents that a broker has."""
    found = {}
    with socket.create_connection(broker, timeout=_TIMEOUT_S) as connection:
        for opaque, document in enumerate(BrokerDocument, 1):
            connection.sendall(encode_request(document.code, opaque, {}))
            content = decode_document(receive_answer(connection, document), document, opaque)
            if content is not None:
                found[document] = content
    return found


class MetadataCopier:
    """Keeps the documents of a store equal to a broker's (``listenPort``). Use `run` in a thread of your choice."""

    def __init__(self, path: str, broker: Address, fs: WritableFileSystem | None = None) -> None:
        self._paths = StorePaths(path)
        self._broker = broker
        self._fs = fs or LocalWritableFileSystem()
        self.copies = 0
        """Number of copies that were made."""
        self.problem = ""
        """Reason why the last copy failed; empty if it did not."""

    def run(self, stop: threading.Event) -> None:
        """Copy every 10 s until ``stop`` is set. A broker that does not answer is asked again."""
        while not stop.is_set():
            try:
                self.copy()
            except (SegmentLogError, OSError) as error:
                self.problem = str(error)
                _log.warning("%s: the documents were not copied: %s", self._broker, error)
            else:
                self.problem = ""
            stop.wait(PERIOD_S)

    def copy(self) -> list[str]:
        """Copy the documents once; return the names of the files that changed.

        Raises `ReplicationError` if the broker answers with anything but its documents, `OSError` if the connection
        failed, and `NoSpaceError` if the disk is full.
        """
        self._fs.make_dir(self._paths.config)
        changed = []
        for document, content in fetch_documents(self._broker).items():
            # A broker with enableLmq sends its own document, and reads no other one when it starts on this directory.
            is_light = document is BrokerDocument.CONSUMER_OFFSETS and "lmqOffsetTable" in content
            name = store_paths.LIGHT_OFFSETS if is_light else document.file
            path = os.path.join(self._paths.config, name)
            data = render(content).encode()
            former = read_whole(self._fs, path, DOCUMENT_BYTES_MAX)
            if data != former:
                if former:
                    replace_file(self._fs, f"{path}.bak", former, self._paths.making_replicated)
                replace_file(self._fs, path, data, self._paths.making_replicated)
                changed.append(name)
        self.copies += 1
        return changed
