"""File sizes of a store: stated in ``.segmentlog/durable`` by ours, inferred from the files of a broker's.

::

    ours        .segmentlog/durable states them       a crash may leave a file shorter, never longer
    a broker's  the lengths of the files tell them    the last file of each kind may be short

    lengths     files [0, 400) [400, 800) …  with 20 entries of 20 bytes
                       ▲ a length or a base that this size cannot have: the store is not opened

No broker loads a store that was written on with other sizes than its own, and files that overlap hide messages.
RocketMQ: ``MappedFileQueue.load``.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import ConfigError, FormatError, Remedy
from ..files.fs import FileSystem, Listed, LocalFileSystem
from ..files.segments import SegmentFile, list_segments
from ..format.consume_queue import ENTRY_BYTES
from ..format.durable_point import DurablePoint, FileSizes
from ..format.index_file import HEADER, Geometry, decode_header, infer_geometry
from ..format.naming import is_index_name
from ..format.store_paths import StorePaths
from .own_state import read_durable_point

if TYPE_CHECKING:
    from ..config import StoreConfig

_REBUILD: Final = "ConsumeQueues can be deleted, and written with the store's own sizes by `segmentlog rebuild`"


def stored_sizes(fs: FileSystem, path: str, config: "StoreConfig") -> FileSizes:
    """Return the file sizes of an existing store; those of a configuration where the store does not show them."""
    # Every writer or copier of a store's files takes the sizes from here.
    known = known_sizes(fs, path)
    given = FileSizes(config.segment_bytes, config.queue_segment_entries, config.index_slots, config.index_entries)
    return FileSizes(*(held or wanted for held, wanted in zip(known, given, strict=True)))


def stored_config(path: str | os.PathLike[str], config: "StoreConfig", fs: FileSystem | None = None) -> "StoreConfig":
    """Return a configuration with the file sizes of an existing store; unchanged where there is none."""
    return replace(config, **stored_sizes(fs or LocalFileSystem(), os.path.abspath(path), config)._asdict())


def known_sizes(fs: FileSystem, path: str) -> FileSizes:
    """Return the file sizes that a store states, or that its files show; 0 where nothing tells."""
    # Of index files the length alone fits several numbers of slots and entries: their entries have to show which.
    durable = read_durable_point(fs, path)
    if durable is not None and durable.sizes.segment_bytes:
        return durable.sizes
    log = [segment.size for segment in list_segments(fs, StorePaths(path).log_directories)]
    entries = [segment.size // ENTRY_BYTES for _, files in _queues(fs, path) for segment in files]
    geometry = _index_geometry(fs, path)
    index = (geometry.slots, geometry.entries) if geometry is not None else (0, 0)
    return FileSizes(max(log, default=0), max(entries, default=0), *index)


def check_queue_entries(fs: FileSystem, path: str, entries: int) -> None:
    """Raise `ConfigError` if a store is known to have queue files of another number of entries."""
    held = known_sizes(fs, path).queue_segment_entries
    if held and held != entries:
        raise _other("queue_segment_entries", entries, held, path)


def check_segment_bytes(fs: FileSystem, path: str, segment_bytes: int) -> None:
    """Raise `ConfigError` if a store states another size of its segments, or no cut of its files explains the size."""
    durable = read_durable_point(fs, path)
    stated = 0 if durable is None else durable.sizes.segment_bytes
    log = list_segments(fs, StorePaths(path).log_directories)
    longest = max((each.size for each in log), default=0)
    is_possible = longest <= segment_bytes and not any(each.base % segment_bytes for each in log)
    if not is_possible or stated not in {0, segment_bytes}:
        raise _other("segment_bytes", segment_bytes, stated or longest, path)


def check_file_sizes(
    fs: FileSystem, path: str, config: "StoreConfig", durable: DurablePoint | None
) -> dict[str, list[SegmentFile]]:
    """Check that a store is opened with its own file sizes; return the files of each ConsumeQueue by directory."""
    # Lengths are compared whatever the store states: files may have been copied or rebuilt with other sizes. The files
    # are returned so that the caller need not list thousands of directories again.
    states = durable is not None and durable.sizes.segment_bytes > 0
    log, queues = list_segments(fs, StorePaths(path).log_directories), dict(_queues(fs, path))
    index = _index_files(fs, path)
    if durable is not None and states and (log or queues or index):  # an empty store, as of a new replica, takes any
        for option, wanted in zip(FileSizes._fields, durable.sizes, strict=True):
            if getattr(config, option) != wanted:
                raise _other(option, getattr(config, option), wanted, path)
    _check("segment_bytes", config.segment_bytes, 1, log, path, states=states)
    for segment in log:
        if segment.base % config.segment_bytes:
            raise FormatError(
                f"a segment of {config.segment_bytes} bytes cannot begin at {segment.base}",
                path=segment.path,
                remedies=(Remedy.STORED_SIZES,),
            )
    for directory, files in queues.items():
        _check("queue_segment_entries", config.queue_segment_entries, ENTRY_BYTES, files, directory, states=states)
    wanted = Geometry(config.index_slots, config.index_entries).file_bytes
    for listed in index if config.index else ():
        if listed.size > wanted or (not states and listed.size not in {0, wanted}):
            raise ConfigError(
                f"this index file has {listed.size} bytes, index_slots={config.index_slots} and "
                f"index_entries={config.index_entries} make {wanted}",
                path=os.path.join(StorePaths(path).index, listed.name),
                fix="Or delete the directory index: `rebuild_index` writes it again",
                remedies=(Remedy.STORED_SIZES,),
            )
    return queues


def _queues(fs: FileSystem, path: str) -> Iterator[tuple[str, list[SegmentFile]]]:
    """Directory and files of each ConsumeQueue."""
    queues = StorePaths(path).consume_queues
    for topic in fs.list_dir(queues):
        for queue in fs.list_dir(os.path.join(queues, topic.name)) if topic.is_dir else ():
            if queue.is_dir:
                directory = os.path.join(queues, topic.name, queue.name)
                yield directory, list_segments(fs, [directory])


def _index_files(fs: FileSystem, path: str) -> list[Listed]:
    return [listed for listed in fs.list_dir(StorePaths(path).index) if is_index_name(listed.name)]


def _index_geometry(fs: FileSystem, path: str) -> Geometry | None:
    """Geometry of the index files; None where no file shows it."""
    for listed in _index_files(fs, path):
        file = os.path.join(StorePaths(path).index, listed.name)
        read = partial(fs.read, file)
        try:
            header = decode_header(read(0, HEADER.itemsize))
            geometry = infer_geometry(listed.size, header, fs.data_end(file), read)
        except (FormatError, FileNotFoundError):
            continue  # damaged, or deleted since it was listed: another file may have the size
        if geometry is not None:
            return geometry
    return Geometry() if any(listed.size == Geometry().file_bytes for listed in _index_files(fs, path)) else None


def _check(option: str, given: int, unit: int, files: Sequence[SegmentFile], path: str, *, states: bool) -> None:
    """Compare the files of one log with the size that they are going to be written with."""
    # In a store that states its sizes, a crash may have left any file short. In a broker's, all files but the last have
    # the size; the last may be shorter, unless it is the only one.
    wanted = given * unit
    files = [file for file in files if file.size]
    if not states:
        wrong = [file for file in files[:-1] if file.size != wanted]
        if len(files) == 1 or (files and files[-1].size > wanted):
            wrong += [file for file in files[-1:] if file.size != wanted]
        if wrong:
            raise _other(option, given, wrong[0].size // unit, path)
    for file in files:
        misplaced = unit > 1 and file.base % wanted  # for segments, `check_file_sizes` raises
        if file.size > wanted or misplaced:
            raise ConfigError(
                f"this file has {file.size} bytes and begins at {file.base}, {option}={given} makes files of "
                f"{wanted} bytes",
                path=file.path,
                fix=_REBUILD,
                remedies=(Remedy.STORED_SIZES,),
            )


def _other(option: str, given: int, held: int, path: str) -> ConfigError:
    return ConfigError(
        f"{option} is {given}, the store's files are made for {held}",
        path=path,
        fix="Write to another directory, or with the store's own sizes",
        remedies=(Remedy.STORED_SIZES,),
    )
