"""Commands and code of a page, copied literally in the source distribution, with an empty environment.

::

    python -I commands.py PAGE FOLDER        FOLDER stands for /data

`scripts/try_wheel.py` runs it in the unpacked source distribution. The first block of a page installs the package into
the environment of this process. Standard library until then.
"""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^(?:<!-- skip: (?P<skip>[^>]*) -->\n)?```(?P<language>sh|python)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
INSTALLS = "changes the environment"
"""Begin of the reason for which `tests/test_documents.py` skips a block that is executed here."""


def make_store(path: str) -> None:
    """Make the store that a page expects: a topic, and a consumer group."""
    import segmentlog  # noqa: PLC0415 - installed by the page
    from segmentlog.admin import QueueKey, publish_progress  # noqa: PLC0415 - as above

    with segmentlog.open(path, "a", config=segmentlog.Config(segment_bytes=1 << 20)) as store:
        for number in range(40):
            tag = ("paid", "refunded")[number % 2]
            store.append("orders", b"%d" % number, tags=tag, keys=f"key-{number}")
    publish_progress(path, "etl", {QueueKey("orders", 0): 2})


def main(page: str, folder: str) -> None:
    blocks = list(BLOCK.finditer(Path(page).read_text(encoding="utf-8")))
    wanted = [each for each in blocks if not each["skip"] or each["skip"].startswith(INSTALLS)]
    assert wanted[0]["language"] == "sh", "a page begins with the installation"
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    names: dict[str, Any] = {}
    for number, block in enumerate(wanted):
        code = block["code"].replace("/data/", f"{folder}/")
        if block["language"] == "python":
            exec(compile(code, page, "exec"), names)
        else:
            subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True, env=os.environ | {"PATH": path})
        if number == 0:
            importlib.invalidate_caches()
            make_store(f"{folder}/store")
    print(f"{os.path.basename(page)}: {len(wanted)} of {len(blocks)} blocks")  # noqa: T201 - what a caller shows


if __name__ == "__main__":
    main(*sys.argv[1:])
