"""A store with delayed, transactional and traced messages, as a broker of 5.x keeps them."""

import json
from pathlib import Path
from typing import Final

from segmentlog.store import Appended, MessageStore, Outgoing, StoreConfig

START_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
ANSWERS: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMERS: Final = "rmq_sys_wheel_timer"
TRACES: Final = "RMQ_SYS_TRACE_TOPIC"
COMMIT: Final = 8
PUB: Final = (
    b"Pub\x011700000000000\x01eu\x01shop\x01orders\x01ID\x01paid\x01k 1\x0110.0.0.1:10911\x015\x017\x010"
    b"\x01OFFSET\x01true"
)
CONFIG: Final = StoreConfig(segment_bytes=1 << 16, index_slots=1 << 8, index_entries=1 << 10)


class SystemStore:
    """Appends one second apart, from `START_MS` on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._now = START_MS - 1000
        self._store = MessageStore.open(path, CONFIG, clock=self._tick)

    def _tick(self) -> int:
        return self._now

    def put(self, topic: str, body: bytes = b"x", *, key: str | None = None, **fields: object) -> Appended:
        """Append a message; ``fields`` are those of `Outgoing`, names in capitals are properties."""
        properties = {name: str(value) for name, value in fields.items() if name.isupper()}
        rest = {name: value for name, value in fields.items() if not name.isupper()}
        self._now += 1000
        return self._store.append(
            Outgoing(topic=topic, body=body, uniq_key=key, properties=properties, **rest)  # type: ignore[arg-type]
        )

    def timer(self, key: str | None, due_ms: int, **fields: object) -> Appended:
        return self.put(TIMERS, key=key, TIMER_OUT_MS=due_ms, REAL_TOPIC="orders", REAL_QID=1, **fields)

    def half(self, key: str | None, **fields: object) -> Appended:
        return self.put(HALF, key=key, REAL_TOPIC="orders", REAL_QID=2, PGROUP="shop", TRAN_MSG="true", **fields)

    def answer(self, body: bytes) -> Appended:
        return self.put(ANSWERS, body, tags="d")

    def commit(self, half: Appended, key: str | None) -> Appended:
        return self.put(
            "orders", key=key, queue_id=2, sys_flag=COMMIT, prepared_transaction_offset=half.physical_offset
        )

    def progress(self, *, levels: dict[int, int] | None = None, timer_ms: int | None = None) -> None:
        config = self.path / "config"
        config.mkdir(exist_ok=True)
        if levels is not None:
            (config / "delayOffset.json").write_text(json.dumps({"offsetTable": levels}))
        if timer_ms is not None:
            (config / "timercheck").write_bytes(timer_ms.to_bytes(8, "big").ljust(4096, b"\0"))

    def close(self) -> Path:
        self._store.close()
        return self.path


def build_system_store(path: Path) -> Path:
    """Build one of each kind: a level of 10 s, a timer, an open half message, a trace of two entries, a dead letter."""
    made = SystemStore(path)
    made.put("orders", key="L", queue_id=1, keys="k 1", DELAY=3)
    made.timer("T", START_MS + HOUR_MS)
    made.half("H")
    made.put(TRACES, PUB + b"\2" + b"odd" + b"\2")
    made.put("%DLQ%billing", RETRY_TOPIC="orders", reconsume_times=17)
    return made.close()
