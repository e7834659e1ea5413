"""What a client writes to the log of itself."""

import pytest

from pairbus.client.observers.observer import LogObserver


def test_hundreds_of_queues_that_leave_the_rotation_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="pairbus")
    observer = LogObserver()
    for usable in [*range(299, -1, -1), *range(1, 301)]:
        observer.rotation_changed(usable, 300)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "299 of 300 backlog queues are in the rotation"),
        ("WARNING", "0 of 300 backlog queues are in the rotation"),
        ("WARNING", "1 of 300 backlog queues are in the rotation"),
        ("INFO", "300 of 300 backlog queues are in the rotation"),
    ]
