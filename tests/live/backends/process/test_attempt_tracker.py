"""Reports of a launcher: each attempt starts once and ends once, however often it is reported."""

from hanse.live.backends.process.attempt_tracker import AttemptTracker, ProcessAttempt
from hanse.live.backends.process.devices.device_plan import plan_devices
from hanse.live.backends.process.devices.device_table import DeviceTable
from hanse.live.backends.process.launcher_protocol import ENDED, STARTED, LauncherReport
from hanse.model.ids import JobId, task_id
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.resources import Resources

TASK = task_id(JobId(1 << 32), 0)


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[AttemptEnd] = []

    def on_attempt_started(self, task: int, attempt: int) -> None:
        assert task == TASK
        self.started.append(attempt)

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        self.ended.append(end)

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        raise AssertionError(f"no device is assigned: {node} {amount}")


def tracker() -> tuple[AttemptTracker, Heard]:
    """A tracker of one attempt that was asked for."""
    devices = DeviceTable(plan_devices((), (), "r", lambda _: True), lambda _node, _amount: None)
    found, heard = AttemptTracker(lambda _: True, lambda _: None, devices), Heard()
    found.listener = heard
    found.attempts[TASK, 1] = ProcessAttempt(b"")
    return found, heard


def test_an_end_that_is_reported_twice_is_told_once() -> None:
    """The supervisor reports it, and the launcher again from the record."""
    found, heard = tracker()
    first = AttemptEnd(TASK, 1, Outcome.SUCCEEDED)
    found.on_reports([LauncherReport(ENDED, TASK, 1, first, ran=True)])
    found.on_reports([LauncherReport(ENDED, TASK, 1, AttemptEnd(TASK, 1, Outcome.LOST), ran=True)])
    assert heard.started == [1]
    assert heard.ended == [first]


def test_a_start_that_is_reported_twice_or_after_the_end_is_told_once() -> None:
    found, heard = tracker()
    for _ in range(2):
        found.on_reports([LauncherReport(STARTED, TASK, 1)])
    found.on_reports([LauncherReport(ENDED, TASK, 1, AttemptEnd(TASK, 1, Outcome.FAILED), ran=True)])
    found.on_reports([LauncherReport(STARTED, TASK, 1)])
    assert heard.started == [1]
    assert len(heard.ended) == 1
