"""Worker threads of one caller: they run its jobs in turn, and end with it, whatever a Ctrl-C interrupts.

::

    caller    submit(job) ──► [job][job][job] ──► worker 0, worker 1 …
                                                      │
    caller    result() ◄── value, or error ◄──────────┘        each job has a queue of its own for it
    caller    stop()   ──► jobs that no worker took are dropped ──► no worker runs any more

All queues are written in C. A Ctrl-C within ``concurrent.futures`` can leave a lock held that its workers wait for, and
then they never end. RocketMQ has no counterpart.
"""

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Raised(NamedTuple):
    """Error of a call, in the place of its value."""

    error: BaseException


class Job(Generic[R]):
    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._outcome: queue.SimpleQueue[R | _Raised] = queue.SimpleQueue()

    def run(self) -> None:
        """Make the call, and keep its value or error."""
        try:
            self._outcome.put(self._call())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._outcome.put(_Raised(error))

    @property
    def has_ended(self) -> bool:
        """True once `result` would return at once, until it is called."""
        return not self._outcome.empty()

    def result(self) -> R:
        """Wait for the end of the call; return its value, or raise its error. Not to be called twice."""
        outcome = self._outcome.get()
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome


class Workers:
    """Threads that run jobs in the order in which they are submitted. All methods are for one calling thread."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._is_stopping = False
        self._threads: list[threading.Thread] = []
        self._running: list[threading.Lock] = []  # per thread: held while it runs jobs

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        job = Job(lambda: call(*args, **kwargs))
        if len(self._threads) < self._count:
            running = threading.Lock()
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=self._run, args=(running,), name=name, daemon=True)
            self._running.append(running)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)  # type: ignore[arg-type] # the worker does not look at the value
        return job

    def stop(self) -> None:
        """Drop the jobs that no thread took, and return when none runs any more. May be repeated."""
        self._is_stopping = True
        for _ in self._threads:
            self._jobs.put(None)
        await_end(self._threads, self._running)

    def _run(self, running: threading.Lock) -> None:
        with running:
            while (job := self._jobs.get()) is not None and not self._is_stopping:
                job.run()


def await_end(threads: Iterable[threading.Thread], running: Iterable[threading.Lock]) -> None:
    """Return when threads that are stopping have ended; may be repeated. The calling thread is passed over."""
    for each in running:
        # Thread.join takes a thread for ended if a Ctrl-C interrupts it (bpo-45274). A thread that is only about to run
        # finds that it has to stop. Drop when Python 3.13 is the oldest version: it joins a handle instead of a lock.
        with each:
            pass
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join()
