import pytest

from support import filter_cases, oracle, releases
from support.scale import sample, scale

pytestmark = oracle.MARKS

SEED = 5133


ASKED = [(releases.NEWEST, scale(500, 2500, 2500)), ("5.3.3", 500), ("5.1.0", 500), ("4.9.1", 500)]


@pytest.mark.scaled
@pytest.mark.parametrize(("version", "count"), sample(ASKED, 1))
def test_filters_match_as_in_rocketmq(version: str, count: int) -> None:
    rows = filter_cases.rows()
    expressions = filter_cases.expressions(SEED, count, version)
    answers = {line["expression"]: line.get("answers") for line in oracle.filter_answers(version, expressions, rows)}
    assert list(answers) == expressions
    assert list(filter_cases.differences(filter_cases.Recorded(rows, answers))) == []


def test_recorded_answers_are_the_answers_of_rocketmq() -> None:
    rows, recorded = filter_cases.recorded("5.3.3")
    some = dict(list(recorded.items())[:500])
    assert {
        line["expression"]: line.get("answers") for line in oracle.filter_answers("5.3.3", list(some), rows)
    } == some


@pytest.mark.scaled
def test_older_releases_ignore_a_search() -> None:
    """Before 5.1.3 the words are no operators: the text after the property is ignored. Ours has them always."""
    rows = [{"a": "xyz"}, {}]
    for version in sample([releases.NEWEST, "5.3.3", "4.9.1", "5.1.0"], 2):
        answers = "TF" if releases.SEARCH.holds(version) else "FN"
        assert oracle.filter_answers(version, ["a CONTAINS 'y'"], rows)[0]["answers"] == answers
    assert filter_cases.delivered("a CONTAINS 'y'", rows) == "T-"
