from pathlib import Path

from pyarrow import fs

from segmentlog.query.ledgers import listed
from support.delegating import FailingListings


def test_a_directory_that_appears_while_it_is_listed_is_listed_again(tmp_path: Path) -> None:
    system = FailingListings(fs.LocalFileSystem())
    assert listed(system, str(tmp_path / "none")) == []
    (tmp_path / "a" / "b").mkdir(parents=True)
    system.failures = 1
    assert [each.base_name for each in listed(system, str(tmp_path))] == ["a"]
    system.failures = 1
    assert [each.base_name for each in listed(system, str(tmp_path), recursive=True)] == ["a", "b"]
    assert system.failures == 0
