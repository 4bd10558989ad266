"""The command ``python -m segmentlog.connector.doctor``; see `setup.doctor`."""

import sys

from .setup.doctor import main

if __name__ == "__main__":
    sys.exit(main())
