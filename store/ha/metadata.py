"""Copies of a broker's configuration documents: topics, consumer offsets, groups, delay offsets.

::

    broker:listenPort ──► 21, 43, 45, 201 ──► documents ──► config/topics.json …       every 10 s, if changed
                                                              FILE.bak   the former one, replaced before

Nothing of it is in the log. Each file is replaced by a rename: a reader finds the former one or the new one, whole.
RocketMQ: ``SlaveSynchronize``.
"""

import logging
import os
import socket
import threading
from typing import Final

from ..errors import ReplicationError, SegmentLogError
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole, replace_file
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.documents import Document, render
from ..format.store_paths import StorePaths
from .remoting import AnswerReader, BrokerDocument, decode_answer, encode_request
from .settings import Address

_log = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
"""Seconds between two copies, as of RocketMQ 4."""
_READ_BYTES: Final = 64 << 10
_TIMEOUT_S: Final = 5.0


def fetch(broker: Address) -> dict[BrokerDocument, Document]:
    """Return the documents of a broker; those that it does not have are left out.

    Raises
    ------
    ReplicationError
        If it answers with anything else.
    OSError
        If the connection failed.
    """
    found = {}
    with socket.create_connection(broker, timeout=_TIMEOUT_S) as connection:
        for opaque, document in enumerate(BrokerDocument, 1):
            connection.sendall(encode_request(document, opaque))
            reader, frame = AnswerReader(), None
            while frame is None:
                data = connection.recv(_READ_BYTES)
                if not data:
                    raise ReplicationError(f"the broker closed the connection at request code {document.code}")
                frame = reader.feed(data)
            content = decode_answer(frame, document, opaque)
            if content is not None:
                found[document] = content
    return found


class MetadataCopier:
    """Keeps the documents of a store equal to a broker's. Use `run` in a thread of your choice.

    Parameters
    ----------
    path
        Store directory of the replica.
    broker
        Address of the broker's ``listenPort``.
    fs
        File system of the store.
    """

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

        Raises what `fetch` does, and

        NoSpaceError
            If the disk is full.
        """
        self._fs.make_dir(self._paths.config)
        changed = []
        for document, content in fetch(self._broker).items():
            path = os.path.join(self._paths.config, document.file)
            data = render(content).encode()
            former = read_whole(self._fs, path, DOCUMENT_BYTES_MAX)
            if data != former:
                if former:
                    replace_file(self._fs, f"{path}.bak", former, self._paths.making_replicated)
                replace_file(self._fs, path, data, self._paths.making_replicated)
                changed.append(document.file)
        self.copies += 1
        return changed
