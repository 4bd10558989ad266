MIB = 1 << 20


def memory(module, monkeypatch, tmp_path, total, free):
    """A machine that says how much memory it has, and each time how much is free."""
    said = iter(free)
    monkeypatch.setattr(module, "meminfo", lambda name: total if name == "MemTotal" else next(said))
    return module.FreeMemory(tmp_path / "memory")


def test_memory_is_filled_until_little_is_free(load, monkeypatch, tmp_path):
    module = load("free_memory")
    held = memory(module, monkeypatch, tmp_path, 256 * MIB, [900 * MIB, 900 * MIB, 400 * MIB, 100 * MIB])
    held.fill()
    assert held._position == 2 * module.STEP_BYTES
    assert (tmp_path / "memory").stat().st_size == 256 * MIB
    assert (tmp_path / "memory").stat().st_blocks == 0  # holes: it takes memory, and no space


def test_it_continues_at_its_position_and_stops_if_nothing_helps(load, monkeypatch, tmp_path):
    module = load("free_memory")
    held = memory(module, monkeypatch, tmp_path, 128 * MIB, [900 * MIB] * 99)
    held._position = 64 * MIB
    held.fill()
    assert held._position == 64 * MIB


def test_full_memory_and_much_memory_are_left_alone(load, monkeypatch, tmp_path):
    module = load("free_memory")
    memory(module, monkeypatch, tmp_path, 256 * MIB, [10 * MIB]).fill()
    memory(module, monkeypatch, tmp_path, module.MEMORY_MAX_BYTES + 1, [900 * MIB]).fill()
    assert not (tmp_path / "memory").exists()


def test_free_memory_is_read_from_the_kernel(load):
    module = load("free_memory")
    assert 0 < module.meminfo("MemFree") <= module.meminfo("MemTotal")
