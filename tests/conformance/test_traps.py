"""The traps of the format, and where each is tested: RocketMQ's surprises, each once a bug of a reader.

::

    trap ──► node id of a test, which must exist, or why none can be yet
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]

WRITER = "a matter of writing into a store, which is not part of the package yet: "
BROKER = "what a broker does, in no file that is read here: "


class Trap(NamedTuple):
    """A trap: its description, and the tests that find a reader with this bug, or the reason for having no test."""

    what: str
    tests: tuple[str, ...] = ()
    why_not: str = ""


TRAPS = {
    1: Trap(
        "the last separator of properties differs by release; empty values vanish",
        ("format/test_properties.py::test_a_text", "format/test_properties.py::test_maps_and_columns_are_rocketmqs"),
    ),
    2: Trap(
        "the CRC is masked and covers the body as stored",
        (
            "format/test_message_decode.py::test_every_column_has_its_type_length_and_values",
            "format/test_message_encode.py::test_records_of_real_brokers_are_encoded_to_the_same_bytes",
            "conformance/test_store_reader.py::test_rows_are_rocketmqs",
        ),
    ),
    3: Trap(
        "digits of __CRC32# are reversed and padded on the right",
        (
            "store/read/test_scan.py::test_record_crcs_are_checked",
            "format/test_checksums.py::test_a_change_is_seen_only_where_the_whole_record_has_a_checksum",
            "conformance/test_store_reader.py::test_rows_are_rocketmqs",
        ),
    ),
    4: Trap("IPv6 hosts shift all later fields", ("format/test_message.py::test_all_layouts",)),
    5: Trap(
        "the topic length is a signed byte; version 2 has a short",
        (
            "format/test_message.py::test_all_layouts",
            "format/test_message.py::test_a_damaged_record_has_a_problem_and_sound_neighbours",
            "format/test_message_encode.py::test_the_topic_decides_the_version",
        ),
    ),
    6: Trap(
        "of a blank record only eight bytes are written, what follows is garbage",
        (
            "format/test_walk.py::test_records_in_a_body_and_after_a_blank_are_not_found",
            "store/test_store_builder.py::test_segments_are_full_size_and_end_with_a_blank",
        ),
    ),
    7: Trap("a message too large for a file is acknowledged and lost", why_not=WRITER + "put must refuse it"),
    8: Trap(
        "batches of 4.9.1 have properties that run into each other",
        ("conformance/test_store_reader.py::test_rows_are_rocketmqs",),
    ),
    9: Trap(
        "the queue offset of a record is not always its place in the queue",
        (
            "store/read/test_scan.py::test_burnt_queue_offsets_are_places_in_the_queue_and_damage_among_them_costs_itself_alone",
            "store/read/test_heal.py::test_burnt_queue_offsets_are_confirmed",
        ),
    ),
    10: Trap(
        "prepared and rolled back records have queue offset 0 and no entry",
        ("store/dispatch/test_derive.py::test_prepared_rolled_back_and_inner_batch_records_have_no_queue",),
    ),
    11: Trap(
        "tags codes are Java's hashes, times of delivery, or addresses",
        (
            "format/test_hashing.py::test_java_hash_is_javas",
            "store/dispatch/test_derive.py::test_tags_codes_are_javas_hashes",
            "store/dispatch/test_derive.py::test_delayed_messages_have_their_time_of_delivery",
            "store/read/test_scan.py::test_tags_are_matched_exactly",
        ),
    ),
    12: Trap(
        "pads count as written, and 4.x as messages",
        (
            "format/test_consume_queue.py::test_pads_and_implausible_entries_are_recognized",
            "store/read/test_queue_view.py::test_bounds_of_queues_read_together_equal_bounds_read_alone",
        ),
    ),
    13: Trap(
        "an all-zero ConsumeQueue file is one message to a broker",
        ("store/queues/test_consume_queue.py::test_partial_entries_and_zero_files_read_as_unwritten",),
    ),
    14: Trap(
        "the index begins at entry 1, its times are coarse, its keys are not verified",
        (
            "format/test_index_file.py::test_a_decoded_table_equals_the_entries_put",
            "store/find/test_search.py::test_windows_are_exact",
            "conformance/test_index_queries.py::test_keys_are_answered_as_rocketmq_answers",
        ),
    ),
    15: Trap(
        "the least hash has index hash 0; index names are local times",
        (
            "format/test_hashing.py::test_index_hashes_are_absolute_and_the_least_is_zero",
            "format/test_naming.py::test_queue_ids_and_index_names",
        ),
    ),
    16: Trap(
        "brokers allow nothing but segments in their directories; a copy may hold anything",
        (
            "files/test_segments.py::test_order_is_by_base_and_other_names_are_left_alone",
            "attack/test_hostile_directories.py::test_segment_files",
            "files/test_fresh_directory.py::test_files_appear_at_once_at_their_full_size",
        ),
    ),
    17: Trap(
        "missing entries are not always rebuilt by a broker",
        (
            "conformance/test_store_reader.py::test_bounds_are_rocketmqs",
            "store/read/test_scan.py::test_a_damaged_queue_is_healed",
            "store/maintenance/test_rebuild.py::test_a_broker_that_does_not_rebuild_queues_reads_our_rebuilt_queues",
        ),
    ),
    18: Trap("with abort, index files that are not full are deleted", why_not=BROKER + "recovery on start"),
    19: Trap(
        "without CommitLog files the queues are deleted by a broker; a reader loses nothing by looking",
        ("store/read/test_store_reader.py::test_a_commitlog_a_consumequeue_or_a_checkpoint_alone_makes_a_store",),
    ),
    20: Trap(
        "truncation leaves older records that can come back",
        ("store/dispatch/test_derive.py::test_records_left_by_a_truncation_are_not_derived",),
    ),
    21: Trap(
        "retention goes by modification times and deletes the front only",
        (
            "store/read/test_queue_view.py::test_retention_moves_the_front",
            "store/queues/test_consume_queue.py::test_first_alive",
            "conformance/test_fixtures.py::test_modification_times_are_kept_to_the_nanosecond",
        ),
    ),
    22: Trap(
        "abort is left by some clean shutdowns, too",
        ("store/read/test_missing_entries.py::test_messages_without_queue_entries_are_read_from_the_log",),
    ),
    23: Trap(
        "older releases answer with the nearest message of a file chosen by its modification time",
        (
            "conformance/test_store_reader.py::test_offsets_by_time_are_rocketmq_5s",
            "conformance/test_store_reader.py::test_offsets_by_time_without_boundary",
        ),
    ),
    24: Trap(
        "getMessage looks at 800 entries and one file at most",
        (
            "store/read/test_scan.py::test_every_message_once_and_in_order",
            "store/read/test_scan.py::test_tags_are_matched_exactly",
            "interop/test_live_writer.py::test_a_reader_follows_a_live_writer",
        ),
    ),
    25: Trap(
        "an offset far beyond the end resets 4.x to 0",
        ("store/read/test_store_reader.py::test_ranges_outside_their_queue_are_refused",),
    ),
    26: Trap("a synchronous master of 5.x does not wait", why_not=BROKER + "replication"),
    27: Trap("a first report of 0 means from the last file", why_not=BROKER + "replication"),
    28: Trap(
        "a replica's log can end inside a record",
        (
            "store/read/test_missing_entries.py::test_a_torn_last_record_was_never_there",
            "store/log/test_commit_log.py::test_a_walk_over_a_gap_and_a_short_segment",
        ),
    ),
    29: Trap(
        "configuration has keys without quotes and objects as keys",
        ("format/test_documents.py::test_texts_that_fastjson_accepts_are_parsed",),
    ),
    30: Trap(
        "delivered messages keep DELAY, REAL_TOPIC, REAL_QID on disk",
        ("conformance/test_store_reader.py::test_rows_are_rocketmqs",),
    ),
    31: Trap(
        "4.x does not derive the CommitLog's path from the root",
        ("store/read/test_store_reader.py::test_segments_in_other_directories",),
    ),
    32: Trap(
        "compression type 0 is zlib; LZ4 is the frame, without its size",
        ("format/test_message_decode.py::test_bodies_come_back",),
    ),
    33: Trap("SQL92 has its own precedence and ignores trailing text", why_not=BROKER + "filters are Spark's here"),
    34: Trap(
        "lock is taken after recovery by real brokers",
        (
            "files/test_store_lock.py::test_other_processes_are_kept_out_while_the_lock_is_held",
            "store/maintenance/test_rebuild.py::test_a_store_with_an_owner_is_left_alone_and_a_broker_cannot_start_meanwhile",
            "interop/test_live_writer.py::test_a_reader_follows_a_live_writer",
        ),
    ),
    35: Trap(
        "times in the checkpoint are lower bounds only",
        ("format/test_checkpoint.py::test_recovery_begins_three_seconds_before",),
    ),
}


@cache
def functions(path: Path) -> frozenset[str]:
    """Names of the functions in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_list_is_whole() -> None:
    assert list(TRAPS) == list(range(1, 36))
    assert len({trap.what for trap in TRAPS.values()}) == 35


@pytest.mark.parametrize("number", TRAPS)
def test_a_trap_has_its_test(number: int) -> None:
    trap = TRAPS[number]
    assert bool(trap.tests) != bool(trap.why_not), "a test, or the reason why there is none"
    for node in trap.tests:
        file, _, name = node.partition("::")
        assert (TESTS / file).exists(), node
        assert name in functions(TESTS / file), node
