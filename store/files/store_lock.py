"""The lock of a store, as brokers take it: an exclusive record lock on byte 0 of the file ``lock``.

::

    lock   [l][o][c][k]        4 bytes, of no meaning
            ^ fcntl(F_SETLK, F_WRLCK, 0..1): what Java's FileChannel.tryLock(0, 1, false) takes on Linux

A record lock belongs to the process and goes with *any* descriptor of the file that the process closes: nobody else in
a process that holds it may open the file. RocketMQ: ``DefaultMessageStore.start``.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import StoreInUseError


@contextmanager
def held_lock(path: str) -> Iterator[None]:
    """Hold a store's lock, so that no broker starts on it meanwhile.

    A store without the file, which no broker ever ran on under this path, is not locked: a reader's tool makes no files
    that it was not asked for.

    Raises
    ------
    StoreInUseError
        If another process holds it, on this machine or, on a file system that knows, on another one.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            raise StoreInUseError(
                "another process has this store open", path=os.path.dirname(path), fix="Stop the broker first"
            ) from None
        yield
    finally:
        os.close(fd)
