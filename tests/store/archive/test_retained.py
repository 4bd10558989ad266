import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, RetentionSettings
from segmentlog.store.archive.look import verify
from segmentlog.store.archive.push import push
from segmentlog.store.maintenance import Conditions, apply_retention, plan_retention
from segmentlog.store.objects.manifests import newest_or_empty
from segmentlog.store.objects.opening import open_objects
from support.archived_store import CONFIG, append_rows, settings, write_whole
from support.archives import content

CONDITIONS = Conditions(hour=5, log_used=10, queues_used=10)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "archive").mkdir()
    return f"file://{tmp_path}/archive"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_whole(tmp_path / "store", 300)


def retention(url: str) -> RetentionSettings:
    return replace(settings(None, 4), archive=url)


def test_segments_are_pushed_before_they_are_deleted(store: Path, tmp_path: Path, url: str) -> None:
    whole = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    planned = plan_retention(store, retention(url), CONDITIONS)
    assert planned.runs[0].expired[0].archive == f"{url}/log/{0:020d}"
    assert not any((tmp_path / "archive").iterdir())
    found = apply_retention(store, retention(url), CONDITIONS)
    assert (found.failures, found.archived) == (0, len(found.runs[0].expired))
    left = {path.name for path in (store / "commitlog").iterdir()}
    assert 0 < len(left) < len(whole)
    objects = open_objects(url)
    assert verify(objects, deep=True).is_sound
    pieces = content(objects).pieces
    for name, data in whole.items():
        some = [piece for piece in pieces if piece.segment == int(name)]
        held = b"".join(bytes(objects.get(key, 0, b - a)) for piece in some for key, a, b, _ in piece.ranges)
        assert data.startswith(held)
        assert name in left or held == data


def test_a_segment_stays_if_the_archive_is_that_of_another_log(store: Path, tmp_path: Path, url: str) -> None:
    with MessageStore.open(tmp_path / "other", CONFIG) as other:
        append_rows(other, 5000, 300)
    push(tmp_path / "other", open_objects(url))
    before = sorted(path.name for path in (store / "commitlog").iterdir())
    found = apply_retention(store, retention(url), CONDITIONS)
    assert found.failures > 0
    assert sorted(path.name for path in (store / "commitlog").iterdir()) == before


def test_a_segment_stays_if_its_object_is_missing(store: Path, tmp_path: Path, url: str) -> None:
    push(store, open_objects(url))
    shutil.rmtree(tmp_path / "archive" / "log" / f"{0:020d}")
    found = apply_retention(store, retention(url), CONDITIONS)
    assert found.failures > 0
    assert (store / "commitlog" / f"{0:020d}").exists()


def test_an_open_store_pushes_too(store: Path, url: str) -> None:
    with MessageStore.open(store, CONFIG, retention=retention(url)) as opened:
        at = 1000
        while not newest_or_empty(open_objects(url))[0]:  # on a slow machine a push takes many steps
            append_rows(opened, at, 10)
            at += 10
