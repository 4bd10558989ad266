def test_what_was_just_written_is_in_the_page_cache(load, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)

    with path.open("rb") as file:
        assert load("page_cache").resident_bytes(file.fileno()) >= 100_000
