"""State file of a resend: what the broker acknowledged, so that a job that was killed continues.

::

    {"next":                   0,"job":"9f…","queues":1,"asked":{…}}          job; padded to 64 bytes
    {"next":                  18,"topic":"orders","queueId":0,"ranges":[[0,40]]}         next offset of a queue
             └ overwritten in place, 20 digits within a sector

A queue has at most one message in flight, so one offset states what was acknowledged. It is written when the answer
arrives, before the queue's next message is sent. After the kill of the process at most one message per queue is sent
twice; after a power cut those of the last second. A lock on the file keeps a second process out.
"""

import fcntl
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from segmentlog.store import ConfigError, FormatError, QueueKey, QueueRange

from ..state_file import FIX, check_asked, sync
from .message import Job

_BLOCK_BYTES: Final = 64
_DIGITS: Final = 20
_NEXT_AT: Final = len('{"next":')
_SYNC_S: Final = 1.0


class Progress:
    """Next queue offset of each queue, kept in a file. Not thread-safe. Close it, or use it as a context manager."""

    def __init__(self, file: int, job: Job, lines: Sequence[tuple[QueueRange, ...]], nexts: Sequence[int]) -> None:
        self.job = job
        self.queues = {ranges[0].key: ranges for ranges in lines}
        """Ranges of each queue that belong to the job."""
        self._file = file
        self._next = dict(zip(self.queues, nexts, strict=True))
        self._places: dict[QueueKey, int] = {}  # of the digits in the file
        self._synced = time.monotonic()

    @classmethod
    def open(cls, path: str, ranges: Sequence[QueueRange], asked: Mapping[str, object], *, again: bool) -> Self:
        """Begin a job, or continue that of the file.

        `ConfigError` if the file is of another job, or in use, or a new job has no messages; `FormatError` if it is
        something else.
        ``again`` begins a job that is finished once more.
        """
        file = _locked(path)
        try:
            found = cls._read(path, file, asked)
            if found is not None and not (again and found.is_finished):
                return found
            begun = cls._begun(path, ranges, asked)
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # it has no name any more
        return begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync(self._file)
        os.close(self._file)

    @property
    def is_finished(self) -> bool:
        return all(self._next[key] >= ranges[-1].stop for key, ranges in self.queues.items())

    def left(self) -> list[QueueRange]:
        """Return the ranges that were not acknowledged, by queue."""
        found = []
        for key, ranges in self.queues.items():
            start = self._next[key]
            found += [QueueRange(key, max(start, each.start), each.stop) for each in ranges if start < each.stop]
        return found

    def acknowledge(self, key: QueueKey, next_offset: int) -> None:
        """Record that all messages of a queue before an offset were acknowledged, or are not of the job."""
        self._next[key] = next_offset
        os.pwrite(self._file, b"%*d" % (_DIGITS, next_offset), self._places[key])
        now = time.monotonic()
        if now - self._synced >= _SYNC_S:
            os.fdatasync(self._file)
            self._synced = now

    @classmethod
    def _begun(cls, path: str, ranges: Sequence[QueueRange], asked: Mapping[str, object]) -> Self:
        if not any(len(each) for each in ranges):
            fix = "`segmentlog queues STORE` shows first and last offsets"
            raise ConfigError("no messages found between start and end", fix=fix)
        job = Job(uuid.uuid4().hex, time.time_ns() // 1_000_000)
        by_queue: dict[QueueKey, list[QueueRange]] = {}
        for each in ranges:
            by_queue.setdefault(each.key, []).append(each)
        lines = [tuple(sorted(found, key=lambda one: one.start)) for found in by_queue.values()]
        # The new file is whole before it has the name, and locked: a process that is killed here leaves no half of it.
        making = f"{path}.making"
        made = os.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
            head = {"job": job.name, "started": job.started_ms, "queues": len(lines), "asked": dict(asked)}
            content = [_line(0, head)]
            for line in lines:
                spans, key = [[each.start, each.stop] for each in line], line[0].key
                content.append(_line(line[0].start, {"topic": key.topic, "queueId": key.queue_id, "ranges": spans}))
            with open(made, "wb", closefd=False) as writer:
                writer.write(b"".join(content))
            os.fsync(made)
            os.rename(making, path)
            sync(os.path.dirname(os.path.abspath(path)))
        except BaseException:
            os.close(made)
            raise
        found = cls._read(path, made, asked)
        assert found is not None
        return found

    @classmethod
    def _read(cls, path: str, file: int, asked: Mapping[str, object]) -> Self | None:
        size = os.fstat(file).st_size
        if not size:
            return None
        content = os.pread(file, size, 0)
        try:
            *whole, rest = content.split(b"\n")
            head, *rows = [json.loads(line) for line in whole]
            job, former = Job(str(head["job"]), int(head["started"])), dict(head["asked"])
            lines = []
            for row in rows:
                key = QueueKey(row["topic"], row["queueId"])
                lines.append(tuple(QueueRange(key, start, stop) for start, stop in row["ranges"]))
            found = cls(file, job, lines, [int(row["next"]) for row in rows])
            if rest or len(found.queues) != head["queues"]:
                problem = f"--state {path} has {len(rows)} of {head['queues']} queues"
                raise FormatError(problem, path=path, fix=FIX)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            problem = f"--state {path} is not the state file of a resend: {error}"
            raise FormatError(problem, path=path, fix=FIX) from None
        check_asked(path, former, asked)
        at = 0
        for key, before in zip(found.queues, whole, strict=False):
            at += len(before) + 1
            found._places[key] = at + _NEXT_AT
        return found


def _locked(path: str) -> int:
    """Open a file, which is made if need be, and lock it; `ConfigError` if another process has the lock."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"--state {path}: {error.strerror}", fix="Name a file in a directory that exists") from None
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have replaced the file since it was opened.
        if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
            return file
    os.close(file)
    raise ConfigError(f"--state {path} is used by another process", fix="Wait until it ends, or name another file")


def _line(next_offset: int, more: Mapping[str, object]) -> bytes:
    """Return a line whose length is a multiple of a block, so that the digits of all lines are within sectors."""
    text = f'{{"next":{next_offset:>{_DIGITS}},{json.dumps(more)[1:]}'.encode()
    return text.ljust(-(-(len(text) + 1) // _BLOCK_BYTES) * _BLOCK_BYTES - 1) + b"\n"
