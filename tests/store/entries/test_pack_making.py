from pathlib import Path

import numpy as np

from segmentlog.store import Snapshot
from segmentlog.store.dispatch.derive import derive_segments
from segmentlog.store.entries.pack_making import made_pack
from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.format.archive_part import ENTRY, PACK_HEADER
from segmentlog.store.format.message import Records
from segmentlog.store.log.commit_log import FoundRecords
from support.archived_store import write_whole


def test_runs_have_the_entries_of_each_queue_as_they_are_derived_from_the_log(tmp_path: Path) -> None:
    log = Snapshot.open(write_whole(tmp_path / "store", 90)).log
    for found, derived in derive_segments(log, 0, log.stop):
        pack = made_pack(found)
        rows = pack.data[PACK_HEADER.itemsize :].view(ENTRY)
        assert (rows.size, pack.queues) == (len(found.records), tuple(sorted(derived)))
        for run in pack.runs:
            entries = derived[pack.queues[run["queue"]]]
            some = rows[run["row"] :][: run["rows"]]
            assert some["queue_offset"].tolist() == entries.queue_offset.tolist()
            assert (some["position"] + found.segment.base).tolist() == entries.physical_offset.tolist()
            assert some["tags_code"].tolist() == entries.tags_code.tolist()
            assert [log.store_time_at(at) for at in entries.physical_offset.tolist()] == some["store_time"].tolist()
            assert (run["first_offset"], run["last_offset"]) == tuple(entries.physical_offset[[0, -1]])
            assert (run["bytes"], run["rises"]) == (entries.size.sum(), True)


def test_a_piece_without_records_has_an_empty_pack() -> None:
    nothing = FoundRecords(SegmentFile(0, 0, ""), Records(np.empty(0, np.uint8), np.empty(0, np.int64)))
    assert (made_pack(nothing).data.size, made_pack(nothing).queues) == (0, ())
