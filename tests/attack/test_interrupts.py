"""S20: a Ctrl-C comes at each point where Python looks for one, within opening, closing, appending and committing.

::

    open, close, append, append_async, commit_batch, Staging ──► interrupted at check point n ──► dropped

    after each    no thread of the store is alive, no descriptor is open, the lock is free
                  what was acknowledged is there; a batch is there whole or not at all
"""

import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import BatchId, MessageStore, Services, Snapshot, StoreFailedError
from segmentlog.store.sink import Staged, Staging, sweep_staging
from segmentlog.store.write.housekeeping import BackgroundServices
from support.batches import batch_of
from support.interrupting import Interrupter, own_threads, points_of
from support.reading import read
from support.scale import Report, scale
from support.written_stores import SMALL, message, open_files

pytestmark = pytest.mark.attack

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261123"))
POINTS = scale(3, 20, 1_000_000)
"""Of each operation at most, spread evenly; all of them in the long run."""
BACKGROUND = replace(SMALL, services=Services.BACKGROUND)


def bodies(path: Path) -> Counter[bytes]:
    return Counter(bytes(row["body"]) for row in read(Snapshot.open(path)))


class Scene:
    """One store; what is interrupted on it, and what was acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store: MessageStore | None = None
        self.acknowledged: Counter[bytes] = Counter()
        self.maybe: Counter[bytes] = Counter()
        self.staged: list[Staged] = []
        self.serial = 0

    def open(self) -> None:
        self.store = MessageStore.open(self.path, BACKGROUND)

    def close(self) -> None:
        assert self.store is not None
        self.store.close()

    def append(self) -> None:
        assert self.store is not None
        for _ in range(6):
            self.serial += 1
            body = b"%d" % self.serial * 1000
            self.maybe[body] += 1
            self.store.append(replace(message(0, 1, self.serial), body=body))
            self.acknowledged[body] += 1

    def append_async(self) -> None:
        assert self.store is not None
        pending = []
        for _ in range(6):
            self.serial += 1
            body = b"%d" % self.serial * 1000
            self.maybe[body] += 1
            pending.append((body, self.store.append_async(replace(message(0, 1, self.serial), body=body))))
        for body, each in pending:
            each.result()
            self.acknowledged[body] += 1

    def stage(self) -> None:
        job = f"job{self.serial}"
        with Staging.open(self.path, job, 0, "a", BACKGROUND) as staging:
            for start in range(0, 20, 4):  # several pieces, which threads write at the same time
                rows = range(start, start + 4)
                staging.add(batch_of(replace(message(0, 2, each), body=b"batch %d" % self.serial) for each in rows))
            self.staged = [staging.finish()]

    def commit(self) -> None:
        assert self.store is not None
        body = b"batch %d" % self.serial
        self.maybe[body] += 20
        self.store.commit_batch(BatchId("app", self.serial), self.staged)
        self.acknowledged[body] += 20


def settle(scene: Scene, wait_s: float = 10) -> None:
    scene.store = None
    gc.collect()
    until = time.monotonic() + wait_s
    while (own_threads() or open_files(scene.path.parent)) and time.monotonic() < until:
        time.sleep(0.001)  # a store that is dropped is torn down in a thread of its own
    assert own_threads() == []
    assert not open_files(scene.path.parent)
    MessageStore.open(scene.path, BACKGROUND).close()
    found = bodies(scene.path)
    assert not scene.acknowledged - found
    assert not found - scene.maybe
    for body, count in scene.maybe.items():
        assert found[body] in {0, count}, "a part of a batch"
    for body in scene.maybe - found:
        del scene.maybe[body]
    scene.acknowledged = Counter(scene.maybe)  # what is there now stays there


def prepare_open(_scene: Scene) -> None:
    pass


def prepare_close(scene: Scene) -> None:
    scene.open()
    scene.append()


def prepare_append(scene: Scene) -> None:
    scene.open()
    assert scene.store is not None
    scene.store.wait_dispatched()


def prepare_commit(scene: Scene) -> None:
    prepare_append(scene)
    scene.serial += 1
    scene.stage()


def prepare_stage(scene: Scene) -> None:
    scene.serial += 1


ACTS: dict[str, tuple[Callable[[Scene], None], Callable[[Scene], None]]] = {
    "open": (prepare_open, Scene.open),
    "close": (prepare_close, Scene.close),
    "append": (prepare_append, Scene.append),
    "append_async": (prepare_append, Scene.append_async),
    "stage": (prepare_stage, Scene.stage),
    "commit": (prepare_commit, Scene.commit),
}


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """Let the collector look at nothing that was there before: it runs after each interrupt."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def closed_scene(folder: Path) -> Scene:
    """Write a store and close it."""
    scene = Scene(folder / "store")
    scene.open()
    scene.append()
    scene.close()
    scene.store = None
    gc.collect()
    return scene


# A directory that is being listed is closed by reference counting, with this warning.
@pytest.mark.scaled
@pytest.mark.filterwarnings("ignore:unclosed scandir iterator:ResourceWarning")
@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("act", ACTS)
def test_a_ctrl_c_at_each_point(tmp_path: Path, act: str, report: Report) -> None:
    prepare, do = ACTS[act]
    scene = closed_scene(tmp_path)
    total = 0
    for _ in range(2):  # the first time, modules are imported
        prepare(scene)
        total = points_of(lambda: do(scene))
        finish(scene)
        settle(scene)
    came, places = 0, Counter[str]()
    offset = random.Random(SEED).randrange(1 + total // POINTS)
    for at in range(1 + offset, total + 20, max(1, total // POINTS)):
        prepare(scene)
        interrupter = Interrupter(at)
        try:
            came += interrupter.run(lambda: do(scene))
            finish(scene)
            settle(scene)
        except BaseException as error:
            error.add_note(f"{act} interrupted at point {at} of {total}: {interrupter.where}")
            raise
        places[interrupter.where.rpartition("/")[2]] += 1
        sweep_staging(scene.path, idle_s=0)
        assert list((scene.path / ".segmentlog" / "staging").glob("*")) == []
    report(f"S20 {act}", f"{came} interrupts at {len(places)} places of {total} points")
    assert came >= min(POINTS, total) // 2


@pytest.mark.usefixtures("only_new_objects")
def test_planted_bug_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are not ended before the files are closed and the lock is released."""
    scene = closed_scene(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundServices, "stop", lambda self: None)
        patched.setattr(BackgroundServices, "_halt", lambda self: None)  # else a closed store ends them by its error
        scene.open()
        scene.close()
        assert scene.store is not None
        services = scene.store._services
        with pytest.raises(AssertionError, match="segmentlog-dispatch"):
            settle(scene, wait_s=0.1)
    assert services is not None
    services.stop()
    settle(scene)


def finish(scene: Scene) -> None:
    """Close the store as its user would; after a failure, or an interrupted close, it is only released."""
    if scene.store is not None:
        with suppress(StoreFailedError):
            scene.store.close()
