"""Shapes of a CommitLog record: the header as a dtype, for each width of its two hosts.

A record, big-endian, packed, its hosts 4 or 16 bytes of address each::

     0      4      8      12     16     20            28            36     40            48
    +------+------+------+------+------+-------------+-------------+------+-------------+- -
    | total| magic| body | queue| flag | queue       | physical    | sys  | born        |
    | size |      | CRC  | id   |      | offset      | offset      | flag | timestamp   |
    +------+------+------+------+------+-------------+-------------+------+-------------+- -
     48               56            64               72     76            84     88
    +- - - - - + - - -+-------------+- - - - - + - - -+------+-------------+------+---------
    | born host, port | store       | store host, port| re-  | prepared    | body | body …
    | 4 or 16  | int32| timestamp   | 4 or 16  | int32| tries| transaction | size |
    +- - - - - + - - -+-------------+- - - - - + - - -+------+-------------+------+---------
    … body | topic size: int8 (v1) or int16 (v2) | topic | properties size: int16 | properties

RocketMQ: ``MessageExtEncoder``.
"""

from typing import Final, NamedTuple

import numpy as np

IPV6_EXTRA_BYTES: Final = 12
"""Bytes by which a host with an IPv6 address is longer."""


class Layout(NamedTuple):
    """Shape of a record, one of eight: topic length of one or two bytes, each host IPv4 or IPv6."""

    version: int
    born_v6: bool
    store_v6: bool

    @property
    def header(self) -> np.dtype[np.void]:
        """Fields up to the body length, big-endian and packed."""
        return _HEADERS[self.born_v6, self.store_v6]

    @property
    def topic_size(self) -> np.dtype[np.signedinteger]:
        """Integer type of the topic length, before the topic."""
        return np.dtype(">i1") if self.version == 1 else np.dtype(">i2")


def _header(*, born_v6: bool, store_v6: bool) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("total_size", ">i4"),
            ("magic", ">i4"),
            ("body_crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", "u1", (16 if born_v6 else 4,)),
            ("born_port", ">i4"),
            ("store_timestamp", ">i8"),
            ("store_host", "u1", (16 if store_v6 else 4,)),
            ("store_port", ">i4"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


_HEADERS: Final = {(b, s): _header(born_v6=b, store_v6=s) for b in (False, True) for s in (False, True)}
HEADER: Final = _HEADERS[False, False]
assert HEADER.itemsize == 88
assert _HEADERS[True, True].itemsize == 88 + 2 * IPV6_EXTRA_BYTES

LAYOUTS: Final = tuple(
    Layout(version, born_v6, store_v6) for version in (1, 2) for store_v6 in (False, True) for born_v6 in (False, True)
)
