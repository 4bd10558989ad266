"""Former place of `prepare_java` and `prepare_workers`, kept for code that imports them from here."""

from .setup.java import prepare_java, prepare_workers

__all__ = ["prepare_java", "prepare_workers"]
