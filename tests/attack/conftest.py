"""What the attacks share."""

from collections.abc import Callable

import pytest


@pytest.fixture
def report(
    record_property: Callable[[str, object], None], pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, object], None]:
    """Say what was counted: on the terminal, and in the XML report."""

    def say(name: str, counted: object) -> None:
        record_property(name, str(counted))
        with capsys.disabled():
            writer = pytestconfig.get_terminal_writer()
            writer.line()
            writer.line(f"{name}: {counted}")

    return say
