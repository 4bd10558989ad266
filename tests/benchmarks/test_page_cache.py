def test_a_file_just_written_is_in_the_page_cache(load, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)

    with path.open("rb") as file:
        assert load("page_cache").resident_bytes(file.fileno()) >= 100_000


def test_files_are_read_and_holes_are_not(load, tmp_path):
    page_cache = load("page_cache")
    path = tmp_path / "queue" / "segment"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(1 << 30)
    page_cache.drop(tmp_path)
    page_cache.bring_in(tmp_path)
    with path.open("rb") as file:
        assert 10_000 <= page_cache.resident_bytes(file.fileno()) < 1 << 20
