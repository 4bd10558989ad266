"""Records what RocketMQ answers to generated SQL92 filters: ``tests/store/filter/answers/VERSION.json.gz``.

Run by hand after `support.filter_cases` has changed: ``.venv/bin/python tests/interop/record_filter_answers.py``. The
recorded answers let the comparison run without Java; ``test_sql92_filter.py`` beside this file asks RocketMQ itself.
"""

import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import filter_cases, oracle

COUNTS = {"5.3.3": 3000, "5.1.0": 300, "4.9.1": 300}
SEED = 2218


def main() -> None:
    rows = filter_cases.rows()
    for version, count in COUNTS.items():
        expressions = filter_cases.expressions(SEED, count, version)
        answers = [line.get("answers") for line in oracle.filter_answers(version, expressions, rows)]
        recorded = {"rows": rows, "answers": dict(zip(expressions, answers, strict=True))}
        path = filter_cases.recorded_path(version)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(recorded).encode(), mtime=0))


if __name__ == "__main__":
    main()
