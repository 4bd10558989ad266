import json


def test_groups_are_their_sections_in_the_order_in_which_they_run(load):
    catalogue = load("catalogue")

    assert catalogue.chosen("drain,sink,limits") == ("limits", "sink", "drain")
    assert catalogue.chosen("spark") == tuple(catalogue.SPARK)
    assert set(catalogue.chosen("store,drain")) == {*catalogue.STORE, "drain"}
    store = {"store-find", "store-jobs", "store-queue-kinds", "store-replication", "store-resend", "store-retention"}
    assert store <= set(catalogue.STORE)
    assert {"command", "replay", "replicated-stream"} <= set(catalogue.SPARK)


def test_a_section_that_fails_loses_no_other(load, result, monkeypatch, tmp_path, capsys):
    run, harness = load("run"), load("harness")

    def fails(bench):
        raise OSError("the disk is full")

    sections = {
        "limits": lambda bench: harness.Found(results=[result("limit: copy", 5)]),
        "read": fails,
        "sink": lambda bench: harness.Found(results=[result("segmentlog: sink", 5)]),
    }
    monkeypatch.setattr(run, "SECTIONS", sections)
    path = tmp_path / "latest.json"
    base = ["run.py", "--quick", "--work-dir", str(tmp_path), "--json", str(path), "--only"]

    monkeypatch.setattr("sys.argv", [*base, "limits,read,sink"])
    assert run.main() == 1

    held = json.loads(path.read_text())
    assert set(held["sections"]) == {"limits", "sink"}
    assert held["failed"] == {"read": "OSError: the disk is full"}
    assert "`read` failed: OSError: the disk is full" in capsys.readouterr().out

    sections["read"] = lambda bench: harness.Found(results=[result("segmentlog: read", 5)])
    sections["limits"] = fails
    monkeypatch.setattr("sys.argv", [*base, "limits,read,sink", "--resume"])
    assert run.main() == 0
    held = json.loads(path.read_text())
    assert set(held["sections"]) == {"limits", "read", "sink"}
    assert not held["failed"]
