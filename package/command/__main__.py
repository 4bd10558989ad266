"""Run of the command by module: ``python -m segmentlog.command``."""

import sys

from .main import process

if __name__ == "__main__":
    sys.exit(process())
