import errno
import json

import pytest

from segmentlog.command.errors import FLAGS, describe, error_text
from segmentlog.store import ConfigError, DataLossError, Remedy


def test_remedies_are_worded_as_flags() -> None:
    error = DataLossError("messages are gone", path="/s", offset=7, remedies=[Remedy.SKIP_LOST])
    found = describe(error, ["cat", "/s", "t"])
    assert found["remedy"] == FLAGS[Remedy.SKIP_LOST]
    assert found["where"] == {"path": "/s", "offset": 7}
    assert all("--" in words for remedy, words in FLAGS.items() if remedy is not Remedy.READ_SEVERAL)


@pytest.mark.parametrize(
    ("problem", "found"),
    [
        ("start is offset 7 of orders/0", "--from is offset 7 of orders/0"),
        ("columns: there is no column `x`", "--columns: there is no column `x`"),
        ("started too early", "started too early"),
        ("queue and offset name a message", "--queue and offset name a message"),
    ],
)
def test_arguments_of_the_python_api_are_named_as_flags(problem: str, found: str) -> None:
    assert describe(ConfigError(problem), [])["found"] == found


def test_errors_of_the_system_keep_their_path() -> None:
    found = describe(OSError(errno.ENOSPC, "No space left on device", "/s/x"), ["put"])
    assert (found["code"], found["found"]) == ("OS_ERROR", "No space left on device")
    assert found["where"] == {"path": "/s/x", "offset": None}


def test_the_command_line_can_be_pasted() -> None:
    assert describe(ConfigError("x"), ["cat", "a b", "--sql=c > '1'"])["asked"] == (
        """segmentlog cat 'a b' '--sql=c > '"'"'1'"'"''"""
    )


def test_no_control_character_reaches_the_terminal() -> None:
    error = ConfigError("there is no topic `\x1b[31m\n`", path="/s\x07", offset=1, fix="Use \u202e")
    text = error_text(describe(error, ["cat", "\x1b"]), as_json=False)
    assert "there is no topic `\\x1b[31m\\n`" in text
    assert "/s\\x07 at offset 1" in text
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == 4
    assert json.loads(error_text(describe(error, ["cat", "\x1b"]), as_json=True))["error"]["remedy"] == "Use \u202e"


LOST = """An error occurred while calling o61.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage
"""
STOPPED = ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
OURS = f"{LOST}\nsegmentlog.store.errors.CorruptRecordError: [SEGMENTLOG_CORRUPT_RECORD] the body (in /a)\n more"


@pytest.mark.parametrize("module", ["py4j.protocol", "pyspark.errors.exceptions.captured", "pyspark.errors"])
@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        (LOST, "SparkException", "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times"),
        (STOPPED, "IllegalStateException", "Cannot call methods on a stopped SparkContext."),
        ("Answer from Java side is empty", "Lost", "Answer from Java side is empty"),
        ("", "Lost", "Lost"),
        (OURS, "SEGMENTLOG_CORRUPT_RECORD", "the body (in /a)"),
    ],
)
def test_errors_of_spark_keep_their_names(module: str, text: str, code: str, found: str) -> None:
    raised = type("Lost", (Exception,), {"__module__": module})
    described = describe(raised(text), ["verify", "/data/store", "--master", "spark://lost:7077"])
    assert (described["code"], described["found"]) == (code, found)
    assert "report it" not in str(described["remedy"])


def test_an_error_of_spark_with_a_condition_has_it_as_code() -> None:
    raised = type("Lost", (Exception,), {"__module__": "pyspark.errors", "getCondition": lambda _: "TABLE_NOT_FOUND"})
    described = describe(raised("[TABLE_NOT_FOUND] `t`"), ["backfill"])
    assert (described["code"], described["found"]) == ("TABLE_NOT_FOUND", "Lost: [TABLE_NOT_FOUND] `t`")


def test_output_without_room_has_a_remedy() -> None:
    described = describe(OSError(errno.EFBIG, "File too large"), ["cat", "store", "orders", "-w", "rows.jsonl"])
    assert str(described["remedy"]).startswith("Make room where stdout or --write leads to")
