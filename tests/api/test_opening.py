import pickle
from pathlib import Path
from typing import Any

import pytest

import segmentlog
from segmentlog import Config, ConfigError, NotAStoreError, SegmentLogError
from segmentlog.store import RetentionSettings

SMALL = Config(segment_bytes=1 << 20)


def test_a_appends_and_x_creates(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pytest.raises(NotAStoreError):
        segmentlog.open(path)
    for mode in ("x", "a", "a"):
        with segmentlog.open(path, mode, config=SMALL) as store:
            store.append("orders", mode.encode())
    assert segmentlog.open(path, "r").scan("orders", columns="body").to_arrow()["body"].to_pylist() == [
        b"x",
        b"a",
        b"a",
    ]
    with segmentlog.open(tmp_path / "another", "a", config=SMALL) as store:  # as of the built-in open
        assert store.append("orders", b"1").queue_offset == 0


def test_mode_x_refuses_an_existing_path(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    segmentlog.open(tmp_path / "empty", "x", config=SMALL).close()
    (tmp_path / "file").write_text("")
    for name in ("empty", "file"):
        with pytest.raises(FileExistsError, match="mode 'x' creates a store, and the path exists") as raised:
            segmentlog.open(tmp_path / name, "x", config=SMALL)
        assert isinstance(raised.value, SegmentLogError)


def test_an_existing_store_keeps_its_sizes(tmp_path: Path) -> None:
    segmentlog.open(tmp_path / "store", "x", config=SMALL).close()
    with segmentlog.open(tmp_path / "store", "a") as store:
        assert store.config.segment_bytes == 1 << 20


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"mode": "w"}, "mode='w' is unknown.*'r', 'a' or 'x'"),
        ({"mode": ["a"]}, r"mode=\['a'\] is unknown"),
        ({"config": SMALL}, "config is passed with mode 'r'"),
        ({"mode": "a", "config": {"segment_bytes": 1 << 20}}, r"config=.* is a dict.*Pass segmentlog\.Config"),
        ({"mode": "a", "retention": 72}, r"retention=72 is a int.*Pass segmentlog\.admin\.RetentionSettings"),
        ({"commit_log_paths": [1]}, r"commit_log_paths=\[1\] is not a list of paths"),
        ({"retention": RetentionSettings()}, "retention is passed with mode 'r'"),
        ({"mode": "a", "commit_log_paths": ["/log"]}, "commit_log_paths is passed with mode 'a'"),
        ({"mode": "a", "on_damage": "drop"}, "on_damage='drop' is unknown.*Pass one of 'refuse', 'cut'"),
        ({"read_from": "all"}, "read_from='all' is unknown.*Pass one of 'appended', 'confirmed'"),
        ({"commit_log_paths": "y"}, "commit_log_paths='y' is not a list"),
        *(({name: 7}, f"{name}=7 is not a path") for name in ("archive", "queue_cache", "cache_dir")),
        ({"broker_name": 7}, "broker_name=7 is not text"),
    ],
)
def test_arguments_that_make_no_sense(path: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        segmentlog.open(path, **arguments)


@pytest.mark.parametrize("name", ["flush", "services"])
def test_options_of_a_configuration_are_texts_or_enums(name: str) -> None:
    kind = type(getattr(Config(), name))
    for each in kind:
        assert getattr(Config(**{name: each.value}), name) is getattr(Config(**{name: each}), name) is each
    with pytest.raises(ConfigError, match=f"{name}='never' is unknown.*Pass one of '{next(iter(kind)).value}', "):
        Config(**{name: "never"})


def test_a_tilde_is_the_home_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    with segmentlog.open("~/broker-a", commit_log_paths=["~/broker-a/commitlog"]) as store:
        assert store.path == str(path)
    with segmentlog.open("~/written", "x", config=SMALL) as store:
        assert store.path == str(path.parent / "written")


def test_a_store_and_a_scan_cross_to_other_processes(store: segmentlog.Store, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(store))
    assert again.topics() == store.topics()
    scan = store.scan("orders", tags="paid", start="2026-01-31T00:01:00Z")
    assert pickle.loads(pickle.dumps(scan)).to_arrow() == scan.to_arrow()
    with (
        segmentlog.open(tmp_path / "written", "x", config=SMALL) as written,
        pytest.raises(TypeError, match="open for appending"),
    ):
        pickle.dumps(written)
