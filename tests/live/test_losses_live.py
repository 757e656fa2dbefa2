"""Jobs that must not run twice, in a real league that loses them: they fail, and say why."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.live.execution_log import command, lives
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.test_chaos_live import supervisors
from tests.live.test_faults_live import QUICK, shared_log, until

LEAGUE = """
brokers: [{name: b1}]
clusters:
  - {name: north, nodes: [{count: 1, cpus: 4, memory: 256MiB}]}
  - {name: south, nodes: [{count: 1, cpus: 4, memory: 256MiB}]}
"""
LOST = "it was lost, may have begun, and must not start again (on_loss: fail)"


def league(directory: Path) -> AbstractContextManager[LiveLeague]:
    return running(directory / "home", QUICK + LEAGUE)


def begun(log: Path, job: str) -> Iterator[bool]:
    while True:
        yield any(life.task == f"{job}.0" for life in lives(log))


def is_failed_once(live: LiveLeague, log: Path, job: str) -> bool:
    """Whether the job's one task failed as lost, after a single life."""
    row = live.wait(job)
    (task,) = live.tasks(job)
    told = live.broker().ask("GET", f"/v1/jobs/{job}/why")["sentences"]
    assert any(LOST in sentence for sentence in told), told
    assert (task["state"], task["outcome"]) == ("failed", "lost"), task
    return row["state"] == "failed" and len([life for life in lives(log) if life.task == f"{job}.0"]) == 1


def test_a_task_of_a_cluster_that_is_silent_for_longer_than_its_lease_fails() -> None:
    with shared_log() as log, open_directory() as directory, league(directory) as live:
        form = {"command": command(log, "1", "12"), "clusters": {"prefer": ["north"]}}
        once = live.submit({**form, "on_loss": "fail", "retries": 3})
        again = live.submit(form)
        until(begun(log, once))
        until(begun(log, again))
        live.processes["north"].send_signal(signal.SIGSTOP)
        assert is_failed_once(live, log, once)
        live.processes["north"].send_signal(signal.SIGCONT)
        assert live.wait(again)["state"] == "succeeded"
        time.sleep(1)  # nothing is to happen, so there is nothing to await
        assert is_failed_once(live, log, once)
        assert len(live.tasks(once)) == 1
        assert live.tasks(again)[0]["attempt"] > 1


def test_a_task_whose_supervisor_was_killed_fails() -> None:
    with shared_log() as log, open_directory() as directory, league(directory) as live:
        once = live.submit({"command": command(log, "1", "12"), "on_loss": "fail", "retries": 3})
        until(begun(log, once))
        for pid in supervisors(live):
            os.kill(pid, signal.SIGKILL)
        assert is_failed_once(live, log, once)
