"""Job ``demo``: the verb `segmentlog demo`, run by module."""

import sys

from segmentlog.command.main import process

if __name__ == "__main__":
    sys.exit(process("demo"))
