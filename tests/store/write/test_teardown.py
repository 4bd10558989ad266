"""Steps that undo an opening."""

import os
import time

import pytest

from segmentlog.store.write.teardown import Teardown


def test_steps_are_taken_once_and_last_first() -> None:
    taken: list[str] = []
    teardown = Teardown()
    for name in "abc":
        teardown.add(lambda name=name: taken.append(name))  # type: ignore[misc]
    teardown.run()
    teardown.run()
    assert taken == ["c", "b", "a"]


def test_an_error_is_raised_after_the_last_step() -> None:
    taken: list[str] = []

    def fail() -> None:
        raise OSError("cannot be closed")

    teardown = Teardown()
    teardown.add(lambda: taken.append("a"))
    teardown.add(fail)
    with pytest.raises(OSError, match="cannot be closed"):
        teardown.run()
    assert taken == ["a"]


def test_a_step_that_is_interrupted_is_taken_again_before_the_next() -> None:
    taken: list[str] = []

    def stop() -> None:
        taken.append("stop")
        if len(taken) == 1:
            raise KeyboardInterrupt

    teardown = Teardown()
    teardown.add(lambda: taken.append("release"))
    teardown.add(stop)
    with pytest.raises(KeyboardInterrupt):
        teardown.run()
    assert taken == ["stop", "stop", "release"]


def test_a_second_interrupt_leaves_the_rest_for_the_next_call() -> None:
    taken: list[str] = []

    def stop() -> None:
        taken.append("stop")
        if len(taken) < 3:
            raise KeyboardInterrupt

    teardown = Teardown()
    teardown.add(lambda: taken.append("release"))
    teardown.add(stop)
    with pytest.raises(KeyboardInterrupt):
        teardown.run()
    assert taken == ["stop", "stop"]
    teardown.run()
    assert taken == ["stop", "stop", "stop", "release"]


def test_a_forked_child_takes_no_step() -> None:
    taken: list[str] = []
    teardown = Teardown()
    teardown.add(lambda: taken.append("a"))
    child = os.fork()
    if child == 0:
        teardown.run()
        teardown.leave()
        time.sleep(0.1)  # a thread that should not be there has the time to take the step
        os._exit(len(taken))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
