def test_what_was_just_written_is_in_the_page_cache(load, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)

    with path.open("rb") as file:
        assert load("page_cache").resident_bytes(file.fileno()) >= 100_000


def test_files_are_read_and_holes_are_not(load, tmp_path, monkeypatch):
    page_cache = load("page_cache")
    (tmp_path / "queue").mkdir()
    with (tmp_path / "queue" / "segment").open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(64 << 30)
    read = []
    monkeypatch.setattr(page_cache, "_written", lambda fd, found=page_cache._written: read.extend(found(fd)) or read)
    page_cache.bring_in(tmp_path)
    assert read[0][0] == 0
    assert 10_000 <= sum(stop - start for start, stop in read) < 1 << 20
