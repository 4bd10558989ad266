"""Script for ``spark-submit``: runs a verb of the command in the session that spark-submit configures.

::

    spark-submit --master … --py-files segmentlog-….whl …/segmentlog/jobs/submit.py backfill STORE …
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the directory of a script first on its path: modules beside this one must not hide those of others.
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]
    from segmentlog.command.main import process

    sys.exit(process())
