"""Progress of a job over the CommitLog: one log record per segment, for people and for programs.

::

    INFO  CommitLog segment 00000000001073741824 (2 of 10): 40 findings so far
          done=2  of=10                                      attributes of the record, from which a bar is drawn
"""

import logging

from ..format.naming import segment_name


def log_segment(log: logging.Logger, base: int, number: int, count: int, text: str) -> None:
    """Log that a segment was read."""
    log.info(
        "CommitLog segment %s (%d of %d): %s",
        segment_name(base),
        number,
        count,
        text,
        extra={"done": number, "of": count},
    )
