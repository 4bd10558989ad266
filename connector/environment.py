"""Former place of `prepare_java` and `prepare_workers`, which are on the door `segmentlog.connector` now.

The module stays for code that imports them from here.
"""

from .setup.java import prepare_java
from .setup.workers import prepare_workers

__all__ = ["prepare_java", "prepare_workers"]
