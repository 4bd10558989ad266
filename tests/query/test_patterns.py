import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.query.patterns import Match, is_pattern, matches, stores_at
from segmentlog.store import ConfigError, NotAStoreError, RemoteAccess, UnreadableError, place_of
from support.fault_server import Fault, FaultServer, serving

LOCAL = RemoteAccess()


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with serving() as running:
        yield running


def places(tmp_path: Path, *names: str) -> str:
    for name in names:
        (tmp_path / name / "commitlog").mkdir(parents=True)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", ["broker-a", "broker-b", "replica"]),
        ("broker-*", ["broker-a", "broker-b"]),
        ("*-*", ["broker-a", "broker-b"]),
        ("b*r-b", ["broker-b"]),
        ("replic*", ["replica"]),
    ],
)
def test_a_star_is_any_text_of_a_part(tmp_path: Path, pattern: str, names: list[str]) -> None:
    root = places(tmp_path, "broker-a", "broker-b", "replica", ".trash")
    (tmp_path / "README").write_text("a file, which is no match")
    assert matches(f"{root}/{pattern}", LOCAL) == [Match(f"{root}/{name}", name) for name in names]


def test_parts_with_a_star_are_the_names(tmp_path: Path) -> None:
    root = places(tmp_path, "eu/a/store", "eu/b/store", "us/a/store")
    (tmp_path / "us/c").mkdir()  # has no store, and so is no match
    found = matches(f"{root}/*/*/store", LOCAL)
    assert [each.name for each in found] == ["eu/a", "eu/b", "us/a"]
    assert matches(f"{root}/eu/*/store", LOCAL)[1] == Match(f"{root}/eu/b/store", "b")


def test_a_directory_whose_name_has_a_star_is_itself(tmp_path: Path) -> None:
    root = places(tmp_path, "*", "other")
    assert not is_pattern(f"{root}/*")
    assert stores_at([f"{root}/*"], LOCAL) == [Match(f"{root}/*", None)]
    assert is_pattern(f"{root}/o*")


def test_what_does_not_match_is_an_error_that_lists_what_is_there(tmp_path: Path) -> None:
    root = places(tmp_path, "broker-a")
    with pytest.raises(NotAStoreError, match=r"no store matches the pattern.*Directories in .*`broker-a`"):
        matches(f"{root}/x*", LOCAL)
    with pytest.raises(NotAStoreError, match="There are no directories in"):
        matches(f"{root}/nowhere/*", LOCAL)


def test_a_match_that_is_no_store_is_an_error(tmp_path: Path) -> None:
    root = places(tmp_path, "broker-a")
    (tmp_path / "lost+found").mkdir()
    with pytest.raises(NotAStoreError, match=r"`.*/lost\+found` is neither a store nor an archive, and the pattern"):
        matches(f"{root}/*", LOCAL)


def test_a_directory_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(UnreadableError, match="cannot be listed"):
        matches(f"{tmp_path}/*", LOCAL)


def test_names_of_several_places(tmp_path: Path) -> None:
    root = places(tmp_path, "x/a", "x/b", "y/a", "z/c")
    assert [each.name for each in stores_at([f"{root}/x/*", f"{root}/z/c"], LOCAL)] == ["a", "b", "c"]
    assert [each.name for each in stores_at([f"{root}/x/a", f"{root}/y/a"], LOCAL)] == ["x", "y"]
    with pytest.raises(ConfigError, match="two stores have the name a"):
        stores_at([f"{root}/x/*", f"{root}/y/*"], LOCAL)
    with pytest.raises(ConfigError, match="two stores have the path"):
        stores_at([f"{root}/x/*", f"{root}/*/a"], LOCAL)


# Object storage


def archives(server: FaultServer, *names: str) -> RemoteAccess:
    for name in names:
        for key in ("manifests/0000000001.arrow", *(f"log/00000000000000000000/{number}" for number in range(30))):
            server.store(f"logs/brokers/{name}/{key}", b"x")
    return RemoteAccess.of(server.options())


def test_archives_are_found_by_their_folders(server: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
    access = archives(server, "a", "b", "old%20#1")
    server.store("logs/brokers/c/log/0/0-1.x", b"of a first push")
    server.page = 10
    with caplog.at_level(logging.WARNING):
        found = matches("s3://logs/brokers/*", access)
    assert [each.name for each in found] == ["a", "b", "old%20#1"]
    assert found[2].path == "s3://logs/brokers/old%2520%231"
    assert access.objects(found[2].path).folders() == ["log", "manifests"]
    assert [each.getMessage() for each in caplog.records] == [
        "s3://logs/brokers/c has no manifest yet, and is left out: its first push has not ended"
    ]
    assert [each.path for each in matches("s3://logs/*/a", access)] == ["s3://logs/brokers/a"]


def test_folders_are_listed_and_not_their_content(server: FaultServer) -> None:
    access = archives(server, *(f"broker-{number}" for number in range(12)))
    matches("s3://logs/brokers/*", access)
    assert server.counts == {"GET": 2 + 2 * 12}, "each list is confirmed by a second request"


def test_a_list_that_lacks_its_end_hides_no_archive(server: FaultServer) -> None:
    access = archives(server, *"abcdef")
    server.page = 2
    server.fail(Fault("GET", is_tokenless=True, times=3))
    assert [each.name for each in matches("s3://logs/brokers/*", access)] == list("abcdef")


def test_wrong_patterns_of_object_storage(server: FaultServer) -> None:
    access = archives(server, "a")
    with pytest.raises(ConfigError, match=r"has a \* in the name of the bucket"):
        matches("s3://lo*/brokers/a", access)
    with pytest.raises(NotAStoreError, match="There are no directories in s3://logs/nothing"):
        matches("s3://logs/nothing/*", access)
    server.store("logs/brokers/notes/a.txt", b"x")
    with pytest.raises(NotAStoreError, match="`s3://logs/brokers/notes` is neither"):
        matches("s3://logs/brokers/*", access)
    server.store("logs/first/a/log/0/0-1.x", b"of a first push")
    with pytest.raises(NotAStoreError, match="no archive of the pattern has a manifest yet"):
        matches("s3://logs/first/*", access)


def test_an_archive_in_a_directory_is_a_match(tmp_path: Path) -> None:
    root = places(tmp_path, "a")
    (tmp_path / "b" / "manifests").mkdir(parents=True)
    for place in (root, f"file://{root}"):
        assert [each.name for each in matches(place_of(f"{place}/*"), LOCAL)] == ["a", "b"]
    shutil.rmtree(tmp_path / "b")
    assert [each.name for each in matches(f"{root}/*", LOCAL)] == ["a"]
