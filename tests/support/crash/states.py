"""Every possible disk after a power cut, for every point of a recording.

::

    ops     0   1   2   3   4   5   …          between 2 and 3, with writes 1 and 2 not synced:
                  ▲                              nothing kept ─ all kept ─ each call, sector, page lost alone
                  crash point 3                  or there alone ─ in order ─ cut within the last write, zeros or
                                                 garbage after the cut ── subsets drawn at random, or all of them ─
                                                 each sector as any of the writes to it left it

A cut in the middle of call n has the results of a cut directly after it, since the call is not synced. So it is no
further point. The marks of a point are all that were made before the next call: callers rely on them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from segmentlog.store.format.message import Bytes

from .disk_model import NOTHING, SECTOR_BYTES, DiskModel, FileModel, Version, build, digest
from .memory_fs import PAGE_BYTES, MemoryFileSystem
from .recorder import Kind, Op, Recording

CUTS = 7
_SECTORS = PAGE_BYTES // SECTOR_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Breadth:
    """Number of states that are tried at each crash point."""

    exhaustive_bits: int = 10  # where at most so many things are uncertain, all their subsets are
    random_subsets: int = 32  # subsets drawn at random where more are
    torn: int | None = None  # at most so many ways in which the last write is torn; None for all
    # at most so many, those that always are left out of the count; a sample if there are more. None for all
    per_point: int | None = None
    # where sectors were written more than once since the last sync: so many draws of one version for each sector.
    # They do not count for ``per_point``, and are drawn apart from everything else
    mixed: int = 1
    seed: int = 0  # of all that is drawn


@dataclass(slots=True)
class Count:
    points: int = 0
    generated: int = 0
    states: int = 0
    digests: set[bytes] = field(default_factory=set)


class CrashState(NamedTuple):
    """One disk that a power cut may leave."""

    point: int  # how many calls of the recording were over
    marks: int  # how many marks had been made
    description: str  # what of the rest got there
    disk: Callable[[], MemoryFileSystem]  # makes the disk
    digest: Callable[..., bytes]  # identity of the disk, or of all but a directory


class _Choice(NamedTuple):
    """Files with a version of their own; all others got nothing or all; which changes of names got there."""

    files: dict[int, Version]
    others_kept: bool
    names: frozenset[int]


_Candidate = tuple[str, Callable[[], _Choice]]


class States:
    """All states of a recording, each once; iterate over it.

    A judged state is judged again only after a new promise.
    """

    def __init__(self, recording: Recording, breadth: Breadth, points: Callable[[int], bool] = lambda _: True) -> None:
        self.count = Count()
        self._recording = recording
        self._breadth = breadth
        self._wanted = points

    def __iter__(self) -> Iterator[CrashState]:
        model = DiskModel(self._recording.base)
        positions = [at for at, _ in self._recording.marks]
        marks = 0
        seen: set[bytes] = set()
        last: Op | None = None
        for point in range(len(self._recording.ops) + 1):
            if point:
                last = self._recording.ops[point - 1]
                model.apply(last)
            before = marks
            while marks < len(positions) and positions[marks] <= point:
                marks += 1
            if marks != before:
                seen.clear()
            if self._wanted(point):
                self.count.points += 1
                yield from self._at(model, last, point, marks, seen)

    def _at(self, model: DiskModel, last: Op | None, point: int, marks: int, seen: set[bytes]) -> Iterator[CrashState]:
        rng = random.Random(self._breadth.seed * 1_000_003 + point)
        always, more = _candidates(model, last, rng, self._breadth)
        limit = self._breadth.per_point
        if limit is not None and len(more) > limit:
            more = rng.sample(more, limit)
        mixed = _mixed(model, random.Random(f"{self._breadth.seed} {point}"), self._breadth.mixed)
        for description, choose in (*always, *more, *mixed):
            choice = choose()
            places = model.names.places(choice.names)

            def version(number: int, choice: _Choice = choice) -> Version:
                chosen = choice.files.get(number)
                if chosen is not None:
                    return chosen
                file = model.files[number]
                return file.all() if choice.others_kept else file.none()

            key = digest(places, version)
            self.count.generated += 1
            if key in seen:
                continue
            seen.add(key)
            self.count.states += 1
            self.count.digests.add(key)
            yield CrashState(
                point,
                marks,
                description,
                lambda places=places, version=version: build(places, version),
                lambda without=NOTHING, places=places, version=version: digest(places, version, without),
            )


def labels(recording: Recording, state: CrashState) -> list[Any]:
    return [label for _, label in recording.marks[: state.marks]]


def _candidates(
    model: DiskModel, last: Op | None, rng: random.Random, breadth: Breadth
) -> tuple[list[_Candidate], list[_Candidate]]:
    every = frozenset(pending.at for pending in model.names.pending)
    no: frozenset[int] = frozenset()
    files = model.uncertain()
    always: list[_Candidate] = [
        ("nothing kept", lambda: _Choice({}, others_kept=False, names=no)),
        ("all kept", lambda: _Choice({}, others_kept=True, names=every)),
    ]
    if every and files:
        always += [
            ("bytes kept, names lost", lambda: _Choice({}, others_kept=True, names=no)),
            ("names kept, bytes lost", lambda: _Choice({}, others_kept=False, names=every)),
        ]
    if last is not None and last.kind is Kind.WRITE and model.files[last.number].pending:
        torn = [*_cuts(model.files[last.number], every, rng), _torn(model.files[last.number], every, rng)]
        always += torn if breadth.torn is None else rng.sample(torn, min(breadth.torn, len(torn)))
    atoms = _atoms(model, files)
    if len(atoms) <= breadth.exhaustive_bits:
        return always, [
            _of_atoms(f"subset {number:0{len(atoms)}b}", model, [a for i, a in enumerate(atoms) if number >> i & 1])
            for number in range(1, (1 << len(atoms)) - 1)
        ]
    more: list[_Candidate] = [*_files_alone(files, every), *_atoms_alone(model, atoms), *_calls(model, files)]
    for number in range(breadth.random_subsets):
        share, seed = rng.choice([0.1, 0.5, 0.5, 0.9]), rng.random()
        if number % 3 == 2:
            more.append(_random_calls(model, files, share, seed))
        else:
            draw = random.Random(seed)
            kept = [atom for atom in atoms if draw.random() < share]
            more.append(_of_atoms(f"random subset {number} of sectors", model, kept))
    return always, more


# Within the last write


def _torn(file: FileModel, names: frozenset[int], rng: random.Random) -> _Candidate:
    seed = rng.randrange(1 << 30)
    return (
        f"every sector of file {file.number} torn, seed {seed}",
        lambda: _Choice({file.number: file.torn(seed)}, others_kept=True, names=names),
    )


def _cuts(file: FileModel, names: frozenset[int], rng: random.Random) -> list[_Candidate]:
    op = file.pending[-1].op
    length = len(op.data)
    to_sector = -op.position % SECTOR_BYTES
    wanted = [1, 4, 8, length // 2, length - 1, to_sector, rng.randrange(length) if length else 0]
    cuts = sorted({cut for cut in wanted if 0 < cut < length})
    while len(cuts) < min(CUTS, length - 1):
        cuts = sorted({*cuts, rng.randrange(1, length)})

    def choice(key: str, make: Callable[[], Bytes]) -> Callable[[], _Choice]:
        return lambda: _Choice({file.number: file.version(key, make)}, others_kept=True, names=names)

    def torn(cut: int, behind: str) -> Bytes:
        before = file.calls(lambda at: at != file.pending[-1].at).data
        whole = file.current
        start, stop = op.position, op.position + length
        data = np.zeros(max(before.size, start + cut if behind == "old" else stop), np.uint8)
        data[: before.size] = before
        if behind == "zeros":
            data[start + cut : stop] = 0
        elif behind == "garbage":
            end = min(stop, (start + cut) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES)
            data[start + cut : end] = np.frombuffer(random.Random(start + cut).randbytes(end - start - cut), np.uint8)
        data[start : start + cut] = np.frombuffer(op.data[:cut], np.uint8)
        if behind != "old":  # a sector that gets the bytes that it holds cannot be torn
            for at in range(start // SECTOR_BYTES * SECTOR_BYTES, min(stop, before.size), SECTOR_BYTES):
                span = slice(at, at + SECTOR_BYTES)
                if np.array_equal(before[span], whole[span]):
                    data[span] = whole[span]
        return data

    found = [
        (f"last write cut at {cut} of {length}", choice(f"cut {cut}", lambda cut=cut: torn(cut, "old"))) for cut in cuts
    ]
    for behind in ("zeros", "garbage"):
        cut = rng.randrange(length) if length else 0
        found.append((f"last write cut at {cut}, {behind} behind", choice(behind, lambda c=cut, b=behind: torn(c, b))))
    return found


# Things that are uncertain


class _Atom(NamedTuple):
    """One sector of a file; the size of a file, if sector is -1; a change of names, if file is -1."""

    file: int
    sector: int


def _atoms(model: DiskModel, files: list[FileModel]) -> list[_Atom]:
    found = [_Atom(file.number, sector) for file in files for sector in file.dirty_sectors()]
    found += [_Atom(file.number, -1) for file in files if file.size_pending]
    return found + [_Atom(-1, pending.at) for pending in model.names.pending]


def _of_atoms(description: str, model: DiskModel, kept: list[_Atom]) -> _Candidate:
    def choose() -> _Choice:
        sectors: dict[int, list[int]] = {}
        for atom in kept:
            if atom.file >= 0:
                sectors.setdefault(atom.file, []).append(atom.sector)
        versions = {}
        for number, chosen in sectors.items():
            file = model.files[number]
            size_kept = not file.size_pending or -1 in chosen
            versions[number] = file.sectors((s for s in chosen if s >= 0), size_kept=size_kept)
        return _Choice(versions, others_kept=False, names=frozenset(a.sector for a in kept if a.file < 0))

    return description, choose


def _atoms_alone(model: DiskModel, atoms: list[_Atom]) -> Iterator[_Candidate]:
    groups: dict[str, list[_Atom]] = {}
    for atom in atoms:
        if atom.file < 0:
            groups[f"change of names {atom.sector}"] = [atom]
        elif atom.sector < 0:
            groups[f"size of file {atom.file}"] = [atom]
        else:
            groups[f"sector {atom.sector} of file {atom.file}"] = [atom]
            groups.setdefault(f"page {atom.sector // _SECTORS} of file {atom.file}", []).append(atom)
    for name, group in groups.items():
        yield _of_atoms(f"{name} alone kept", model, group)
        members = set(group)
        yield _of_atoms(f"{name} alone lost", model, [atom for atom in atoms if atom not in members])


def _files_alone(files: list[FileModel], names: frozenset[int]) -> Iterator[_Candidate]:
    for file in files:
        number = file.number
        yield (
            f"bytes of file {number} alone kept",
            lambda file=file, n=number: _Choice({n: file.all()}, others_kept=False, names=names),
        )
        yield (
            f"bytes of file {number} alone lost",
            lambda file=file, n=number: _Choice({n: file.none()}, others_kept=True, names=names),
        )


# Sectors, each as any of the writes to it left it


def _mixed(model: DiskModel, rng: random.Random, count: int) -> list[_Candidate]:
    files = model.uncertain()
    if not any(file.has_intermediate for file in files):
        return []
    return [_mixed_once(model, files, number, rng.random()) for number in range(count)]


def _mixed_once(model: DiskModel, files: list[FileModel], number: int, seed: float) -> _Candidate:
    def choose() -> _Choice:
        draw = random.Random(seed)
        names = frozenset(pending.at for pending in model.names.pending if draw.random() < 0.7)
        return _Choice({file.number: file.mixed(draw) for file in files}, others_kept=False, names=names)

    return f"versions of sectors drawn {number}, seed {seed}", choose


# Calls, whole


def _calls(model: DiskModel, files: list[FileModel]) -> Iterator[_Candidate]:
    numbers = sorted(pending.at for owner in (model.names, *files) for pending in owner.pending)
    for number in numbers:
        yield f"call {number} alone lost", lambda n=number: _kept_calls(model, files, lambda at: at != n)
        yield f"calls up to {number} kept", lambda n=number: _kept_calls(model, files, lambda at: at <= n)


def _random_calls(model: DiskModel, files: list[FileModel], share: float, seed: float) -> _Candidate:
    def choose() -> _Choice:
        draw = random.Random(seed)
        numbers = sorted(pending.at for owner in (model.names, *files) for pending in owner.pending)
        kept = {number for number in numbers if draw.random() < share}
        return _kept_calls(model, files, kept.__contains__)

    return f"random subset of calls, {share} kept, seed {seed}", choose


def _kept_calls(model: DiskModel, files: list[FileModel], kept: Callable[[int], bool]) -> _Choice:
    return _Choice(
        {file.number: file.calls(kept) for file in files},
        others_kept=False,
        names=frozenset(pending.at for pending in model.names.pending if kept(pending.at)),
    )
