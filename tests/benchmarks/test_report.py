import json

import pytest

SHAPE = {"command": "run.py", "rows": 10, "body_bytes": 1024, "rounds": 1, "took": 1.0}


@pytest.fixture
def module(load):
    return load("report")


def found(load, *results, **figures):
    return load("harness").Found(results=list(results), figures=figures)


def test_a_saved_report_is_extended(load, module, result, tmp_path):
    path = tmp_path / "results" / "latest.json"
    first = module.Report.load(path)
    first.add("read", found(load, result("segmentlog: read", 5)), **SHAPE)
    first.save(path)

    second = module.Report.load(path)
    second.add("sink", found(load, result("segmentlog: sink", 7), bytes=3.0), **SHAPE)
    second.save(path)

    measured = module.Report.load(path).measured()
    assert {name: each.rate for name, each in measured.results.items()} == {
        "segmentlog: read": 5,
        "segmentlog: sink": 7,
    }
    assert measured.figures == {"bytes": 3.0}


def test_a_section_replaces_its_earlier_results_and_failure(load, module, result, tmp_path):
    report = module.Report.load(tmp_path / "none.json")
    report.add("read", found(load, result("a", 5), result("b", 6)), **SHAPE)
    report.failed["read"] = "it broke later"

    report.add("read", found(load, result("a", 8)), **SHAPE)

    assert [(each.name, each.rate) for each in report.results()] == [("a", 8)]
    assert not report.failed


def test_a_case_of_another_section_is_not_hidden_by_its_name(load, module, result, tmp_path):
    report = module.Report.load(tmp_path / "none.json")
    report.add("read", found(load, result("a")), **SHAPE)

    with pytest.raises(ValueError, match="two cases are called"):
        report.add("sink", found(load, result("a")), **SHAPE)


def test_figures_of_another_machine_are_left_out(load, module, result, tmp_path):
    path = tmp_path / "latest.json"
    report = module.Report.load(path)
    report.add("read", found(load, result("a")), **SHAPE)
    report.save(path)
    held = json.loads(path.read_text())
    held["machine"]["cpus"] += 1
    path.write_text(json.dumps(held))

    assert not module.Report.load(path).sections


def test_only_measured_targets_are_reported(load, module, result, tmp_path):
    report = module.Report.load(tmp_path / "none.json")
    report.add("sink", found(load, result("segmentlog: sink", 130), result("kafka: sink", 100)), **SHAPE)

    (target,) = json.loads(report.as_json())["targets"]
    assert target == {"target": "sink: at least 1.2 times Kafka's", "measured": "1.30 times", "met": True}


def test_the_tables_show_figures_peers_and_failures(load, module, result, tmp_path):
    harness, tables = load("harness"), load("tables")
    report = module.Report.load(tmp_path / "none.json")
    waits = result("segmentlog: latency", unit=harness.Unit.LATENCY, seconds=(0.1, 0.2, 0.3))
    grown = [
        result(f"segmentlog: scan, {x}", x=x, curve="scan, by queues", rate=rate) for x, rate in ((1, 1e6), (9, 5e5))
    ]
    report.add(
        "drain", found(load, result("segmentlog: drain", 85), result("transport: drain", 100), waits, *grown), **SHAPE
    )
    report.add("commit", found(load, result("segmentlog: commit", 3), bytes=7), **SHAPE)
    report.failed["sink"] = "no space"
    report.skipped["kafka"] = "no Maven"

    text = tables.markdown(report)

    assert "| drain with AvailableNow: at least 85% of the ceiling | 85% |" in text
    assert "| per second | segmentlog | transport |" in text
    assert "| drain | 85 (85–85) | 100 (100–100) |" in text
    assert "| segmentlog: latency | 200, 300, 300 ms |" in text
    assert "| scan, by queues | 1: 1.00 · 9: 2.00 |" in text
    assert "scan, 9" not in text, "cases of a curve are in the table of growth alone"
    assert "- `sink` failed: no space" in text
    assert "### `commit`" in text
    page = tables.markdown(report, with_cases=False)
    assert "### `drain`" not in page, "the page leaves cases to the CSV"
    assert page.count("`run.py`") == 1, "both sections are of one run"
    assert "| scan, by queues | 1: 1.00 · 9: 2.00 |" in page
    assert tables.as_csv(report).splitlines() == [
        "section,case,unit,minimum or p50,median or p95,maximum or p99",
        "drain,segmentlog: drain,rows,85,85,85",
        "drain,transport: drain,rows,100,100,100",
        "drain,segmentlog: latency,ms,200,300,300",
        'drain,"segmentlog: scan, 1",rows,1e+06,1e+06,1e+06',
        'drain,"segmentlog: scan, 9",rows,5e+05,5e+05,5e+05',
        "commit,segmentlog: commit,rows,3,3,3",
        "commit,bytes,,,7,",
    ]
    assert "- kafka: left out, no Maven" in text
    assert "`run.py`" in text


def test_a_page_keeps_all_but_its_figures(load, tmp_path):
    tables = load("tables")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")

    for _ in range(2):
        tables.put_into_page(page, "new\n", [tmp_path / "plots" / "read.svg"])

    assert page.read_text() == f"before\n{tables.BEGIN}\n\nnew\n\n![read](plots/read.svg)\n\n{tables.END}\nafter\n"


def test_a_page_without_a_place_for_figures_is_left_alone(load, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("only words\n")

    with pytest.raises(ValueError, match="has no line"):
        load("tables").put_into_page(page, "new\n", [])

    assert page.read_text() == "only words\n"
