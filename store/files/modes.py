"""Permissions of new files and directories: at most those of the directory that they are created in.

::

    store directory   0750   ──►  directories   0750     files   0640
                      0755                      0755             0644
                      0777                      0777             0644      never writable by others
    a shared, sticky directory (1777)  ──►  a store directory that is created in it   0755

The umask takes further permissions away, and is not relied upon: a process with umask 0 creates nothing wider. Since
each directory of a store is bounded by the one above it, all of them are bounded by the store directory.
"""

import os
import stat
from typing import Final

_FILE: Final = 0o644
_DIRECTORY: Final = 0o777
_OWN_DIRECTORY: Final = 0o755


def file_mode(path: str) -> int:
    """Return the permissions to create a file with; OSError if the directory cannot be looked at."""
    return _FILE & os.stat(os.path.dirname(path) or ".").st_mode


def directory_mode(path: str) -> int:
    """Return the permissions to create a directory with; OSError if the one it is in cannot be looked at."""
    above = os.stat(os.path.dirname(path) or ".").st_mode
    return (_OWN_DIRECTORY if above & stat.S_ISVTX else _DIRECTORY) & above
