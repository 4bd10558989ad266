"""Job ``replicate``: the verb `segmentlog replicate`, run by module."""

import sys

from segmentlog.command.main import process

if __name__ == "__main__":
    sys.exit(process("replicate"))
