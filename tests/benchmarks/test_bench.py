def test_a_missing_program_leaves_out_its_own_cases_alone(load, bench):
    def missing(bench):
        raise load("harness").UnavailableError("there is no kcat")

    assert bench.from_peer("kafka", missing, tool="kcat") == []
    assert bench.skipped == {"kcat": "there is no kcat"}
    assert bench.from_peer("kafka", lambda bench: ["a case"]) == ["a case"]


def test_a_peer_that_was_not_asked_for_is_not_measured(bench):
    assert bench.from_peer("parquet", lambda bench: ["a case"]) == []
    assert bench.skipped == {}
