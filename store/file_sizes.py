"""How large the files of a store are: a thing that is written in none of them.

::

    ours        .segmentlog/durable says it                     what a crash left may be shorter, and means nothing
    a broker's  the lengths of the files say it                 the last of each kind may be short

A store that is written on with other sizes than its own is lost to every broker. RocketMQ: ``MappedFileQueue.load``.
"""

import os

from .config import StoreConfig
from .errors import ConfigError, FormatError
from .files.fs import FileSystem
from .files.segments import list_segments
from .files.small_file import read_whole
from .format import durable_point
from .format.consume_queue import ENTRY_BYTES
from .format.durable_point import DurablePoint, FileSizes
from .format.index_file import Geometry
from .format.naming import is_index_name
from .layout import COMMIT_LOG, CONSUME_QUEUE, OURS


def stored_sizes(fs: FileSystem, path: str, config: StoreConfig) -> FileSizes:
    """Tell the file sizes of a store that is there; those of a configuration, where nothing tells.

    Of index files only the length is there, which several numbers of slots and entries make: a wrong guess is found
    when the store is opened.
    """
    durable = durable_point.decode(read_whole(fs, os.path.join(path, OURS, "durable")) or b"")
    if durable is not None and durable.sizes.segment_bytes:
        return durable.sizes
    log = [segment.size for segment in list_segments(fs, [os.path.join(path, COMMIT_LOG)])]
    queues = os.path.join(path, CONSUME_QUEUE)
    entries = [
        segment.size // ENTRY_BYTES
        for topic in fs.list_dir(queues)
        for queue in (fs.list_dir(os.path.join(queues, topic.name)) if topic.is_dir else ())
        for segment in list_segments(fs, [os.path.join(queues, topic.name, queue.name)])
    ]
    slots, numbers = config.index_slots, config.index_entries
    index = [listed.size for listed in fs.list_dir(os.path.join(path, "index")) if is_index_name(listed.name)]
    if index and max(index) != Geometry(slots, numbers).file_bytes:
        default = StoreConfig()
        if max(index) == Geometry(default.index_slots, default.index_entries).file_bytes:
            slots, numbers = default.index_slots, default.index_entries
    return FileSizes(
        max(log, default=0) or config.segment_bytes,
        max(entries, default=0) or config.queue_segment_entries,
        slots,
        numbers,
    )


def check_file_sizes(fs: FileSystem, path: str, config: StoreConfig, durable: DurablePoint | None) -> None:
    """Make sure that a store is opened with the sizes that its files have.

    Raises
    ------
    ConfigError
        If it is not; the message names the right option.
    FormatError
        If a segment lies where none of its size can.
    """
    if durable is not None and durable.sizes.segment_bytes:
        for option, wanted in zip(FileSizes._fields, durable.sizes, strict=True):
            if getattr(config, option) != wanted:
                raise _other(option, getattr(config, option), wanted, path)
    else:
        _check_lengths(fs, path, config)
    for segment in list_segments(fs, [os.path.join(path, "commitlog")]):
        if segment.base % config.segment_bytes:
            raise FormatError(
                f"a segment of {config.segment_bytes} bytes cannot begin at {segment.base}",
                path=segment.path,
                fix="Open the store with the segment_bytes it was written with",
            )


def _check_lengths(fs: FileSystem, path: str, config: StoreConfig) -> None:
    log = [segment.size for segment in list_segments(fs, [os.path.join(path, "commitlog")])]
    _check("segment_bytes", config.segment_bytes, log, path)
    queues = os.path.join(path, "consumequeue")
    for topic in fs.list_dir(queues):
        for queue in fs.list_dir(os.path.join(queues, topic.name)) if topic.is_dir else ():
            directory = os.path.join(queues, topic.name, queue.name)
            sizes = [segment.size // ENTRY_BYTES for segment in list_segments(fs, [directory])] if queue.is_dir else []
            _check("queue_segment_entries", config.queue_segment_entries, sizes, directory)
    wanted = Geometry(config.index_slots, config.index_entries).file_bytes
    for listed in fs.list_dir(os.path.join(path, "index")) if config.index else ():
        if is_index_name(listed.name) and listed.size not in {0, wanted}:
            raise ConfigError(
                f"index files have {listed.size} bytes, {config.index_slots} slots and {config.index_entries} entries "
                f"make {wanted}",
                path=os.path.join(path, "index", listed.name),
                fix="Give the index_slots and index_entries it was written with, or delete the directory index",
            )


def _check(option: str, wanted: int, sizes: list[int], path: str) -> None:
    """All but the last have to be of the size, and the last not of another that could be it."""
    sizes = [size for size in sizes if size]
    wrong = [size for size in sizes[:-1] if size != wanted]
    if len(sizes) == 1 or (sizes and sizes[-1] > wanted):
        wrong += [size for size in sizes[-1:] if size != wanted]
    if wrong:
        raise _other(option, wanted, wrong[0], path)


def _other(option: str, given: int, held: int, path: str) -> ConfigError:
    return ConfigError(
        f"{option} is {given}, the store's files are made for {held}",
        path=path,
        fix=f"Open it with {option}={held}, or write to another directory",
    )
