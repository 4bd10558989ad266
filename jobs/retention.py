"""Job ``retention``: the verb `segmentlog retention`, run by module."""

import sys

from segmentlog.command.main import process

if __name__ == "__main__":
    sys.exit(process("retention"))
