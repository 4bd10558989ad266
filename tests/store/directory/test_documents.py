import json
from contextlib import nullcontext

import pytest

from segmentlog.store.directory.documents import load_document, replace_document
from segmentlog.store.errors import FormatError
from segmentlog.store.format.documents import Loaded, Origin
from support.crash.memory_fs import MemoryFileSystem

PATH, MAKING = "/config/x.json", "/making"


def disk(**contents: str) -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/config")
    for suffix, text in contents.items():
        file = made.create(PATH if suffix == "file" else f"{PATH}.bak")
        file.write(0, text.encode())
        file.close()
    return made


def load(fs: MemoryFileSystem) -> Loaded:
    return load_document(fs, PATH, lambda found: found)


def held(fs: MemoryFileSystem) -> dict[str, object]:
    return {name: json.loads(text).get("n") for name, text in fs.files().items()}


def replaced(fs: MemoryFileSystem, number: int) -> None:
    loaded = load(fs)
    loaded.document["n"] = number
    assert replace_document(fs, PATH, loaded, MAKING)


def test_the_former_document_is_the_backup_and_versions_rise() -> None:
    fs = disk()
    for number in range(3):
        replaced(fs, number)
    assert held(fs) == {PATH: 2, f"{PATH}.bak": 1}
    assert load(fs).document["dataVersion"]["counter"] == 3  # type: ignore[index,call-overload]
    assert not replace_document(fs, PATH, load(fs), MAKING, nullcontext(enter_result=False))
    assert held(fs) == {PATH: 2, f"{PATH}.bak": 1}, "a guard that refuses changes nothing"


def test_a_torn_document_does_not_replace_its_backup(caplog: pytest.LogCaptureFixture) -> None:
    fs = disk(file='{"n": ', backup='{"n": 1}')
    assert load(fs) == Loaded({"n": 1}, Origin.BACKUP)
    assert "is damaged: its backup of" in caplog.text
    replaced(fs, 2)
    assert held(fs) == {PATH: 2, f"{PATH}.bak": 1}


def test_an_error_names_the_document() -> None:
    with pytest.raises(FormatError, match=r"x\.json"):
        load(disk(file="{", backup="{"))

    def refuse(_: Loaded) -> None:
        raise FormatError("no", fix="Mend it")

    with pytest.raises(FormatError, match=r"no \(in /config/x.json\)"):
        load_document(disk(file="{}"), PATH, refuse)
