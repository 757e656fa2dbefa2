"""The trained network in a live league: it advises, it is killed, and nothing changes but the policy."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hanse.cli.commands.journal import journal
from tests.live.harness import WAIT_SECONDS_MAX, LiveLeague, open_directory, running

LEAGUE = """
policy: {sizer: network}
brokers: [{name: b1}]
clusters:
  - name: north
    nodes: [{cpus: 4, memory: 1GiB}]
"""
ELASTIC = "0.5..4"


@pytest.fixture
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE, digests=True) as league:
        yield league


def policy_processes(live: LiveLeague) -> list[int]:
    """Those of this league's broker."""
    parent = live.processes["b1"].pid
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text(encoding="utf-8", errors="replace")
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            int(stat.rpartition(")")[2].split()[1]) == parent
            and b"hanse.live.policy_process.process" in words
        ):
            found.append(int(path.name))
    return found


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)  # the outside world: there is nothing to await


def why(live: LiveLeague, job: str) -> str:
    return " ".join(live.broker().ask("GET", f"/v1/jobs/{job}/why")["sentences"])


def blocked(live: LiveLeague, name: str, seconds: float) -> tuple[str, str]:
    """A job that holds the whole node for a while, and an elastic one that waits for it."""
    holds = live.submit({"name": "holds", "cpus": "4", "command": ["/bin/sleep", str(seconds)]})
    until(f"{holds} runs", lambda: live.broker().ask("GET", f"/v1/jobs/{holds}")["row"]["running"] == 1)
    return holds, live.submit({"name": name, "count": 2, "cpus": ELASTIC, "command": "true"})


def test_the_network_advises_and_its_death_changes_nothing_but_the_policy(live: LiveLeague) -> None:
    until("a policy process", lambda: len(policy_processes(live)) == 1)
    holds, job = blocked(live, "advised", 60)
    until("advice", lambda: "by the network" in why(live, job))
    told = why(live, job)
    assert "believed" in told
    assert "with the price of what it holds" in told
    assert "the rule would take" in told
    assert "guard:" in told

    (pid,) = policy_processes(live)
    os.kill(pid, signal.SIGSTOP)  # it is there, and will never answer
    unheard = live.submit({"name": "unheard", "cpus": ELASTIC, "command": "true"})
    os.kill(pid, signal.SIGKILL)
    until("the policy process is gone", lambda: pid not in policy_processes(live))
    live.broker().ask("POST", f"/v1/jobs/{holds}/cancel")
    assert live.wait(job)["state"] == "succeeded"
    assert live.wait(unheard)["state"] == "succeeded"
    assert live.processes["b1"].poll() is None
    until("another policy process", lambda: bool(policy_processes(live)))

    holds, again = blocked(live, "again", 60)
    until("advice again", lambda: "by the network" in why(live, again))
    live.broker().ask("POST", f"/v1/jobs/{holds}/cancel")
    assert live.wait(again)["state"] == "succeeded"
    _replays_alike(live)


def test_without_a_policy_process_the_rule_chooses(live: LiveLeague) -> None:
    until("a policy process", lambda: len(policy_processes(live)) == 1)
    holds, job = "", ""
    for _ in range(3):  # each death makes the pause before the next one longer
        for pid in policy_processes(live):
            os.kill(pid, signal.SIGKILL)
        until("it is gone", lambda: not policy_processes(live))
        until("it is back", lambda: bool(policy_processes(live)))
    (pid,) = policy_processes(live)
    os.kill(pid, signal.SIGSTOP)
    holds, job = blocked(live, "ruled", 60)
    told = why(live, job)
    assert "by the rule" in told
    assert "no advice yet" in told
    live.broker().ask("POST", f"/v1/jobs/{holds}/cancel")
    assert live.wait(job)["state"] == "succeeded"
    assert "by the rule" in why(live, job)
    live.kill("b1", signal.SIGTERM)
    assert not Path(f"/proc/{pid}").exists(), "it ends with its broker"


def _replays_alike(live: LiveLeague) -> None:
    """The broker's journal, with the advice in it, gives the very commands of the live run."""
    live.kill("b1", signal.SIGTERM)
    told = CliRunner().invoke(journal, ["replay", "--home", str(live.home.path), "b1"])
    assert told.exit_code == 0, told.output
    assert "no difference" in told.output
    assert " 0 compared" not in told.output
