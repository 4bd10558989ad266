from pathlib import Path

from pyarrow import fs

from segmentlog.query.ledgers import listed
from support.delegating import Delegating


def test_a_directory_that_appears_while_it_is_listed_is_listed_again(tmp_path: Path) -> None:
    local, failures = fs.LocalFileSystem(), [FileNotFoundError()]

    def get_file_info(selector: fs.FileSelector) -> object:
        if failures:
            raise failures.pop()
        return local.get_file_info(selector)

    system = Delegating(local, get_file_info=get_file_info)
    assert listed(system, str(tmp_path / "none")) == []
    (tmp_path / "a" / "b").mkdir(parents=True)
    failures.append(FileNotFoundError())
    assert [each.base_name for each in listed(system, str(tmp_path))] == ["a"]
    failures.append(FileNotFoundError())
    assert [each.base_name for each in listed(system, str(tmp_path), recursive=True)] == ["a", "b"]
