import threading

import pytest

from segmentlog.store.write.workers import Workers
from support.interrupting import Interrupter, own_threads, points_of

WAIT_S = 300


def test_values_and_errors_come_back() -> None:
    workers = Workers(2, "segmentlog-put")
    jobs = [workers.submit(divmod, 7, number) for number in (2, 0, 3)]
    assert jobs[0].result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        jobs[1].result()
    assert jobs[2].result() == (2, 1)
    workers.stop()
    assert own_threads() == []


def test_a_thread_is_started_for_each_of_the_first_jobs() -> None:
    both = threading.Barrier(2)
    workers = Workers(2, "segmentlog-put")
    jobs = [workers.submit(both.wait, WAIT_S) for _ in range(6)]
    assert sorted(job.result() for job in jobs) == [0, 0, 0, 1, 1, 1]
    assert len(own_threads()) == 2
    workers.stop()


def test_a_stop_waits_for_the_running_job_and_drops_queued_jobs() -> None:
    began, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def slow() -> None:
        began.set()
        assert go_on.wait(WAIT_S)
        done.append(1)

    workers = Workers(1, "segmentlog-put")
    job = workers.submit(slow)
    workers.submit(done.append, 2)
    assert began.wait(WAIT_S)
    assert not job.has_ended
    threading.Timer(0.1, go_on.set).start()
    workers.stop()
    workers.stop()
    assert done == [1]
    assert job.has_ended
    assert own_threads() == []


def test_workers_end_after_a_ctrl_c_at_any_point() -> None:
    def use(made: list[Workers]) -> None:
        workers = Workers(2, "segmentlog-put")
        made.append(workers)
        try:
            jobs = [workers.submit(abs, -number) for number in range(6)]
            assert [job.result() for job in jobs] == [*range(6)]
        finally:
            try:
                workers.stop()
            except BaseException:
                workers.stop()
                raise

    total = max(points_of(lambda: use([])) for _ in range(3))
    came = 0
    for at in range(1, total + 5):
        made: list[Workers] = []
        came += Interrupter(at).run(lambda made=made: use(made))  # type: ignore[misc]
        for workers in made:
            workers.stop()
        assert own_threads() == [], at
    assert came >= total // 2
